"""What a list shows of a job beyond its place: read for jobs that work, are held or have failed.

What the followed folders contain: listings, and statuses of the batches; no job is read.

A bucket that has not changed since its last listing is not listed again, so that comparing a record of many
ended batches costs one short request for each bucket.
"""

from collections.abc import Iterator, Sequence
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
from pipeline.states import JOB, Bucket, FailureKind, JobState
from zkstate import codec, paths
from zkstate.connection import ownership
from zkstate.connection.session import Session
from zkstate.errors import Corrupt


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
    parts = (paths.job_status, paths.configuration, paths.identifiers)
    for start in range(0, len(jids), PAGE):
        page = jids[start : start + PAGE]
        nodes = iter(session.get_many([path(jid) for jid in page for path in parts]))
        for jid in page:
            status, configuration, identifiers = next(nodes), next(nodes), next(nodes)
            if status is None or configuration is None or identifiers is None:
                continue
            try:
                yield _detail(jid, status[0], configuration[0], identifiers[0])
            except Corrupt:
                continue


def _detail(jid: str, status_data: bytes, configuration_data: bytes, identifiers_data: bytes) -> JobDetail:
    status = codec.decode(JobStatus, status_data, paths.job_status(jid))
    configuration = codec.decode(JobConfiguration, configuration_data, paths.configuration(jid))
    identifiers = codec.decode(Identifiers, identifiers_data, paths.identifiers(jid))
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


def queues() -> tuple[JobState, ...]:
    """The states that have a queue."""
    return tuple(JOB.where(lambda facts: facts.queued))


def batch_ids(session: Session) -> list[str]:
    return sorted(session.children(paths.BATCHES))


def open_batch_ids(session: Session) -> list[str]:
    """The batches with work left, whose status may change at any moment."""
    return ownership.children(session, paths.OPEN_BATCHES)


def read_batches(session: Session, bids: Sequence[str]) -> Iterator[BatchRead]:
    """The batches that still exist, in this order; a damaged node does not hide the batch."""
    for start in range(0, len(bids), PAGE):
        page = bids[start : start + PAGE]
        places = [path(bid) for bid in page for path in (paths.submission, paths.batch_status)]
        nodes = iter(session.get_many(places))
        for bid in page:
            submission, status = next(nodes), next(nodes)
            if submission is None and status is None:
                continue
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
