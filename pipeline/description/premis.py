"""PREMIS 3.0: the events of the object up to its storage, from the history of the job.

Rule: all dates come from the record. The work of a state has the date of the job's move out of that state,
processing has the date of the move into it; so a repeated attempt writes the same bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from pipeline.description.xml_text import clean
from pipeline.files import ContentFile
from pipeline.fixity import OF_RECORD, Digest
from pipeline.records import HistoryEntry, Job, PayloadType
from pipeline.states import Event, JobState

NAME = "mrt-premis.xml"

MAX_FILES = 1_000
"""Maximum number of files for which files are described. For more, the description would have megabytes; the
storage manifest and the inventory in storage have the digests."""

_PREMIS = "http://www.loc.gov/premis/v3"
_TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"
_VOCABULARY = "http://id.loc.gov/vocabulary/preservation/eventType"
_CODES = {
    "fixity check": "fix",
    "ingestion": "ing",
    "message digest calculation": "mes",
    "transfer": "tra",
    "unpacking": "unp",
    "validation": "val",
}
"""Codes in the Library of Congress's vocabulary of event types, which lacks `identifier assignment`."""

ElementTree.register_namespace("premis", _PREMIS)
ElementTree.register_namespace("xsi", "http://www.w3.org/2001/XMLSchema-instance")


NONE_DECLARED: Mapping[str, Digest] = {}


@dataclass(frozen=True)
class _PremisEvent:
    kind: str
    at: datetime
    detail: str
    outcome: str = "success"
    note: str = ""


def write(
    job: Job,
    ark: str,
    files: Sequence[ContentFile],
    checks: Iterable[str],
    local_id: tuple[str, ...] | None = None,
    declared: Mapping[str, Digest] = NONE_DECLARED,
) -> bytes:
    """The object and its files, the events up to storage, and the agents.

    `job` has all its identifiers. `checks`: a sentence for every successful validation. `local_id`: the local
    ids of the object, if there are more than the job's. `declared`: the depositor's digests by path.
    """
    root = Element(_tag("premis"), version="3.0")
    _entity(root, job, ark, job.identifiers.local_id if local_id is None else local_id)
    for file in files if len(files) <= MAX_FILES else ():
        _file(root, ark, file, declared.get(file.path))
    for number, event in enumerate(_events(job, ark, checks), 1):
        _event(root, event, f"{job.jid}-{number:02d}", ark)
    _agent(root, "arkline", "arkline", "software", _release())
    if job.configuration.submitter:
        _agent(root, "submitter", job.configuration.submitter, "person")
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text + b"\n"


@cache
def _release() -> str:
    return version("arkline")


def _events(job: Job, ark: str, checks: Iterable[str]) -> Iterator[_PremisEvent]:
    """In the order in which they happened, including failures that were resolved."""
    previous = JobState.PENDING
    for entry in job.history:
        if entry.event is Event.FAIL:
            yield _PremisEvent(
                "ingestion", entry.at, f"the work of state {previous}", "failure", entry.message
            )
        if entry.event is Event.SUCCEED and previous is JobState.DOWNLOADING:
            yield from _download_events(job, entry)
        previous = entry.state
    at = max((entry.at for entry in job.history), default=job.configuration.submitted_at)
    for check in checks:
        yield _PremisEvent("validation", at, check, "valid")
    how = "assigned to the object by arkline" if job.identifiers.assigned else "given by the depositor"
    local_ids = "".join(f"; local id {name}" for name in job.identifiers.local_id)
    yield _PremisEvent("identifier assignment", at, f"{ark}, {how}{local_ids}")
    given = job.configuration
    yield _PremisEvent(
        "ingestion",
        at,
        f"{given.submission_mode} by job {job.jid} of batch {job.bid}, profile {given.profile_name}",
    )


def _download_events(job: Job, entry: HistoryEntry) -> Iterator[_PremisEvent]:
    """The events of downloading, dated by the move out of that state."""
    given = job.configuration
    yield _PremisEvent("transfer", entry.at, given.payload_name or "the payload", note=entry.message)
    yield _PremisEvent(
        "fixity check", entry.at, "all declared sizes and digests, compared while the bytes were received"
    )
    if given.payload_type is PayloadType.CONTAINER:
        yield _PremisEvent("unpacking", entry.at, given.payload_name or "the container")
    yield _PremisEvent(
        "message digest calculation", entry.at, f"{OF_RECORD} of every file, computed while it was written"
    )


