"""Persistent recursive watches beside kazoo: ZooKeeper's request `addWatch`, which kazoo 2.11 does not have.

ZooKeeper 3.6 and later send an event for every node that is created, changed or deleted below a watched one,
in the order of the transactions. A watch ends with the connection: whoever follows arms it again.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.exceptions import UnimplementedError
from kazoo.protocol.serialization import Watch, int_struct, write_string
from kazoo.protocol.states import KazooState

from zkstate import paths
from zkstate.feed.changes import FOLLOWED, FeedChange, read_change
from zkstate.session import Session

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
            for path in FOLLOWED:
                self._session.ensure_node(path)
                self._session.ask(self._add_watch, path)
        except UnimplementedError:
            return False
        return True

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
            change = read_change(
                client.unchroot(event.path),
                present=event.type != _DELETED,
                created_or_deleted=event.type != _CHANGED,
            )
            if change is not None:
                self._on_change(change)
        self._read_event(buffer, offset)
