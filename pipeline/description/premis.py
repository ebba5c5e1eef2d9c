"""PREMIS 3.0 of a version: its files, and the events of the object up to its storage, from the job's history.

Rule: all dates come from the record. The work of a state has the date of the job's move out of that state,
processing has the date of the move into it; so a repeated attempt writes the same bytes. Later events are in
the inventory (`pipeline/preservation/events.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pipeline.description import premis_xml
from pipeline.description.premis_xml import PremisEvent, PremisFile
from pipeline.fixity import OF_RECORD, ContentFile, Digest
from pipeline.records import HistoryEntry, Job, PayloadType
from pipeline.states import Event, JobState

NAME = "mrt-premis.xml"

ASSIGNED = "assigned to the object by arkline"
"""The detail of an `identifier assignment` says so of an ARK that the depositor did not give."""

NONE_DECLARED: Mapping[str, Digest] = {}


def pieces(  # noqa: PLR0913 - the facts of one object
    job: Job,
    ark: str,
    files: Iterable[ContentFile],
    checks: Iterable[str],
    local_id: tuple[str, ...] | None = None,
    declared: Mapping[str, Digest] = NONE_DECLARED,
    names: str = "",
) -> Iterator[bytes]:
    """The document piece by piece: the object and its files, the events up to storage, and the agents.

    `job` has all its identifiers. `checks`: a sentence for every successful validation. `local_id`: the local
    ids of the object, if there are more than the job's. `declared`: the depositor's digests by path.
    `names`: the encodings as which names were read that a container does not mark, and their bytes.
    """
    given = job.configuration
    yield premis_xml.BEGIN
    local_ids = job.identifiers.local_id if local_id is None else local_id
    yield premis_xml.entity(ark, local_ids, given.payload_name)
    for file in files:
        yield premis_xml.file(ark, _file(file, declared.get(file.path)))
    for number, event in enumerate(_events(job, ark, checks, names), 1):
        yield premis_xml.event(ark, replace(event, identifier=f"{job.jid}-{number:02d}"))
    yield premis_xml.program()
    if given.submitter:
        yield premis_xml.person(given.submitter)
    yield premis_xml.END


def _file(file: ContentFile, declared: Digest | None) -> PremisFile:
    return PremisFile(
        identifier=file.path,
        name=file.path.partition("/")[2],
        size=file.size,
        mime_type=file.mime_type,
        digest=Digest(algorithm=OF_RECORD, value=file.sha512),
        declared=declared,
    )


def _events(job: Job, ark: str, checks: Iterable[str], names: str) -> Iterator[PremisEvent]:
    """In the order in which they happened, including failures that were resolved; without identifiers."""
    previous = JobState.PENDING
    for entry in job.history:
        if entry.event is Event.FAIL:
            yield PremisEvent(
                "ingestion", entry.at, f"the work of state {previous}", "failure", entry.message
            )
        if entry.event is Event.SUCCEED and previous is JobState.DOWNLOADING:
            yield from _download_events(job, entry, names)
        previous = entry.state
    at = max((entry.at for entry in job.history), default=job.configuration.submitted_at)
    for check in checks:
        yield PremisEvent("validation", at, check, "valid")
    how = ASSIGNED if job.identifiers.assigned else "given by the depositor"
    local_ids = "".join(f"; local id {name}" for name in job.identifiers.local_id)
    yield PremisEvent("identifier assignment", at, f"{ark}, {how}{local_ids}")
    given = job.configuration
    yield PremisEvent(
        "ingestion",
        at,
        f"{given.submission_mode} by job {job.jid} of batch {job.bid}, profile {given.profile_name}",
    )


def _download_events(job: Job, entry: HistoryEntry, names: str) -> Iterator[PremisEvent]:
    """The events of downloading, dated by the move out of that state."""
    given = job.configuration
    yield PremisEvent("transfer", entry.at, given.payload_name or "the payload", note=entry.message)
    yield PremisEvent(
        "fixity check", entry.at, "all declared sizes and digests, compared while the bytes were received"
    )
    if given.payload_type is PayloadType.CONTAINER:
        yield PremisEvent("unpacking", entry.at, given.payload_name or "the container", note=names)
    yield PremisEvent(
        "message digest calculation", entry.at, f"{OF_RECORD} of every file, computed while it was written"
    )
