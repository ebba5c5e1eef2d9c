"""The objects of a batch for the depositor: what each is called, its ARK, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from operations.jobs.batch_view import tombstones
from operations.site import Site
from operations.visibility import archived_jobs
from pipeline.notify.batch_report import reported_archived, reported_deletion, reported_job
from pipeline.outcome import StepFailed
from pipeline.records import Batch, Job, Record
from pipeline.states import FailureKind, JobState
from zkstate.record import batches, jobs

if TYPE_CHECKING:
    from pipeline.inventory.archive import ArchivedBatch, ArchivedJob
    from pipeline.notify.batch_report import ReportedJob

Known: TypeAlias = "Job | ArchivedJob | str"
"""A job of the record or of the archive, or the id of a deleted one that has no tombstone."""


class DepositedObject(Record):
    """The names and texts are those of the batch's report."""

    jid: str
    name: str
    """Of the payload; empty if nothing is known of a deleted job any more."""
    title: str = ""
    ark: str | None = None
    local_id: tuple[str, ...] = ()
    files: int | None = None
    """Deposited files of the stored version; null if none is stored, or if the inventory does not answer."""
    state: JobState
    result: str
    """What became of the object, in words."""
    kind: FailureKind | None = None
    message: str = ""
    advice: str = ""
    remark: str = ""


class ObjectPage(Record):
    objects: tuple[DepositedObject, ...]
    next: str | None = None
    """The cursor of the next page; None on the last page."""


def objects_of(site: Site, batch: Batch | ArchivedBatch, limit: int, after: str | None = None) -> ObjectPage:
    """A page of the batch's objects in the order of their jobs, those that were deleted included."""
    return page_of(site, read_objects(site, batch, limit, after or ""), limit)


def read_objects(site: Site, batch: Batch | ArchivedBatch, limit: int, after: str) -> tuple[Known, ...]:
    """What is known of the batch's next `limit` objects, and of one more."""
    if isinstance(batch, Batch):
        return tuple(_in_record(site, batch.bid, limit + 1, after))
    return tuple(islice(archived_jobs(site, batch.bid, after), limit + 1))


def page_of(site: Site, known: Sequence[Known], limit: int) -> ObjectPage:
    files = _files_of(site, known[:limit])
    page = tuple(_object(one, files) for one in known[:limit])
    return ObjectPage(objects=page, next=page[-1].jid if len(known) > limit else None)


def _in_record(site: Site, bid: str, limit: int, after: str) -> Iterator[Known]:
    jids = [jid for jid in batches.all_jobs(site.session, bid) if jid > after][:limit]
    present = {job.jid: job for job in jobs.load_present(site.session, jids)}
    gone = tombstones(site, [jid for jid in jids if jid not in present])
    return (present.get(jid) or gone[jid] or jid for jid in jids)


def _files_of(site: Site, known: Iterable[Known]) -> dict[str, int]:
    """JID -> deposited files of its version, of the jobs whose version is recorded."""
    keys = {job.jid: job.configuration.key for job in known if not isinstance(job, str)}
    inventory = site.archive()
    if inventory is None or not keys:
        return {}
    try:
        return inventory.deposited_files(keys)
    except StepFailed:  # the page has the facts of the record without it
        return {}


def _object(known: Known, files: dict[str, int]) -> DepositedObject:
    if isinstance(known, Job):
        line = reported_job(known)
        result = _result(line, known.status.message if known.status.waits_for else "")
    else:
        line = reported_deletion(known, None) if isinstance(known, str) else reported_archived(known)
        result = _result(line)
    facts = {name: getattr(line, name) for name in DepositedObject.model_fields if hasattr(line, name)}
    return DepositedObject(**facts, files=files.get(line.jid), result=result)


_WAITING = {
    JobState.PENDING: "waiting: its turn has not come",
    JobState.HELD: "waiting: our staff hold it back",
    JobState.REVIEW: "waiting: our staff look at it before it is stored",
}


def _result(line: ReportedJob, waits_for: str = "") -> str:
    match line.state:
        case JobState.COMPLETED:
            return "stored"
        case JobState.FAILED:
            return f"not stored: {line.message or 'no message was recorded'}"
        case JobState.DELETED:
            return f"taken out by our staff: {line.message}" if line.message else "taken out by our staff"
        case state if waits_for:
            return f"waiting: {waits_for}"
        case state:
            return _WAITING.get(state) or f"in work: {state}"
