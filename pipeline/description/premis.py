"""PREMIS 3.0 of a version, written element by element: a tree of all files would need ten times their text.

The document has the version's files and, from the job's history, the object's events up to its storage.

Rule: all dates come from the record. The work of a state has the date of the job's move out of that state,
processing that of the move into it, so that a repeated attempt writes the same bytes. Later events are in
the inventory (`pipeline/preservation/premis_record.py`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import version
from xml.sax.saxutils import escape

from pipeline.checks import (
    FORMAT_IDENTIFICATION,
    SHOWN_FINDINGS,
    VALIDATION,
    VIRUS_CHECK,
    CheckRun,
    CheckSummary,
    Stage,
)
from pipeline.description.xml import clean
from pipeline.fixity import OF_RECORD, ContentFile, Digest
from pipeline.names import PRODUCER
from pipeline.records import HistoryEntry, Job, PayloadType
from pipeline.states import FAILING, STEP_DONE, Event, JobState

NAMESPACE = "http://www.loc.gov/premis/v3"
_VOCABULARY = "http://id.loc.gov/vocabulary/preservation/eventType"
APPRAISAL = "appraisal"
"""A person decided whether deposited files are stored."""

_CODES = {
    "accession": "acc",
    APPRAISAL: "app",
    "digital signature validation": "dig",
    "dissemination": "dis",
    "fixity check": "fix",
    "forensic feature analysis": "ffa",
    FORMAT_IDENTIFICATION: "for",
    "ingestion": "ing",
    "message digest calculation": "mes",
    "metadata extraction": "mee",
    "metadata modification": "mem",
    "transfer": "tra",
    "unpacking": "unp",
    VALIDATION: "val",
    VIRUS_CHECK: "vir",
}
"""Codes in the Library of Congress's vocabulary of event types, which lacks `identifier assignment` and
`storage`."""

_NAMESPACES = f' xmlns:premis="{NAMESPACE}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
BEGIN = f"""<?xml version='1.0' encoding='UTF-8'?>\n<premis:premis{_NAMESPACES} version="3.0">\n""".encode()
END = b"</premis:premis>\n"

PROGRAM = "arkline"
"""The agent of every event that names no other."""

CHECK = "check"
"""The type of a check's identifier, as an agent; another version of a check is another agent."""

OPERATOR = "operator"
"""The type of the identifier of a person who decided."""


@dataclass(frozen=True)
class ObjectEvent:
    identifier: str
    """Unique in arkline."""
    type: str
    at: datetime
    outcome: str
    """`pass` or `fail`; of a check, the worst verdict; of a person's decision, what it was."""
    version: int | None
    """The version that the event concerns; None: all versions."""
    detail: str
    note: str = ""
    agent: str = PROGRAM
    agent_version: str = ""
    """Of a check, which is the agent then; else empty."""
    by_person: bool = False
    """The agent is an operator, who decided."""

    @property
    def agent_name(self) -> tuple[str, str]:
        """The type and the value of the agent's identifier."""
        if self.agent_version:
            return CHECK, f"{self.agent} {self.agent_version}"
        return OPERATOR if self.by_person else PROGRAM, self.agent


@dataclass(frozen=True)
class PremisFile:
    """A file of an object; `identifier` follows the ARK."""

    identifier: str
    name: str
    size: int
    mime_type: str
    digest: Digest
    declared: Digest | None = None
    """The depositor's digest."""
    formats: tuple[str, ...] = ()
    """Codes of PRONOM, such as `fmt/40`, as checks identified them."""


def object_element(ark: str, local_ids: Iterable[str], original_name: str) -> bytes:
    """The object as a whole."""
    named = (("ARK", ark), *(("local", local_id) for local_id in local_ids))
    identifiers = "".join(_identified("objectIdentifier", kind, name) for kind, name in named)
    return f"""\
  <premis:object xsi:type="premis:intellectualEntity">
{identifiers}\
    {_line("originalName", original_name or "(:unas)")}
  </premis:object>
""".encode()


def _identified(role: str, kind: str, value: str) -> str:
    """An element `role` with its type and value, as objectIdentifierType and objectIdentifierValue."""
    return f"""\
    <premis:{role}>
      {_line(f"{role}Type", kind)}
      {_line(f"{role}Value", value)}
    </premis:{role}>
"""


