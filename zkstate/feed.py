"""The record for a read model: listings of the followed folders, and changes as ZooKeeper pushes them.

Listings: only jobs that are in progress, held or failed are read, for the details that a list shows besides
the state. A bucket that has not changed since its last listing is not listed again, so that comparing a
record with many ended batches costs one short request per bucket.

Changes: persistent recursive watches of the followed folders. ZooKeeper 3.6 and later send an event for every
node that is created, changed or deleted below a watched one, in the order of the transactions. A watch ends
with the connection, and its follower arms it again. A change is derived from its path alone. A move of a job
deletes its entry in one queue and creates one in another; if the job ends or is resumed, the move does the
same in the buckets of its batch. Silence proves nothing: a write to each followed folder, every few
seconds, has to come back as an event.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import TypeVar

from kazoo.exceptions import UnimplementedError
from kazoo.protocol.connection import CHANGED_EVENT, CREATED_EVENT, DELETED_EVENT
from kazoo.protocol.states import KazooState, ZnodeStat

from pipeline import codes
from pipeline.causes import FailureCause
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
from zkstate.connection.session import BROKEN, Session
from zkstate.direct import requests
from zkstate.direct.client import whole_path
from zkstate.errors import Corrupt, Unreachable
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
    cause: FailureCause | None
    waits_for: str
    bytes: int | None
    """The declared size of the payload; None if none is declared, or the payload is a manifest."""


def read_details(session: Session, jids: Sequence[str]) -> Iterator[JobDetail]:
    """The existing, readable jobs, in the given order; the audit reports the others."""
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
        cause=status.failure_cause,
        waits_for=status.waits_for.kind if status.waits_for else "",
        bytes=None if configuration.payload_type is PayloadType.OBJECT_MANIFEST else configuration.size,
    )


R = TypeVar("R", bound=Record)

PAGE = 200
"""Requests in flight at a time."""


@dataclass(frozen=True, slots=True)
class BucketMark:
    """A bucket at its last listing: the number of jobs, and the transaction that last changed it."""

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
    """The batches that still exist, in the given order; a damaged node does not hide its batch."""
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
    """The current mark of each bucket; a batch that has not started has no buckets."""
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


@dataclass(frozen=True, slots=True)
class QueueChange:
    """The job's entry in the queue of `state` was created, or with `present` False deleted."""

    jid: str
    state: JobState
    priority: int
    present: bool


@dataclass(frozen=True, slots=True)
class BucketChange:
    """The job's entry in a bucket of its batch was created or deleted."""

    jid: str
    bid: str
    bucket: Bucket
    present: bool


@dataclass(frozen=True, slots=True)
class BatchChange:
    """The batch was submitted, its status was written, or it was removed."""

    bid: str


@dataclass(frozen=True, slots=True)
class WaitingChange:
    """The job began to wait in a working state, or no longer waits."""

    jid: str


@dataclass(frozen=True, slots=True)
class StopsChange:
    """An operator paused the queue, put a collection on hold, or ended a pause or a hold."""


FeedChange = QueueChange | BucketChange | BatchChange | WaitingChange | StopsChange

FOLLOWED = (paths.QUEUES, paths.BATCHES, paths.WAITING, paths.PAUSE, paths.HOLDS)
"""The folders that are followed, with everything below them."""

_STATES = {state.value: state for state in JobState}
_BUCKETS = {bucket.value: bucket for bucket in Bucket}


def read_change(path: str, *, present: bool, created_or_deleted: bool) -> FeedChange | None:
    """The change that an event at `path` means; None for znodes that no list shows."""
    match path.split("/")[1:]:
        case ["jobs", "states", state, entry] if state in _STATES and created_or_deleted:
            return _queue_change(_STATES[state], entry, present)
        case ["batches", bid, "states", bucket, jid] if bucket in _BUCKETS and created_or_deleted:
            return BucketChange(jid, bid, _BUCKETS[bucket], present)
        case ["batches", bid] | ["batches", bid, "submission" | "status"]:
            return BatchChange(bid)
        case ["waiting", jid] if created_or_deleted:
            return WaitingChange(jid)
        case ["locks", "queue" | "collections", _]:
            return StopsChange()
        case _:
            return None


