"""Nodes that a session reads once, and again only after a watch has fired.

For nodes that many jobs read and hardly anybody writes. A watch fires as soon as the node changes; a
connection that breaks ends all watches, and with them the memory.
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
"""Nodes that a session remembers; one more, and it begins anew."""

_NODES = "nodes"


@dataclass(frozen=True)
class Remembered(Generic[T]):
    """A node as it was read; without a stat and a value if it did not exist."""

    value: T | None
    stat: ZnodeStat | None
    connection: int
    changed: threading.Event = field(default_factory=threading.Event)
    """Set once the node may be another one."""


def read(session: Session, path: str, decode: Callable[[bytes], T]) -> Remembered[T]:
    """The node, whose content was decoded once; what `decode` raises is not remembered."""
    known = _nodes(session).get(path)
    if known is not None and _is_current(session, known):
        return cast(Remembered[T], known)
    return read_anew(session, path, decode)


def read_anew(session: Session, path: str, decode: Callable[[bytes], T]) -> Remembered[T]:
    """As `read`, asked of ZooKeeper in any case."""
    connection, changed = session.connections, threading.Event()
    node: tuple[bytes, ZnodeStat] | None = _watched(session, session.zk.get_async, path, changed)
    value, stat = (None, None) if node is None else (decode(node[0]), node[1])
    return _remember(session, path, Remembered(value, stat, connection, changed))


def children(session: Session, path: str) -> list[str]:
    """The names below the node, which are remembered until one is created or deleted."""
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
    """For a session that has written the node: its own watch fires on another thread, a moment later."""
    _nodes(session).pop(path, None)


def _nodes(session: Session) -> dict[str, Remembered[object]]:
    return cast(dict[str, Remembered[object]], session.remembered.setdefault(_NODES, {}))


def _is_current(session: Session, known: Remembered[object]) -> bool:
    return not known.changed.is_set() and session.connected and known.connection == session.connections


def _watched(session: Session, read: Callable[..., Any], path: str, changed: threading.Event) -> Any | None:
    """What `read` answers; None if there is no such node, whose creation is watched then."""

    def on_change(_: object) -> None:
        changed.set()

    while True:
        try:
            return session.ask(read, path, watch=on_change)
        except NoNodeError:
            if session.ask(session.zk.exists_async, path, watch=on_change) is None:
                return None
