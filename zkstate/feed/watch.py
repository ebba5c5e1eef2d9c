"""Changes of the record as ZooKeeper sends them: persistent recursive watches of the followed folders.

ZooKeeper 3.6 and later send an event for every node that is created, changed or deleted below a watched
one, in the order of the transactions. A watch ends with the connection: whoever follows arms it again.

A change is read from its path alone. One move of a job deletes its entry in one queue and creates one in
another, and, where the job ends or is resumed, deletes and creates its entry in a bucket of its batch.

Silence proves nothing: a write to each followed folder, every few seconds, has to come back as an event.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kazoo.exceptions import UnimplementedError
from kazoo.protocol.connection import CHANGED_EVENT, CREATED_EVENT, DELETED_EVENT
from kazoo.protocol.states import KazooState

from pipeline import codes
from pipeline.states import Bucket, JobState
from zkstate import paths
from zkstate.connection.session import BROKEN, Session
from zkstate.direct import requests
from zkstate.direct.client import whole_path
from zkstate.errors import Unreachable


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
    """An operator paused the queue or put a collection on hold, or ended this."""


FeedChange = QueueChange | BucketChange | BatchChange | WaitingChange | StopsChange

FOLLOWED = (paths.QUEUES, paths.BATCHES, paths.WAITING, paths.PAUSE, paths.HOLDS)
"""The folders that are followed with all that is below them."""

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
"""Seconds after which a followed folder is written again. What one process writes is pushed to all: however
many there are, they write one transaction of 200 bytes in this time, or few."""

PROOF_TIMEOUT = 10.0
"""Seconds to wait for the answer to that write."""


class Feed(AbstractContextManager["Feed"]):
    """Calls `on_change` for every change of the followed folders while it is armed; with `bid`, of one batch.

    Both functions are called on the connection's thread, and must not block. `on_connection` gets False when
    the connection is lost, and True when it is there again: the feed is to be armed then.
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
        """Have changes sent from now on; False if the server is older than 3.6 and cannot.

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
        """Since when nothing has proved that all changes are pushed: a moment of `time.monotonic`.

        If that is long ago, each followed folder is written: `not-pushed` if a write does not come back. A
        server sends a session the event of its own write before the answer to it.
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
        silent = [path for path in FOLLOWED if self._heard.get(path, 0.0) < began]
        if silent:
            raise Unreachable(
                f"ZooKeeper at {self._session.hosts} accepted a watch of {', '.join(silent)}, and does not "
                "report a change there",
                code=codes.NOT_PUSHED,
            )
        return self._heard_all()

    def _heard_all(self) -> float:
        return min(self._heard.get(path, 0.0) for path in FOLLOWED)

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
