"""Working storage: which jobs reserve how much of it, and removing what no job needs."""

from operations.operator import Operator
from operations.wording import age
from pipeline.errors import UsageRefused
from pipeline.profiles.profile import Profiles
from pipeline.records import Record
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from pipeline.steps.clients import open_clients
from pipeline.working_storage.capacity import usage
from tasks.after_move import clean_up_completed, remove_folder
from tasks.orphan_folders import orphans
from tasks.retention import remove_old_batches, retention_of
from zkstate import listings, locks, queue, space, views
from zkstate.session import Session


class Reservation(Record):
    """Bytes of working storage that are reserved for a job."""

    jid: str
    bid: str = ""
    profile: str = ""
    state: JobState | None = None
    """None if there is no such job, which the audit reports."""
    bytes: int


class SpaceView(Record):
    """Bytes; `total` and `used` are None on a machine without working storage."""

    folder: str
    total: int | None = None
    used: int | None = None
    threshold: int
    """Percent of `total` that may be used or reserved."""
    reserved: int
    reservations: tuple[Reservation, ...]
    waiting: int
    """Jobs that wait for space."""


class CleanUp(Record):
    """The result of a clean-up, or of its dry run."""

    dry_run: bool
    jobs: int
    """Completed jobs whose clean-up a crash had interrupted."""
    batches: tuple[str, ...]
    """Batches that left ZooKeeper; the archive has what is known of them."""
    folders: tuple[str, ...]
    """Working directories that no job needs."""
    busy: bool = False
    """True if beat was removing batches at this moment, so that none was removed here."""


def space_view(session: Session, settings: Settings) -> SpaceView:
    reserved = space.reservations(session)
    rows = {row.jid: row for row in views.readable(views.job_rows(session, list(reserved)))}
    disk = usage(settings) if settings.working.is_dir() else None
    reservations = (
        Reservation(jid=jid, bid=row.bid, profile=row.profile, state=row.state, bytes=size)
        if (row := rows.get(jid))
        else Reservation(jid=jid, bytes=size)
        for jid, size in reserved.items()
    )
    return SpaceView(
        folder=str(settings.working),
        total=disk.total if disk else None,
        used=disk.used if disk else None,
        threshold=settings.working_threshold,
        reserved=space.promised(session).bytes,
        reservations=tuple(sorted(reservations, key=lambda reservation: -reservation.bytes)),
        waiting=queue.counts(session)[JobState.PROVISIONING],
    )


def clean_up(operator: Operator, *, older_than: float | None = None, dry_run: bool = False) -> CleanUp:
    """Do now what beat does regularly, and remove the working directories that no job needs.

    `older_than`: seconds that completed batches stay in ZooKeeper, instead of the settings' retention; the
    retention time of a collection's profile applies in any case.
    """
    operator.require("clean up working storage")
    working = operator.settings.working
    if not working.is_dir():
        raise UsageRefused(
            f"working storage {working} is not on this machine: run this where the workers run "
            "(ARKLINE_WORKING_STORAGE)"
        )
    session = operator.session
    retention = operator.settings.retention if older_than is None else older_than
    if dry_run:
        return CleanUp(
            dry_run=True,
            jobs=queue.counts(session)[JobState.COMPLETED],
            batches=_old_batches(operator, retention),
            folders=tuple(str(folder) for folder in orphans(session, working)),
        )
    cleaned = clean_up_completed(session)
    archived, busy = _remove_batches(operator, retention)
    folders = list(orphans(session, working))
    for number, folder in enumerate(folders, start=1):
        remove_folder(folder)
        operator.run.on_progress(number, len(folders))
    removed = tuple(str(folder) for folder in folders)
    return CleanUp(dry_run=False, jobs=cleaned, batches=archived, folders=removed, busy=busy)


def _old_batches(operator: Operator, retention: float) -> tuple[str, ...]:
    """The batches that would leave ZooKeeper now."""
    profiles = Profiles(operator.settings.profiles)
    rows = views.readable(views.batch_rows(operator.session, listings.all_batches(operator.session)))
    return tuple(
        row.bid
        for row in rows
        if row.status is BatchState.DELETED
        or (
            row.status is BatchState.COMPLETED
            and age(row.since) > retention_of(row.profile, profiles, retention)
        )
    )


def _remove_batches(operator: Operator, retention: float) -> tuple[tuple[str, ...], bool]:
    """The batches that were removed; True if beat was removing batches at the same moment."""
    session = operator.session
    clients = open_clients(operator.settings.model_copy(update={"retention": retention}))
    before = set(listings.all_batches(session))
    with locks.single_flight(session, "clean_up_batches") as clock:
        if clock is None:
            return (), True
        remove_old_batches(session, clock, clients)
    return tuple(sorted(before - set(listings.all_batches(session)))), False
