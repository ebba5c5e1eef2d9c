"""Working storage: how much of it each job reserves, and removal of what no job needs."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial

from operations.fleet.health import Space, space_now, waiting_for_space
from operations.run import UNWATCHED, Run
from operations.site import Site
from operations.visibility import require_fleet
from pipeline.attempt import Attempt, CheckedAttempt
from pipeline.errors import UsageRefused
from pipeline.principal import Principal, Role
from pipeline.records import Record, age
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, FailureKind, JobState
from pipeline.steps.context import open_clients
from pipeline.working_storage.capacity import holders, occupancy_now
from tasks.after_move import clean_up_completed, remove_folder
from tasks.retention import orphans, remove_old_batches, remove_unneeded_uploads, retention_of
from tasks.stores import expected_of
from zkstate.connection import locks
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.queue import listings, queue
from zkstate.record import space
from zkstate.record.journal import JournalAction, Stamp


class GivesBack(StrEnum):
    """When a job's part of working storage is free again. The codes are stable."""

    AT_ITS_END = "at-its-end"
    """The job is on its way; once it has ended, a clean-up follows at once."""
    AFTER_REVIEW = "after-review"
    """The job waits until an operator approves or rejects it."""
    WHEN_NEEDED = "when-needed"
    """A failed job keeps its part until other jobs need the room, or until it is deleted."""
    CLEAN_UP = "clean-up"
    """The job needs nothing more: beat or an operator cleans up."""
    NEVER = "never"
    """There is a reservation, but no job: the audit reports it."""


class Reservation(Record):
    """A job's part of working storage: `bytes` are reserved for it; 0 if it has no reservation."""

    jid: str
    bid: str = ""
    profile: str = ""
    state: JobState | None = None
    """None if there is no such job, which the audit reports."""
    bytes: int
    on_disk: int | None = None
    """Bytes of its working directory; None where working storage is not, or is not measured yet."""
    kind: FailureKind | None = None
    """Of its failure. A failed job gives up its reservation and its content when others need the room."""
    since: datetime | None = None
    """Since when the job is in this state."""
    gives_back: GivesBack
    usual: float | None = None
    """Seconds in which 95 % of the jobs left this state lately, if a web process says so; not of a job that
    waits for room."""


class SpaceView(Space):
    folder: str
    reservations: tuple[Reservation, ...]


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


def space_view(site: Site, principal: Principal, usual: Mapping[JobState, float] | None = None) -> SpaceView:
    """Working storage; `usual`: the usual stays in working states, as a board knows them."""
    require_fleet(principal, "see working storage")
    session, settings = site.session, site.settings
    waiting = waiting_for_space(session, queue.counts(session))
    return SpaceView(
        **dict(space_now(site, waiting)),
        folder=str(settings.working),
        reservations=tuple(_reservations(session, settings, usual or {})),
    )


def _reservations(
    session: Session, settings: Settings, usual: Mapping[JobState, float]
) -> Iterator[Reservation]:
    """The jobs that reserve or use working storage, largest first."""
    reserved = space.reservations(session)
    disk = occupancy_now(settings) if settings.working.is_dir() else None
    held = holders(reserved, disk.on_disk if disk else {})
    rows = {row.jid: row for row in listings.readable(listings.job_rows(session, list(held)))}
    for jid in held:
        row, size = rows.get(jid), reserved.get(jid, 0)
        part = partial(Reservation, bytes=size, on_disk=disk.on_disk.get(jid, 0) if disk else None)
        if row is None:
            yield part(jid=jid, gives_back=GivesBack.NEVER if size else GivesBack.CLEAN_UP)
        else:
            # Who waits for room waits as long as others hold it, however short that stay usually is.
            stay = None if row.state is JobState.PROVISIONING else usual.get(row.state)
            yield part(**dict(row), gives_back=_gives_back(row.state), usual=stay)


def _gives_back(state: JobState) -> GivesBack:
    if state is JobState.FAILED:
        return GivesBack.WHEN_NEEDED
    if state is JobState.REVIEW:
        return GivesBack.AFTER_REVIEW
    return GivesBack.CLEAN_UP if JOB.facts[state].ended else GivesBack.AT_ITS_END


def clean_up(
    site: Site,
    principal: Principal,
    *,
    reason: str = "",
    older_than: float | None = None,
    dry_run: bool = False,
    run: Run = UNWATCHED,
) -> CleanUp:
    """Do now what beat does regularly, and remove working directories that no job needs.

    `older_than`: seconds that completed batches stay in ZooKeeper, instead of the settings' retention; a
    retention set in a collection's profile still applies. Stopped; calling it again does the rest.
    """
    principal.require(Role.OPERATOR, "clean up working storage")
    session, working = site.session, site.settings.working
    if not working.is_dir():
        raise UsageRefused(
            f"working storage {working} is not on this machine, or no job has used it yet: run this "
            "where the workers run (ARKLINE_WORKING_STORAGE)"
        )
    retention = site.settings.retention if older_than is None else older_than
    if dry_run:
        return CleanUp(
            dry_run=True,
            jobs=queue.counts(session)[JobState.COMPLETED],
            batches=_old_batches(site, retention),
            folders=tuple(str(folder) for folder in orphans(session, working)),
        )
    stopped = "the clean-up was stopped: what it removed is removed, and a further clean-up does the rest"
    attempt = CheckedAttempt(lambda: run.check(stopped))
    stamp = Stamp.of(principal, reason)
    holds.record_action(session, JournalAction.CLEAN_UP, stamp)
    cleaned = clean_up_completed(session, working, attempt)
    archived, busy = _remove_batches(site, stamp, retention, attempt)
    folders = list(orphans(session, working))
    for number, folder in enumerate(folders, start=1):
        attempt.check()
        remove_folder(folder)
        run.on_progress(number, len(folders))
    removed = tuple(str(folder) for folder in folders)
    return CleanUp(dry_run=False, jobs=cleaned, batches=archived, folders=removed, busy=busy)


def _old_batches(site: Site, retention: float) -> tuple[str, ...]:
    """The batches that would leave ZooKeeper now."""
    rows = listings.readable(listings.batch_rows(site.session, listings.all_batches(site.session)))
    return tuple(
        row.bid
        for row in rows
        if row.status is BatchState.DELETED
        or (
            row.status is BatchState.COMPLETED
            and age(row.since) > retention_of(row.profile, site.profiles, retention)
        )
    )


def _remove_batches(
    site: Site, stamp: Stamp, retention: float, attempt: Attempt
) -> tuple[tuple[str, ...], bool]:
    """The removed batches; True if beat was removing batches at the same time."""
    session = site.session
    chosen = site.settings.model_copy(update={"retention": retention})
    clients = open_clients(chosen, expected_of(session))
    before = set(listings.all_batches(session))
    with locks.single_flight(session, "clean_up_batches") as clock:
        if clock is None:
            return (), True
        remove_old_batches(session, clock, clients, stamp, attempt)
        attempt.check()
        remove_unneeded_uploads(session, site.settings)
    return tuple(sorted(before - set(listings.all_batches(session)))), False