def _tag(name: str) -> str:
    return f"{{{_PREMIS}}}{name}"


def _leaf(parent: Element, name: str, text: str) -> Element:
    element = SubElement(parent, _tag(name))
    element.text = clean(text)
    return element


def _identified(parent: Element, role: str, kind: str, value: str) -> Element:
    """An element `role` with its type and value, as objectIdentifierType and objectIdentifierValue."""
    element = SubElement(parent, _tag(role))
    _leaf(element, f"{role}Type", kind)
    _leaf(element, f"{role}Value", value)
    return element


def _entity(root: Element, job: Job, ark: str, local_ids: tuple[str, ...]) -> None:
    entity = SubElement(root, _tag("object"), {_TYPE: "premis:intellectualEntity"})
    _identified(entity, "objectIdentifier", "ARK", ark)
    for local_id in local_ids:
        _identified(entity, "objectIdentifier", "local", local_id)
    _leaf(entity, "originalName", job.configuration.payload_name or "(:unas)")


def _file(root: Element, ark: str, file: ContentFile, declared: Digest | None) -> None:
    element = SubElement(root, _tag("object"), {_TYPE: "premis:file"})
    _identified(element, "objectIdentifier", "ARK", f"{ark}/{file.path}")
    characteristics = SubElement(element, _tag("objectCharacteristics"))
    _fixity(characteristics, Digest(algorithm=OF_RECORD, value=file.sha512), "arkline")
    if declared is not None:
        _fixity(characteristics, declared, "depositor")
    _leaf(characteristics, "size", str(file.size))
    designation = SubElement(SubElement(characteristics, _tag("format")), _tag("formatDesignation"))
    _leaf(designation, "formatName", file.mime_type)
    _leaf(element, "originalName", file.path.partition("/")[2])
    relationship = SubElement(element, _tag("relationship"))
    _leaf(relationship, "relationshipType", "structural")
    _leaf(relationship, "relationshipSubType", "is part of")
    _identified(relationship, "relatedObjectIdentifier", "ARK", ark)


def _fixity(parent: Element, digest: Digest, originator: str) -> None:
    element = SubElement(parent, _tag("fixity"))
    _leaf(element, "messageDigestAlgorithm", digest.algorithm.upper().replace("SHA", "SHA-"))
    _leaf(element, "messageDigest", digest.value)
    _leaf(element, "messageDigestOriginator", originator)


def _event(root: Element, event: _PremisEvent, identifier: str, ark: str) -> None:
    element = SubElement(root, _tag("event"))
    _identified(element, "eventIdentifier", "arkline", identifier)
    kind = _leaf(element, "eventType", event.kind)
    if event.kind in _CODES:
        kind.set("authority", "eventType")
        kind.set("authorityURI", _VOCABULARY)
        kind.set("valueURI", f"{_VOCABULARY}/{_CODES[event.kind]}")
    _leaf(element, "eventDateTime", event.at.astimezone(UTC).isoformat(timespec="milliseconds"))
    _leaf(SubElement(element, _tag("eventDetailInformation")), "eventDetail", event.detail)
    outcome = SubElement(element, _tag("eventOutcomeInformation"))
    _leaf(outcome, "eventOutcome", event.outcome)
    if event.note:
        _leaf(SubElement(outcome, _tag("eventOutcomeDetail")), "eventOutcomeDetailNote", event.note)
    agent = _identified(element, "linkingAgentIdentifier", "arkline", "arkline")
    _leaf(agent, "linkingAgentRole", "executing program")
    _identified(element, "linkingObjectIdentifier", "ARK", ark)


def _agent(root: Element, kind: str, name: str, agent_type: str, number: str = "") -> None:
    element = SubElement(root, _tag("agent"))
    _identified(element, "agentIdentifier", kind, name)
    _leaf(element, "agentName", name)
    _leaf(element, "agentType", agent_type)
    if number:
        _leaf(element, "agentVersion", number)
