"""The whole at a glance: the queue, what stops it, and the latest batches."""

from pipeline.records import Record
from pipeline.states import JobState
from zkstate import holds, listings, queue, space, views
from zkstate.holds import Hold
from zkstate.session import Session
from zkstate.views import BatchRow

LATEST = 10
"""Batches that an overview names."""


class Overview(Record):
    jobs: dict[JobState, int]
    batches: tuple[BatchRow, ...]
    batches_in_all: int
    open_batches: int
    paused: Hold | None = None
    held_collections: dict[str, Hold]
    promised: int
    """Bytes of working storage."""
    beat: bool
    """True if anybody does the timed work."""


def overview(session: Session) -> Overview:
    bids = listings.all_batches(session)
    return Overview(
        jobs=queue.counts(session),
        batches=tuple(views.readable(views.batch_rows(session, bids[: -LATEST - 1 : -1]))),
        batches_in_all=len(bids),
        open_batches=listings.open_batches(session),
        paused=holds.paused(session),
        held_collections=holds.held_collections(session),
        promised=space.promised(session).bytes,
        beat=views.beat_runs(session),
    )
