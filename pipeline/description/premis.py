"""PREMIS 3.0: what was done to the object until it was handed to storage, made of the job's own history.

Rule: nothing is dated by a clock of its own. What the work of a state did is dated by the job's move out
of that state, as the record has it, and processing by the move into it; so an attempt that is repeated
writes the same bytes.
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

FILES = 1_000
"""Files that are described one by one; of more, the storage manifest and the store's inventory have the
digests, and a description of megabytes would help nobody."""

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
"""Terms of the Library of Congress's vocabulary of event types; `identifier assignment` has none there."""

ElementTree.register_namespace("premis", _PREMIS)
ElementTree.register_namespace("xsi", "http://www.w3.org/2001/XMLSchema-instance")


NONE_DECLARED: Mapping[str, Digest] = {}


@dataclass(frozen=True)
class _Happened:
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
    """The object and its files, the events up to the hand-over, and who took part.

    `job` has all its identifiers; `checks` says, one sentence each, what was found to be valid; `local_id`
    are the object's, where they are more than the job's; `declared` has the depositors' digests by path.
    """
    root = Element(_tag("premis"), version="3.0")
    _entity(root, job, ark, job.identifiers.local_id if local_id is None else local_id)
    for file in files if len(files) <= FILES else ():
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


def _events(job: Job, ark: str, checks: Iterable[str]) -> Iterator[_Happened]:
    """In the order in which they happened, failures that were overcome included."""
    before = JobState.PENDING
    for entry in job.history:
        if entry.event is Event.FAIL:
            yield _Happened("ingestion", entry.at, f"the work of state {before}", "failure", entry.message)
        if entry.event is Event.SUCCEED and before is JobState.DOWNLOADING:
            yield from _arrival(job, entry)
        before = entry.state
    at = max((entry.at for entry in job.history), default=job.configuration.submitted_at)
    for check in checks:
        yield _Happened("validation", at, check, "valid")
    how = "assigned to the object by arkline" if job.identifiers.assigned else "given by the depositor"
    local_ids = "".join(f"; local id {each}" for each in job.identifiers.local_id)
    yield _Happened("identifier assignment", at, f"{ark}, {how}{local_ids}")
    given = job.configuration
    yield _Happened(
        "ingestion",
        at,
        f"{given.submission_mode} by job {job.jid} of batch {job.bid}, profile {given.profile_name}",
    )


def _arrival(job: Job, entry: HistoryEntry) -> Iterator[_Happened]:
    """What downloading did, told by the move out of it."""
    given = job.configuration
    yield _Happened("transfer", entry.at, given.payload_name or "the payload", note=entry.message)
    yield _Happened("fixity check", entry.at, "every size and digest that was declared, as the bytes arrived")
    if given.payload_type is PayloadType.CONTAINER:
        yield _Happened("unpacking", entry.at, given.payload_name or "the container")
    yield _Happened("message digest calculation", entry.at, f"{OF_RECORD} of every file, as it was written")


def _tag(name: str) -> str:
    return f"{{{_PREMIS}}}{name}"


def _leaf(parent: Element, name: str, text: str) -> Element:
    element = SubElement(parent, _tag(name))
    element.text = clean(text)
    return element


def _identified(parent: Element, role: str, kind: str, value: str) -> Element:
    """`role` and its two parts, as in objectIdentifier(objectIdentifierType, objectIdentifierValue)."""
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


def _event(root: Element, event: _Happened, identifier: str, ark: str) -> None:
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


def _agent(root: Element, kind: str, name: str, sort: str, number: str = "") -> None:
    element = SubElement(root, _tag("agent"))
    _identified(element, "agentIdentifier", kind, name)
    _leaf(element, "agentName", name)
    _leaf(element, "agentType", sort)
    if number:
        _leaf(element, "agentVersion", number)
