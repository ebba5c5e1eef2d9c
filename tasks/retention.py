"""Completed batches are deleted from ZooKeeper after the retention time; the archive keeps their records."""

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.inventory.archive import archive_batch, archive_jobs
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.records import Batch
from pipeline.states import BatchState, Event
from pipeline.steps.context import Clients
from tasks.logs import log
from tasks.reports import compose
from zkstate import batches, deletion, listings, views
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
