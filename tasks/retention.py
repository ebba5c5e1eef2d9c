"""What leaves the site when nobody needs it any more: completed batches, working directories, uploads.

The archive keeps the records of the batches, each with its report.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.inventory.archive import archive_batch, archive_jobs, find_jobs
from pipeline.inventory.sql import SqlInventory
from pipeline.notify.report.compose import BatchReport, JobOutcome, compose_report
from pipeline.outcome import ServiceDown
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.records import Batch, Job, number_of
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, Bucket, Event, JobState
from pipeline.steps.context import Clients
from pipeline.upload_url import NotAnUpload, is_upload, parse_upload_url
from pipeline.uploads import removal
from tasks.logs import log
from zkstate import batches, counters, deletion, jobs, listings, queue, views
from zkstate.batches import BatchMove
from zkstate.errors import Busy, Corrupt, Missing, Stale
from zkstate.journal import Stamp
from zkstate.locks import ServerClock
from zkstate.record import Lock
from zkstate.session import Session


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
    for bid in listings.all_batches(session):
        attempt.check()
        try:
            batch = batches.load(session, bid)
            written = views.activity(session, batch).status_written
            age = clock.now_ms() / 1000 - written if written else 0.0
            retention = retention_of(
                batch.submission.profile_name, clients.profiles, clients.settings.retention
            )
            if batch.status.status is BatchState.COMPLETED and age > retention:
                archive(session, batch, clients, by=by, reason=reason)
                batch = batches.move(session, batch, delete)
            if batch.status.status is BatchState.DELETED:
                deletion.remove_batch(session, batch)
                log().info("batch removed", bid=bid)
        except (Stale, Busy, Missing):
            continue
        except Corrupt as error:
            log().error("batch not removed", bid=bid, error=str(error))


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
            return not views.job_exists(session, jid)
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


class UnreadableBatch(Exception):
    """It is not known which upload a batch needs."""


def remove_unneeded_uploads(session: Session, settings: Settings) -> None:
    """Remove the uploads that are older than ARKLINE_UPLOAD_DAYS, except those of unfinished batches.

    A failed batch is unfinished: its jobs may be resumed. While a batch cannot be read, nothing is removed.
    """
    try:
        removed = removal.clean_up(
            settings.uploads_folder, settings.upload_days * DAY, lambda: _needed(session)
        )
    except UnreadableBatch as unreadable:
        log().warning("uploads not removed", message=str(unreadable))
        return
    except ServiceDown as fault:
        log().warning("uploads not removed", message=fault.message)
        return
    for upload in removed:
        log().info("upload removed", upload=upload)


def _needed(session: Session) -> frozenset[str]:
    """The ids of the uploads of which batches were made that have not ended well."""
    needed = set()
    for bid in listings.all_batches(session):
        try:
            batch = batches.load(session, bid)
        except Missing:
            continue
        except Corrupt as damaged:
            raise UnreadableBatch(str(damaged)) from damaged
        if upload := _needed_by(batch):
            needed.add(upload)
    return frozenset(needed)


def _needed_by(batch: Batch) -> str | None:
    url = batch.submission.payload_url
    if not is_upload(url) or batch.status.status in (BatchState.COMPLETED, BatchState.DELETED):
        return None
    try:
        return parse_upload_url(url).upload
    except NotAnUpload:
        return None
