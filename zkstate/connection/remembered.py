"""A cache of nodes, which a session reads again only after a watch has fired.

For nodes that many jobs read and that are rarely written. A watch fires as soon as the node changes; a broken
connection ends all watches, and thereby invalidates the cache.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat

from zkstate.connection.session import Session

T = TypeVar("T")

MOST = 1000
"""Maximum nodes in a session's cache; one more clears it."""

_NODES = "nodes"


@dataclass(frozen=True)
class Remembered(Generic[T]):
    """A node as it was read; without stat and value if it did not exist."""

    value: T | None
    stat: ZnodeStat | None
    connection: int
    changed: threading.Event = field(default_factory=threading.Event)
    """Set once the node may have changed."""


def read(session: Session, path: str, decode: Callable[[bytes], T]) -> Remembered[T]:
    """The node, decoded once and cached; what `decode` raises is not cached."""
    known = _nodes(session).get(path)
    if known is not None and _is_current(session, known):
        return cast(Remembered[T], known)
    return read_anew(session, path, decode)


def read_anew(session: Session, path: str, decode: Callable[[bytes], T]) -> Remembered[T]:
    """Like `read`, but always asks ZooKeeper."""
    connection, changed = session.connections, threading.Event()
    node: tuple[bytes, ZnodeStat] | None = _watched(session, session.zk.get_async, path, changed)
    value, stat = (None, None) if node is None else (decode(node[0]), node[1])
    return _remember(session, path, Remembered(value, stat, connection, changed))


def children(session: Session, path: str) -> list[str]:
    """The names below the node, cached until one is created or deleted."""
    known = _nodes(session).get(path)
    if known is None or not _is_current(session, known):
        connection, changed = session.connections, threading.Event()
        names = _watched(session, session.zk.get_children_async, path, changed) or []
        known = _remember(session, path, Remembered(names, None, connection, changed))
    return cast(list[str], known.value)


def _remember(session: Session, path: str, fresh: Remembered[T]) -> Remembered[T]:
    nodes = _nodes(session)
    if len(nodes) >= MOST:
        nodes.clear()
    nodes[path] = cast(Remembered[object], fresh)
    return fresh


def forget(session: Session, path: str) -> None:
    """Drop a node that this session has written: its watch fires a moment later, in another thread."""
    dropped = _nodes(session).pop(path, None)
    if dropped is not None:
        dropped.changed.set()


def _nodes(session: Session) -> dict[str, Remembered[object]]:
    return cast(dict[str, Remembered[object]], session.remembered.setdefault(_NODES, {}))


def _is_current(session: Session, known: Remembered[object]) -> bool:
    return not known.changed.is_set() and session.connected and known.connection == session.connections


def _watched(session: Session, read: Callable[..., Any], path: str, changed: threading.Event) -> Any | None:
    """The answer to `read`; None if there is no such node, whose creation is then watched."""

    def on_change(_: object) -> None:
        changed.set()

    while True:
        try:
            return session.ask(read, path, watch=on_change)
        except NoNodeError:
            if session.ask(session.zk.exists_async, path, watch=on_change) is None:
                return None
