"""Removes what is no longer needed: completed batches, working directories, uploads.

The archive keeps the record and the report of each batch. Failed jobs give up working storage that a waiting
job needs.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.inventory.archive import archive_batch, archive_jobs, find_jobs
from pipeline.inventory.sql import SqlInventory
from pipeline.names import NotAnUpload, is_upload, parse_upload_url
from pipeline.notify.batch_report import BatchReport, JobOutcome, compose_report
from pipeline.outcome import ServiceDown
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.records import Batch, Job, number_of
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, Bucket, Event, JobState, Room
from pipeline.steps.context import Clients
from pipeline.uploads import writing
from pipeline.working_storage import capacity
from pipeline.working_storage.workspace import REMOVED, Holder, Workspace, folder_of, plan, remove_renamed
from tasks.after_move import remove_if_empty
from tasks.logs import log
from tasks.worker_context import WorkerContext
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session
from zkstate.errors import Busy, Corrupt, Missing, Stale
from zkstate.fleet import counters
from zkstate.queue import listings, queue
from zkstate.queue.listings import KeptBatch, Unreadable
from zkstate.record import batches, deletion, jobs
from zkstate.record.batches import BatchMove
from zkstate.record.journal import Stamp
from zkstate.record.record import Lock, lock_path


def remove_old_batches(
    session: Session,
    clock: ServerClock,
    clients: Clients,
    stamp: Stamp | None = None,
    attempt: Attempt = UNATTENDED,
) -> None:
    """Archive and remove completed batches older than the retention time; finish interrupted removals.

    `stamp`: the operator who asked for it; None for scheduled work. The attempt is checked before each batch.
    """
    who = stamp or Stamp(by="retention")
    by, reason = who.by, who.reason or "retention time is over"
    delete = BatchMove(
        Event.DELETE, by, message=reason, lock=Lock.FREE, via=who.via, request_id=who.request_id
    )
    for bid in _due(session, clock, clients):
        attempt.check()
        try:
            batch = batches.load(session, bid)
            if batch.status.status is BatchState.COMPLETED:
                archive(session, batch, clients, by=by, reason=reason)
                batch = batches.move(session, batch, delete)
            if batch.status.status is BatchState.DELETED:
                deletion.remove_batch(session, batch)
                log().info("batch removed", bid=bid)
        except (Stale, Busy, Missing):
            continue
        except Corrupt as error:
            log().error("batch not removed", bid=bid, error=str(error))


def _due(session: Session, clock: ServerClock, clients: Clients) -> Iterator[str]:
    """The batches whose removal was interrupted, and those that are due, oldest first.

    Batches are numbered as they are created, and none is due before the shortest retention after that: they
    are read until a page of them in a row is too young. A repair may have created the nodes of one anew.
    """
    for row in listings.kept_batches(session, listings.open_batches(session)):
        if isinstance(row, KeptBatch) and row.status.status is BatchState.DELETED:
            yield row.bid
    default, profiles = clients.settings.retention, clients.profiles
    known: Mapping[str, float] = {}
    with suppress(ProfileError):
        known = {name: retention_of(name, profiles, default) for name in profiles.names()}
    shortest, young = min((default, *known.values())), 0
    for row in listings.kept_batches(session, listings.all_batches(session)):
        if isinstance(row, Unreadable):
            log().error("batch not removed", bid=row.id, error=row.problem)
            continue
        now = clock.now_ms() / 1000
        retention = known.get(row.submission.profile_name, default)
        if row.status.status is BatchState.COMPLETED and now - row.written > retention:
            yield row.bid
        young = young + 1 if now - row.created <= shortest else 0
        if young == listings.READ_PAGE:
            return


def retention_of(profile_name: str, profiles: Profiles, default: float) -> float:
    """Seconds that a completed batch stays in ZooKeeper: the retention of its collection, or `default`."""
    try:
        days = profiles.get(profile_name).retention_days
    except ProfileError:
        days = None
    return default if days is None else days * 86400.0


def archive(session: Session, batch: Batch, clients: Clients, *, by: str, reason: str) -> None:
    """Store the batch, its report and every job's timeline in SQL."""
    inventory = clients.inventory
    members = archive_jobs(inventory, listings.load_batch(session, batch.bid), by=by, reason=reason)
    report = compose(session, batch, members, inventory)
    archive_batch(inventory, batch, by=by, reason=reason, report=report)


