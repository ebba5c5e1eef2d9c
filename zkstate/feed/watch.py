"""Persistent recursive watches beside kazoo: ZooKeeper's request `addWatch`, which kazoo 2.11 does not have.

ZooKeeper 3.6 and later send an event for every node that is created, changed or deleted below a watched one,
in the order of the transactions. A watch ends with the connection: whoever follows arms it again.

Silence proves nothing: a write to each followed folder, every few seconds, has to come back as an event.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.exceptions import UnimplementedError
from kazoo.protocol.serialization import Watch, int_struct, write_string
from kazoo.protocol.states import KazooState

from zkstate import multi_request, paths
from zkstate.client import whole_path
from zkstate.errors import NotPushed
from zkstate.feed.changes import FOLLOWED, FeedChange, read_change
from zkstate.session import BROKEN, Session

PROOF_INTERVAL = 5.0
"""Seconds after which a followed folder is written again. What one process writes is pushed to all: however
many there are, they write one transaction of 200 bytes in this time, or few."""

PROOF_TIMEOUT = 10.0
"""Seconds to wait for the answer to that write."""

_RECURSIVE = 1
_CREATED, _DELETED, _CHANGED = 1, 2, 3


@dataclass(frozen=True)
class AddWatch:
    """The request. kazoo registers a one-shot watch for requests with a field `watcher`: this has none."""

    path: str
    mode: int = _RECURSIVE
    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        return bytes(write_string(self.path) + int_struct.pack(self.mode))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> None:
        """The answer has no content."""


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
        connection = self._session.zk._connection
        self._read_event = connection._read_watch_event
        connection._read_watch_event = self._read
        self._session.zk.add_listener(self._on_state)
        return self

    def __exit__(self, *_: object) -> None:
        self._session.zk.remove_listener(self._on_state)
        connection = self._session.zk._connection
        if connection._read_watch_event == self._read:
            connection._read_watch_event = self._read_event

    def arm(self) -> bool:
        """Have changes sent from now on; False if the server is older than 3.6 and cannot.

        Unreachable if ZooKeeper does not answer in time.
        """
        try:
            if self._bid is not None:
                self._session.ask(self._add_watch, paths.batch(self._bid))
                return True
            self._heard.clear()
            for path in FOLLOWED:
                self._session.ensure_node(path)
                self._session.ask(self._add_watch, path)
        except UnimplementedError:
            return False
        return True

    def prove(self) -> float:
        """Since when nothing has proved that all changes are pushed: a moment of `time.monotonic`.

        If that is long ago, each followed folder is written: NotPushed if a write does not come back. A
        server sends a session the event of its own write before the answer to it.
        """
        began = time.monotonic()
        if began - self._heard_all() < PROOF_INTERVAL:
            return self._heard_all()
        client = self._session.zk
        writes = [multi_request.put(whole_path(client.chroot, path), b"", -1) for path in FOLLOWED]
        try:
            client.request(multi_request.MultiRequest(writes)).get(timeout=PROOF_TIMEOUT)
        except (*BROKEN, client.handler.timeout_exception) as error:
            raise self._session.unreachable() from error
        silent = [path for path in FOLLOWED if self._heard.get(path, 0.0) < began]
        if silent:
            raise NotPushed(
                f"ZooKeeper at {self._session.hosts} accepted a watch of {', '.join(silent)}, and does not "
                "report a change there"
            )
        return self._heard_all()

    def _heard_all(self) -> float:
        return min(self._heard.get(path, 0.0) for path in FOLLOWED)

    def _add_watch(self, path: str) -> Any:
        client = self._session.zk
        answer = client.handler.async_result()
        client._call(AddWatch(f"{client.chroot}{path}"), answer)
        return answer

    def _on_state(self, state: str) -> None:
        self._on_connection(state == KazooState.CONNECTED)

    def _read(self, buffer: bytes, offset: int) -> None:
        """One event of any watch: kazoo handles its one-shot watches on the same paths as before."""
        event, _ = Watch.deserialize(buffer, offset)
        client = self._session.zk
        if event.type in (_CREATED, _DELETED, _CHANGED) and event.path.startswith(client.chroot or "/"):
            path = client.unchroot(event.path)
            if path in FOLLOWED:
                self._heard[path] = time.monotonic()
            change = read_change(
                path,
                present=event.type != _DELETED,
                created_or_deleted=event.type != _CHANGED,
            )
            if change is not None:
                self._on_change(change)
        self._read_event(buffer, offset)
