"""The whole at a glance: its health, the queue, what stops it, working storage, and the latest batches."""

from collections.abc import Sequence

from operations.fleet import fleet
from operations.fleet.health import FleetHealth, RecordMemory, fleet_health, record_memory
from operations.reasons import Reason
from operations.site import Site
from operations.visibility import require_fleet
from pipeline.principal import Principal
from pipeline.records import Record
from pipeline.states import BatchState, JobState
from pipeline.working_storage.capacity import usage_now
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet import holds, notes
from zkstate.fleet.holds import Hold
from zkstate.fleet.notes import Correction, FixityStatus
from zkstate.queue import listings, queue
from zkstate.queue.listings import BatchRow
from zkstate.record import space

LATEST = 10
"""Batches that an overview names."""


class Space(Record):
    """Bytes of working storage; `total` and `used` are None on a machine without it."""

    reserved: int
    total: int | None = None
    used: int | None = None
    threshold: int
    """Percent of `total` that may be used or reserved."""
    waiting: int
    """Jobs that wait for space."""


class Overview(Record):
    health: FleetHealth
    jobs: dict[JobState, int]
    batches: tuple[BatchRow, ...]
    batches_in_all: int
    open_batches: int
    """Batches with work left; held ones are not counted."""
    held_batches: int = 0
    paused: Hold | None = None
    held_collections: dict[str, Hold]
    record: RecordMemory
    space: Space
    fixity: FixityStatus
    correction: Correction | None = None
    """The last time that the board of a web process differed from the record."""


def overview(site: Site, principal: Principal) -> Overview:
    """At most a page of jobs and batches is read, however many there are, unless a collection is on hold."""
    require_fleet(principal, "see the queue")
    session = site.session
    bids = listings.all_batches(session)
    counts = queue.counts(session)
    stops = holds.stops(session)
    held = {name: hold for name, hold in stops.items() if name}
    stored = notes.fixity(session)
    memory = record_memory(site)
    health = fleet_health(fleet.Fleet(site), counts, stops, stored, memory)
    return Overview(
        health=health,
        jobs=counts,
        batches=tuple(listings.readable(listings.batch_rows(session, bids[: -LATEST - 1 : -1]))),
        batches_in_all=len(bids),
        open_batches=len(session.children(paths.OPEN_BATCHES)),
        paused=stops.get(""),
        held_batches=_held(session, bids) if held else 0,
        held_collections=held,
        record=memory,
        space=space_now(site, health.waiting.get(Reason.WAITING_FOR_SPACE, 0)),
        fixity=stored,
        correction=notes.BOARD.readable(session),
    )


def _held(session: Session, bids: Sequence[str]) -> int:
    """Reads the status of every batch: only while a collection is on hold."""
    rows = listings.readable(listings.batch_rows(session, bids))
    return sum(row.status is BatchState.HELD for row in rows)


def space_now(site: Site, waiting: int) -> Space:
    """`waiting`: jobs that wait for working storage."""
    settings = site.settings
    disk = usage_now(settings) if settings.working.is_dir() else None
    return Space(
        reserved=space.reserved(site.session),
        total=disk.total if disk else None,
        used=disk.used if disk else None,
        threshold=settings.working_threshold,
        waiting=waiting,
    )