def file_element(ark: str, of: PremisFile) -> bytes:
    """The file's element, as one text with few calls, because an object may have 100,000 files."""
    object_id = _escaped(ark)
    declared = _fixity(of.declared, "depositor") if of.declared else ""
    return f"""\
  <premis:object xsi:type="premis:file">
    <premis:objectIdentifier>
      <premis:objectIdentifierType>ARK</premis:objectIdentifierType>
      <premis:objectIdentifierValue>{object_id}/{_escaped(of.identifier)}</premis:objectIdentifierValue>
    </premis:objectIdentifier>
    <premis:objectCharacteristics>
{_fixity(of.digest, PROGRAM)}{declared}\
      <premis:size>{of.size}</premis:size>
      <premis:format>
        <premis:formatDesignation>
          {_line("formatName", of.mime_type)}
        </premis:formatDesignation>
      </premis:format>
{"".join(map(_registered, of.formats))}\
    </premis:objectCharacteristics>
    {_line("originalName", of.name)}
    <premis:relationship>
      <premis:relationshipType>structural</premis:relationshipType>
      <premis:relationshipSubType>is part of</premis:relationshipSubType>
      <premis:relatedObjectIdentifier>
        <premis:relatedObjectIdentifierType>ARK</premis:relatedObjectIdentifierType>
        <premis:relatedObjectIdentifierValue>{object_id}</premis:relatedObjectIdentifierValue>
      </premis:relatedObjectIdentifier>
    </premis:relationship>
  </premis:object>
""".encode()


