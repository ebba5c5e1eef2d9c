"""Who was promised how much of working storage, and tidying up in it."""

from operations.operator import Operator
from operations.wording import age
from pipeline.errors import UsageRefused
from pipeline.profiles.profile import Profiles
from pipeline.records import Record
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from pipeline.steps.clients import open_clients
from pipeline.working_storage.capacity import usage
from tasks.orphan_folders import orphans
from tasks.retention import remove_old_batches, retention_of
from zkstate import listings, locks, queue, space, views
from zkstate.session import Session


class Promise(Record):
    jid: str
    bid: str = ""
    profile: str = ""
    state: JobState | None = None
    """None if there is no such job, which `arkline audit` reports."""
    bytes: int


class SpaceView(Record):
    """Bytes. What a machine that does not see working storage cannot know is None."""

    folder: str
    total: int | None = None
    used: int | None = None
    threshold: int
    """Percent of `total` that may be used or promised."""
    promised: int
    promises: tuple[Promise, ...]
    waiting: int
    """Jobs that wait for space."""


class Tidied(Record):
    """What a clean-up did, or would do."""

    dry_run: bool
    jobs: int
    """Completed jobs whose cleaning a crash had interrupted."""
    batches: tuple[str, ...]
    """Batches that left ZooKeeper; what was known of them is in the archive."""
    folders: tuple[str, ...]
    """Working directories of jobs that are gone or completed."""
    busy: bool = False
    """True if beat is at it just now, so that batches were left to it."""


def space_view(session: Session, settings: Settings) -> SpaceView:
    held = space.reservations(session)
    known = {row.jid: row for row in views.readable(views.job_rows(session, list(held)))}
    disk = usage(settings) if settings.working.is_dir() else None
    promises = sorted(
        (
            Promise(jid=jid, bid=row.bid, profile=row.profile, state=row.state, bytes=size)
            if (row := known.get(jid))
            else Promise(jid=jid, bytes=size)
            for jid, size in held.items()
        ),
        key=lambda promise: -promise.bytes,
    )
    return SpaceView(
        folder=str(settings.working),
        total=disk.total if disk else None,
        used=disk.used if disk else None,
        threshold=settings.working_threshold,
        promised=space.promised(session).bytes,
        promises=tuple(promises),
        waiting=queue.counts(session)[JobState.PROVISIONING],
    )


def clean_up(operator: Operator, *, older_than: float | None = None, dry_run: bool = False) -> Tidied:
    """Do now what beat does from time to time, and remove the working directories that nobody needs.

    `older_than`: seconds that completed batches stay in ZooKeeper, instead of the settings' retention; the
    time that a collection's profile gives is kept in any case.
    """
    working = operator.settings.working
    if not working.is_dir():
        raise UsageRefused(
            f"working storage {working} is not on this machine: run this where the workers run "
            "(ARKLINE_WORKING_STORAGE)"
        )
    retention = operator.settings.retention if older_than is None else older_than
    unfinished = queue.counts(operator.session)[JobState.COMPLETED]
    if dry_run:
        old = _old_batches(operator, retention)
        folders = tuple(str(folder) for folder in orphans(operator.session, working))
        return Tidied(dry_run=True, jobs=unfinished, batches=old, folders=folders)
    from tasks.after_move import clean_up_completed, remove_folder

    done = clean_up_completed(operator.session)
    left, busy = _remove_batches(operator, retention)
    removed = []
    for folder in orphans(operator.session, working):
        remove_folder(folder)
        removed.append(str(folder))
    return Tidied(dry_run=False, jobs=done, batches=left, folders=tuple(removed), busy=busy)


def _old_batches(operator: Operator, retention: float) -> tuple[str, ...]:
    """The batches that would leave ZooKeeper now."""
    profiles = Profiles(operator.settings.profiles)
    found = views.readable(views.batch_rows(operator.session, listings.all_batches(operator.session)))
    return tuple(
        row.bid
        for row in found
        if row.status is BatchState.DELETED
        or (
            row.status is BatchState.COMPLETED
            and age(row.since) > retention_of(row.profile, profiles, retention)
        )
    )


def _remove_batches(operator: Operator, retention: float) -> tuple[tuple[str, ...], bool]:
    """The batches that are gone now; True if beat was removing some at the same moment."""
    session = operator.session
    clients = open_clients(operator.settings.model_copy(update={"retention": retention}))
    before = set(listings.all_batches(session))
    with locks.single_flight(session, "clean_up_batches") as clock:
        if clock is None:
            return (), True
        remove_old_batches(session, clock, clients)
    return tuple(sorted(before - set(listings.all_batches(session)))), False
