"""What the followed folders contain: listings, and statuses of the batches.

Of the jobs only those that work, are held or have failed are read, for what a list shows beyond their place.

A bucket that has not changed since its last listing is not listed again, so that comparing a record of many
ended batches costs one short request for each bucket.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from kazoo.protocol.states import ZnodeStat

from pipeline.records import (
    BatchStatus,
    Identifiers,
    JobConfiguration,
    JobStatus,
    PayloadType,
    Record,
    Submission,
)
from pipeline.states import Bucket, FailureKind, JobState
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.errors import Corrupt
from zkstate.record import jobs
from zkstate.record.node import read_parts


@dataclass(frozen=True)
class JobDetail:
    """A job as its own znodes describe it; `waits_for` is the kind of wait, or empty."""

    jid: str
    name: str
    ark: str
    state: JobState
    since: datetime
    kind: FailureKind | None
    message: str
    waits_for: str
    bytes: int | None
    """The declared size of the payload; None if none is declared, or the payload is a manifest."""


def read_details(session: Session, jids: Sequence[str]) -> Iterator[JobDetail]:
    """The jobs that exist and can be read, in this order; the audit reports the others."""
    for jid, answers in read_parts(session, jids, jobs.DESCRIPTION, PAGE):
        nodes = [node for node in answers if node is not None]
        with suppress(Corrupt):
            if len(nodes) == len(answers):
                yield _detail(jid, *jobs.describe(jid, nodes))


def _detail(
    jid: str, status: JobStatus, configuration: JobConfiguration, identifiers: Identifiers
) -> JobDetail:
    return JobDetail(
        jid=jid,
        name=configuration.name,
        ark=identifiers.primary_id or "",
        state=status.status,
        since=status.last_modification_date,
        kind=status.kind,
        message=status.message,
        waits_for=status.waits_for.kind if status.waits_for else "",
        bytes=None if configuration.payload_type is PayloadType.OBJECT_MANIFEST else configuration.size,
    )


R = TypeVar("R", bound=Record)

PAGE = 200
"""Requests that are under way at a time."""


@dataclass(frozen=True, slots=True)
class BucketMark:
    """How a bucket was at its last listing: its number of jobs, and the transaction that last changed it."""

    jobs: int
    changed: int


@dataclass(frozen=True)
class BatchRead:
    """A batch's submission and status; None for the part that is missing or cannot be read."""

    bid: str
    submission: Submission | None
    status: BatchStatus | None


def queued_jids(session: Session, state: JobState) -> dict[int, list[str]]:
    """Priority -> the jobs in the queue of `state`."""
    jids: dict[int, list[str]] = {}
    for priority, jid in paths.read_queue_entries(session.children(paths.queue(state))):
        jids.setdefault(priority, []).append(jid)
    return jids


def read_batches(session: Session, bids: Sequence[str]) -> Iterator[BatchRead]:
    """The batches that still exist, in this order; a damaged node does not hide the batch."""
    for bid, (submission, status) in read_parts(session, bids, (paths.submission, paths.batch_status), PAGE):
        if submission is not None or status is not None:
            yield BatchRead(
                bid,
                _decode(Submission, submission, paths.submission(bid)),
                _decode(BatchStatus, status, paths.batch_status(bid)),
            )


def _decode(kind: type[R], node: tuple[bytes, ZnodeStat] | None, path: str) -> R | None:
    if node is None:
        return None
    try:
        return codec.decode(kind, node[0], path)
    except Corrupt:
        return None  # the audit reports it


def bucket_marks(session: Session, bids: Sequence[str]) -> Iterator[tuple[str, Bucket, BucketMark]]:
    """How each bucket is now; a batch that has not started has no bucket."""
    places = [(bid, bucket) for bid in bids for bucket in Bucket]
    for start in range(0, len(places), PAGE):
        page = places[start : start + PAGE]
        stats = session.exists_many([paths.bucket(bid, bucket) for bid, bucket in page])
        for (bid, bucket), stat in zip(page, stats, strict=True):
            if stat is not None:
                yield bid, bucket, BucketMark(stat.numChildren, stat.pzxid)


def bucket_jids(
    session: Session, buckets: Sequence[tuple[str, Bucket]]
) -> Iterator[tuple[str, Bucket, list[str]]]:
    """The jobs of each bucket."""
    for start in range(0, len(buckets), PAGE):
        page = buckets[start : start + PAGE]
        listings = session.children_of_many([paths.bucket(bid, bucket) for bid, bucket in page])
        for (bid, bucket), jids in zip(page, listings, strict=True):
            yield bid, bucket, list(filter(paths.is_jid, jids))