def _queue_change(state: JobState, entry: str, present: bool) -> QueueChange | None:
    for priority, jid in paths.read_queue_entries([entry]):
        return QueueChange(jid, state, priority, present)
    return None


PROOF_INTERVAL = 5.0
"""Seconds between two writes to the followed folders. A write by one process is pushed to all, so that any
number of processes together make one write of 200 bytes in this time, or a few."""

PROOF_TIMEOUT = 10.0
"""Seconds to wait for the answer to that write."""


class Feed(AbstractContextManager["Feed"]):
    """Calls `on_change` for every change of the followed folders while it is armed; with `bid`, of one batch.

    Both functions are called in the connection's thread, and must not block. `on_connection` gets False when
    the connection is lost, and True when it is back: the caller then arms the feed again.
    """

    def __init__(
        self,
        session: Session,
        on_change: Callable[[FeedChange], None],
        on_connection: Callable[[bool], None],
        bid: str | None = None,
    ) -> None:
        self._session = session
        self._bid = bid
        self._on_change = on_change
        self._on_connection = on_connection
        self._heard: dict[str, float] = {}
        """Followed folder -> when a write to it was last pushed, since the feed was armed; monotonic."""

    def __enter__(self) -> "Feed":
        self._session.zk.add_event_listener(self._on_event)
        self._session.zk.add_listener(self._on_state)
        return self

    def __exit__(self, *_: object) -> None:
        self._session.zk.remove_listener(self._on_state)
        self._session.zk.remove_event_listener(self._on_event)

    def arm(self) -> bool:
        """Have the server push changes from now on; False if it is older than 3.6 and cannot.

        Unreachable if ZooKeeper does not answer in time.
        """
        try:
            if self._bid is not None:
                self._session.ask(self._session.zk.add_watch_async, paths.batch(self._bid))
                return True
            self._heard.clear()
            for path in FOLLOWED:
                self._session.ensure_node(path)
                self._session.ask(self._session.zk.add_watch_async, path)
        except UnimplementedError:
            return False
        return True

    def prove(self) -> float:
        """The time of the last proof that all changes are pushed, by `time.monotonic`.

        After PROOF_INTERVAL without one, write each followed folder: Unreachable with `not-pushed` if a write
        does not come back. A server sends a session the event of its own write before the answer to it.
        """
        began = time.monotonic()
        if began - self._heard_all() < PROOF_INTERVAL:
            return self._heard_all()
        client = self._session.zk
        writes = [requests.put(whole_path(client.chroot, path), b"", -1) for path in FOLLOWED]
        try:
            client.request(requests.MultiRequest(writes)).get(timeout=PROOF_TIMEOUT)
        except (*BROKEN, client.handler.timeout_exception) as error:
            raise self._session.unreachable() from error
        silent = [path for path in FOLLOWED if self._heard.get(path, -inf) < began]
        if silent:
            raise Unreachable(
                f"ZooKeeper at {self._session.hosts} accepted a watch of {', '.join(silent)}, and does not "
                "report a change there",
                code=codes.NOT_PUSHED,
            )
        return self._heard_all()

    def _heard_all(self) -> float:
        return min(self._heard.get(path, -inf) for path in FOLLOWED)

    def _on_state(self, state: str) -> None:
        self._on_connection(state == KazooState.CONNECTED)

    def _on_event(self, kind: int, whole: str) -> None:
        client = self._session.zk
        if kind in (CREATED_EVENT, DELETED_EVENT, CHANGED_EVENT) and whole.startswith(client.chroot or "/"):
            path = client.unchroot(whole)
            if path in FOLLOWED:
                self._heard[path] = time.monotonic()
            change = read_change(
                path,
                present=kind != DELETED_EVENT,
                created_or_deleted=kind != CHANGED_EVENT,
            )
            if change is not None:
                self._on_change(change)