def compose(
    session: Session, batch: Batch, members: Iterable[Job | JobOutcome], inventory: SqlInventory
) -> BatchReport:
    """The report of the jobs that exist, and of those that were deleted, with their tombstones."""
    gone = batches.jobs_in(session, batch.bid, Bucket.DELETED)
    tombstones = {job.jid: job for job in find_jobs(inventory, gone)}
    return compose_report(batch, members, {jid: tombstones.get(jid) for jid in gone})


_WITH_FOLDER = (*JOB.where(lambda facts: facts.holds_space), JobState.FAILED)
"""States whose jobs usually have a folder; the queue of pending jobs is too long to be listed for this."""


def orphans(session: Session, working: Path) -> list[Path]:
    """The working directories that no job needs.

    The folders are listed first, because a job's record is created before its folder. A folder whose number
    this record has never assigned is kept: it belongs to another record, or the settings name the wrong
    record. Jobs in progress and failed ones, which may have a folder, are known from the queues; every other
    job is read.
    """
    folders = [
        Path(job.path) for batch in _folders(working, "bid") for job in _folders(Path(batch.path), "jid")
    ]
    if not folders:
        return []
    queued = {jid for state in _WITH_FOLDER for jid in queue.queued(session, state)}
    ended = ended_jobs(session)
    return [folder for folder in folders if folder.name not in queued and ended(folder.name)]


def ended_jobs(session: Session) -> Callable[[str], bool]:
    """A test for a JID: this record assigned the number, and the job is deleted or cleaned up."""
    last = counters.last(session, "job")

    def ended(jid: str) -> bool:
        if not 0 < number_of(jid) <= last:
            return False
        try:
            job = jobs.load(session, jid)
        except Missing:
            return not listings.job_exists(session, jid)
        except Corrupt:
            return False
        return job.status.status is JobState.COMPLETED and not queue.has_entry(session, job)

    return ended


def _folders(folder: Path, prefix: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.name.startswith(prefix) and entry.is_dir()]
    except FileNotFoundError:  # a batch's folder is removed with that of its last job
        return []


DAY = 86400.0


def remove_unneeded_uploads(session: Session, settings: Settings) -> None:
    """Remove the uploads that are older than ARKLINE_UPLOAD_DAYS, except those of unfinished batches.

    A failed batch is unfinished: its jobs may be resumed. While a batch cannot be read, nothing is removed.
    """
    try:
        removed = writing.clean_up(
            settings.uploads_folder, settings.upload_days * DAY, lambda: _needed(session)
        )
    except Corrupt as unreadable:
        log().warning("uploads not removed", message=str(unreadable))
        return
    except ServiceDown as fault:
        log().warning("uploads not removed", message=fault.message)
        return
    for upload in removed:
        log().info("upload removed", upload=upload)


def _needed(session: Session) -> frozenset[str]:
    """The ids of the uploads of unfinished batches; Corrupt if a batch cannot be read."""
    needed = set()
    for row in listings.kept_batches(session, listings.all_batches(session)):
        if isinstance(row, Unreadable):
            raise Corrupt(row.problem)
        if upload := _needed_by(row):
            needed.add(upload)
    return frozenset(needed)


def _needed_by(batch: KeptBatch) -> str | None:
    url = batch.submission.payload_url
    if not is_upload(url) or batch.status.status in (BatchState.COMPLETED, BatchState.DELETED):
        return None
    try:
        return parse_upload_url(url).upload
    except NotAnUpload:
        return None


BY = "provisioning"
"""The name under which failed jobs lose their reservations and their content."""