def without_files(document: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a document of ours, except those of `file_element`: most lines, and slow to parse."""
    inside = False
    for line in document:
        inside = inside or line.startswith(b'  <premis:object xsi:type="premis:file">')
        if not inside:
            yield line
        elif b"</premis:object>" in line:  # text has no such tag: it is escaped
            inside = False


_PUID = re.compile(r"(x-)?fmt/[0-9]{1,6}")


def formats(event: str, codes: Iterable[str]) -> tuple[str, ...]:
    """Those of the codes that are of PRONOM, if the event identified formats."""
    if event != FORMAT_IDENTIFICATION:
        return ()
    return tuple(dict.fromkeys(code for code in codes if _PUID.fullmatch(code)))


@lru_cache(maxsize=256)
def _registered(code: str) -> str:
    return f"""\
      <premis:format>
        <premis:formatRegistry>
          <premis:formatRegistryName>PRONOM</premis:formatRegistryName>
          <premis:formatRegistryKey>{code}</premis:formatRegistryKey>
        </premis:formatRegistry>
      </premis:format>
"""


def _fixity(digest: Digest, originator: str) -> str:
    return f"""\
      <premis:fixity>
        <premis:messageDigestAlgorithm>{_algorithm(digest.algorithm)}</premis:messageDigestAlgorithm>
        <premis:messageDigest>{digest.value}</premis:messageDigest>
        <premis:messageDigestOriginator>{originator}</premis:messageDigestOriginator>
      </premis:fixity>
"""


@cache
def _algorithm(name: str) -> str:
    return name.upper().replace("SHA", "SHA-")


def _line(name: str, text: str, attributes: str = "") -> str:
    start = f"<premis:{name}{attributes}"
    return f"{start}>{_escaped(text)}</premis:{name}>" if text else f"{start} />"


def _escaped(text: str) -> str:
    return escape(clean(text))


def event_element(ark: str, of: ObjectEvent) -> bytes:
    agent_type, agent = of.agent_name
    code = _CODES.get(of.type)
    authority = f' authority="eventType" authorityURI="{_VOCABULARY}" valueURI="{_VOCABULARY}/{code}"'
    detail = f"""\
      <premis:eventOutcomeDetail>
        {_line("eventOutcomeDetailNote", of.note)}
      </premis:eventOutcomeDetail>
"""
    return f"""\
  <premis:event>
{_identified("eventIdentifier", PROGRAM, of.identifier)}\
    {_line("eventType", of.type, authority if code else "")}
    <premis:eventDateTime>{of.at.astimezone(UTC).isoformat(timespec="milliseconds")}</premis:eventDateTime>
    <premis:eventDetailInformation>
      {_line("eventDetail", of.detail)}
    </premis:eventDetailInformation>
    <premis:eventOutcomeInformation>
      {_line("eventOutcome", of.outcome)}
{detail if of.note else ""}\
    </premis:eventOutcomeInformation>
    <premis:linkingAgentIdentifier>
      <premis:linkingAgentIdentifierType>{agent_type}</premis:linkingAgentIdentifierType>
      {_line("linkingAgentIdentifierValue", agent)}
      {_line("linkingAgentRole", "authorizer" if of.by_person else "executing program")}
    </premis:linkingAgentIdentifier>
{_identified("linkingObjectIdentifier", "ARK", ark)}\
  </premis:event>
""".encode()


def program_element() -> bytes:
    return _agent((PROGRAM, PROGRAM), PROGRAM, "software", _release())


def agent_element(of: ObjectEvent) -> bytes:
    """The agent of an event: arkline, one of its processes or users by name, a check, or a person."""
    if of.agent_name == (PROGRAM, PROGRAM):
        return program_element()
    return _agent(of.agent_name, of.agent, "person" if of.by_person else "software", of.agent_version)


def person_element(name: str) -> bytes:
    """The submitter."""
    return _agent(("submitter", name), name, "person")


@lru_cache(maxsize=64)  # the agent is the same for all objects of a submitter
def _agent(identifier: tuple[str, str], name: str, agent_type: str, release: str = "") -> bytes:
    version = f"    {_line('agentVersion', release)}\n" if release else ""
    return f"""\
  <premis:agent>
{_identified("agentIdentifier", *identifier)}\
    {_line("agentName", name)}
    {_line("agentType", agent_type)}
{version}\
  </premis:agent>
""".encode()


@cache
def _release() -> str:
    return version("arkline")


NAME = "mrt-premis.xml"

ASSIGNED = "assigned to the object by arkline"
"""The detail of an `identifier assignment` event for an ARK that the depositor did not give."""

UNCHANGED = "that of the object since an earlier version"
"""The same for a version of an object that had the ARK before, whoever chose it."""

NONE_DECLARED: Mapping[str, Digest] = {}


def pieces(  # noqa: PLR0913 - the facts of one object
    job: Job,
    ark: str,
    files: Iterable[ContentFile],
    checks: Iterable[str],
    local_id: tuple[str, ...] | None = None,
    declared: Mapping[str, Digest] = NONE_DECLARED,
    names: str = "",
    runs: Iterable[CheckRun] = (),
    *,
    later: bool = False,
) -> Iterator[bytes]:
    """The document in pieces: the object and its files, the events up to storage, and the agents.

    `job` has all its identifiers. `checks`: a sentence for every successful validation. `local_id`: the local
    ids of the object, if it has more than the job. `declared`: the depositor's digests by path.
    `names`: the names whose encoding the container does not declare, with the assumed encoding and the bytes.
    `runs`: the checks of the deposit. `later`: the object has an earlier version.
    """
    runs = tuple(runs)
    identified = _identified_formats(runs)
    given = job.configuration
    how = ASSIGNED if job.identifiers.assigned else "given by the depositor"
    yield BEGIN
    local_ids = job.identifiers.local_id if local_id is None else local_id
    yield object_element(ark, local_ids, given.payload_name)
    for file in files:
        yield file_element(ark, _file(file, declared.get(file.path), identified.get(file.path, ())))
    agents = {}
    of_job = (
        replace(event, identifier=f"{job.jid}-{number:02d}")
        for number, event in enumerate(_events(job, ark, checks, names, UNCHANGED if later else how), 1)
    )
    of_runs = (event for run in runs for event in check_events(job.jid, None, CheckSummary.of(run)))
    for event in (*of_job, *of_runs):
        agents[event.agent_name] = agent_element(event)
        yield event_element(ark, event)
    yield from agents.values()
    if given.submitter:
        yield person_element(given.submitter)
    yield END


def _identified_formats(runs: Iterable[CheckRun]) -> dict[str, tuple[str, ...]]:
    """Path in the object -> formats, by the last run of each check."""
    last = {run.check: run for run in sorted(runs, key=lambda run: run.at)}
    by_path: dict[str, tuple[str, ...]] = {}
    for run in last.values():
        for finding in run.findings:
            if codes := formats(run.event, (finding.code,)):
                path = f"{PRODUCER}{finding.path}"
                by_path[path] = tuple(dict.fromkeys((*by_path.get(path, ()), *codes)))
    return by_path


_WHEN = {
    Stage.DOWNLOADED: "before the version was stored",
    Stage.STORED: "after the version was stored",
    Stage.RECORDED: "after the version was entered in the inventory",
}


def check_events(jid: str, version: int | None, of: CheckSummary) -> Iterator[ObjectEvent]:
    """A run of a check over the files that the job deposited, and the decision to keep what it found.

    The same in every document that has them.
    """
    yield _check_event(jid, version, of)
    if (decision := of.overruled) is not None:
        yield ObjectEvent(
            identifier=f"{jid}-{of.check}-overruled-{decision.at.astimezone(UTC).isoformat()}",
            type=APPRAISAL,
            at=decision.at,
            outcome="overruled",
            version=version,
            detail=f"what {of.check} {of.version} found in the deposited files, to be stored all the same",
            note=decision.reason,
            agent=decision.by,
            by_person=True,
        )


def _check_event(jid: str, version: int | None, of: CheckSummary) -> ObjectEvent:
    not_fine = of.found + of.unchecked
    lines = [f"{of.fine:,} fine, {of.found:,} found, {of.unchecked:,} not checked"]
    if of.overruled is not None:
        by, at, reason = of.overruled.by, of.overruled.at, of.overruled.reason
        lines.append(f"overruled by {by} at {at.isoformat(timespec='seconds')}: {reason}")
    for finding in of.findings:
        what = "; ".join(filter(None, (finding.code, finding.message)))
        lines.append(f"{finding.path}: {finding.verdict}" + (f" ({what})" if what else ""))
    if len(of.findings) == SHOWN_FINDINGS and not_fine > SHOWN_FINDINGS:
        lines.append(f"and further findings: the first {SHOWN_FINDINGS} are listed")
    return ObjectEvent(
        identifier=f"{jid}-{of.check}-{of.stage}-{of.at.astimezone(UTC).isoformat()}",
        type=of.event,
        at=of.at,
        outcome=of.worst,
        version=version,
        detail=f"the deposited files, checked by {of.check} {of.version} {_WHEN[of.stage]}",
        note="\n".join(lines),
        agent=of.check,
        agent_version=of.version or "unknown",
    )


def _file(file: ContentFile, declared: Digest | None, identified: tuple[str, ...]) -> PremisFile:
    return PremisFile(
        identifier=file.path,
        name=file.path.partition("/")[2],
        size=file.size,
        mime_type=file.mime_type,
        digest=Digest(algorithm=OF_RECORD, value=file.sha512),
        declared=declared,
        formats=identified,
    )


def _events(job: Job, ark: str, checks: Iterable[str], names: str, how: str) -> Iterator[ObjectEvent]:
    """The events in order, including resolved failures; without identifiers. `how` the object got its ARK."""
    previous = JobState.PENDING
    for entry in job.history:
        if entry.event in _REVIEWED:
            yield _review(entry)
        elif entry.event in FAILING:
            yield _happened("ingestion", entry.at, f"the work of state {previous}", "failure", entry.message)
        if entry.event in STEP_DONE and previous is JobState.DOWNLOADING:
            yield from _download_events(job, entry, names)
        previous = entry.state
    at = max((entry.at for entry in job.history), default=job.configuration.submitted_at)
    for check in checks:
        yield _happened("validation", at, check, "valid")
    local_ids = "".join(f"; local id {name}" for name in job.identifiers.local_id)
    yield _happened("identifier assignment", at, f"{ark}, {how}{local_ids}")
    given = job.configuration
    yield _happened(
        "ingestion",
        at,
        f"{given.submission_mode} by job {job.jid} of batch {job.bid}, profile {given.profile_name}",
    )


_REVIEWED: Mapping[Event | None, str] = {Event.APPROVE: "approved", Event.REJECT: "rejected"}


def _review(entry: HistoryEntry) -> ObjectEvent:
    """The decision about a job in review; the message of a rejection is its reason."""
    decision = _happened(
        APPRAISAL,
        entry.at,
        "the deposited files, reviewed before they were stored",
        _REVIEWED[entry.event],
        entry.message if entry.event is Event.REJECT else entry.reason,
    )
    return replace(decision, agent=entry.by, by_person=True) if entry.by else decision


def _happened(kind: str, at: datetime, detail: str, outcome: str = "success", note: str = "") -> ObjectEvent:
    return ObjectEvent("", kind, at, outcome, None, detail, note)


def _download_events(job: Job, entry: HistoryEntry, names: str) -> Iterator[ObjectEvent]:
    """The events of downloading, dated by the move out of that state."""
    given = job.configuration
    yield _happened("transfer", entry.at, given.payload_name or "the payload", note=entry.message)
    yield _happened(
        "fixity check", entry.at, "all declared sizes and digests, compared while the bytes were received"
    )
    if given.payload_type is PayloadType.CONTAINER:
        yield _happened("unpacking", entry.at, given.payload_name or "the container", note=names)
    yield _happened(
        "message digest calculation", entry.at, f"{OF_RECORD} of every file, computed while it was written"
    )
