"""The whole at a glance: the queue, what stops it, and the latest batches."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from operations.why_waiting import beat_runs
from pipeline.records import BatchStatus, Record, Submission
from pipeline.states import BatchState, JobState
from zkstate import codec, holds, paths, queue, space
from zkstate.holds import Hold

if TYPE_CHECKING:
    from zkstate.session import Session

LATEST = 10
"""Batches that an overview names."""


class BatchRow(Record):
    """One line of a list of batches."""

    bid: str
    profile: str
    name: str
    status: BatchState
    since: datetime
    total: int | None = None
    message: str = ""


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
    bids = sorted(session.children(paths.BATCHES), reverse=True)
    unfinished = session.exists(paths.OPEN_BATCHES)
    return Overview(
        jobs=queue.counts(session),
        batches=batch_rows(session, bids[:LATEST]),
        batches_in_all=len(bids),
        open_batches=unfinished.numChildren if unfinished else 0,
        paused=holds.paused(session),
        held_collections=holds.held_collections(session),
        promised=space.promised(session).bytes,
        beat=beat_runs(session),
    )


def batch_rows(session: Session, bids: list[str]) -> tuple[BatchRow, ...]:
    wanted = [path(bid) for bid in bids for path in (paths.submission, paths.batch_status)]
    found = iter(session.get_many(wanted))
    rows = []
    for bid, (submitted, state) in zip(bids, zip(found, found, strict=True), strict=True):
        if submitted is None or state is None:
            continue
        submission = codec.decode(Submission, submitted[0], paths.submission(bid))
        status = codec.decode(BatchStatus, state[0], paths.batch_status(bid))
        rows.append(
            BatchRow(
                bid=bid,
                profile=submission.profile_name,
                name=submission.payload_name or submission.payload_url.rpartition("/")[2],
                status=status.status,
                since=status.last_modified,
                total=status.total,
                message=status.message,
            )
        )
    return tuple(rows)