def make_room(
    context: WorkerContext,
    session: Session,
    reservations: Mapping[str, int],
    jid: str,
    needed: int,
    line: Mapping[str, int],
) -> bool:
    """Have other jobs give up the working storage that job `jid` lacks; False if they hold too little.

    Failed jobs give up first. If no job will free any by itself, the jobs behind this one in the `line` (JID
    -> place) lose their content, the last first: else resumed jobs could wait for each other for ever.
    """
    occupied = capacity.occupancy(context.settings)
    outstanding = occupied.outstanding(reservations, except_for=jid)
    lacking = max(0, needed - occupied.on_disk.get(jid, 0))
    limit = occupied.limit(context.settings.working_threshold)
    behind = [other for other in occupied.on_disk if line.get(other, 0) > line[jid]]
    behind.sort(key=line.__getitem__, reverse=True)
    holders = _holders(session, reservations, outstanding, dict(occupied.on_disk), behind)
    planned = plan(occupied.used + sum(outstanding.values()) + lacking - limit, list(holders))
    if planned is None:
        return False
    for holder in planned.reservations:
        _yield(session, holder)
    for holder in planned.contents:
        _empty(context, session, holder)
    if planned.contents:
        capacity.measure_again()
    return True


_FREEING = frozenset(
    JOB.where(lambda it: (it.holds_space and it.task is not None) or (it.ended and not it.failed))
)
"""States in which a job frees its working storage without a person."""


def _holders(
    session: Session,
    reservations: Mapping[str, int],
    outstanding: dict[str, int],
    on_disk: dict[str, int],
    behind: Sequence[str],
) -> Iterator[Holder]:
    """The failed jobs that occupy room, the oldest failure first; then `behind`, if no job frees any."""
    names = sorted({*reservations, *on_disk} - {capacity.OUTSIDE_OF_JOBS})
    known = jobs.statuses(session, names)
    for jid, status in known.items():
        if status.status is JobState.FAILED:
            content = 0 if status.room is Room.EMPTY else on_disk.get(jid, 0)
            yield Holder(jid, outstanding.get(jid, 0), content)
    if _FREEING.isdisjoint(status.status for status in known.values()):
        yield from (Holder(jid, 0, on_disk[jid]) for jid in behind)


def _yield(session: Session, jid: str) -> None:
    try:
        jobs.yield_reservation(session, jid, BY)
    except (Stale, Busy, Missing, Corrupt):
        return  # it was resumed or deleted meanwhile
    log().warning("a failed job gave up its reservation", jid=jid)


_STORED = frozenset(r.source for r in JOB.table if r.event is Event.SUCCEED and JOB.facts[r.target].stored)
"""The steps after which a job is stored: recording reads the lists in its working directory. Any other job
downloads all of it again."""


def _content(folder: Path, *, stored: bool) -> list[Path]:
    """The files and folders to remove; of a stored job, only the folders with nearly all bytes."""
    with suppress(FileNotFoundError):
        large = {path.name for path in Workspace(folder, "").content}
        return [
            path for path in folder.iterdir() if not stored or path.name in large or path.suffix == REMOVED
        ]
    return []


def _empty(context: WorkerContext, session: Session, jid: str) -> None:
    guard = AttemptGuard(session, context.stopping)
    locked = False
    try:
        with jobs.emptying(session, jid, BY) as job:
            locked = True
            guard.watch_lock(lock_path(job))
            folder = folder_of(job, context.settings.working)
            stored = job.status.last_successful_status in _STORED
            for content in _content(folder, stored=stored):
                guard.check()
                remove_renamed(content, job.status.op)
            remove_if_empty(folder)
            remove_if_empty(folder.parent)
    except BaseException as error:
        if locked:
            context.drop_session()  # a lock must not outlive the work that it protects
        elif isinstance(error, Stale | Busy | Missing | Corrupt):
            return  # it was resumed or deleted meanwhile
        raise
    log().warning("removed the content of a job that does not run", jid=jid)
