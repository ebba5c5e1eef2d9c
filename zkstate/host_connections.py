"""How many connections the whole fleet has open to one host.

A connection is an ephemeral node with a number below the host's node. ZooKeeper refuses a second node of the
same number, so however many workers wait, there are never more connections than numbers.
"""

import random
import threading
import time
from dataclasses import dataclass
from functools import cached_property

from kazoo.exceptions import NoNodeError

from zkstate import locks, paths, record
from zkstate.locks import ServerClock
from zkstate.session import Session

UNLIMITED = 1 << 20
"""Connections where no limit is set; back-off is observed all the same."""


@dataclass(frozen=True)
class Connection:
    """The right to one connection until it is released."""

    session: Session
    path: str
    token: str
    opened: float
    """When its node was created, by `time.monotonic`."""

    @cached_property
    def clock(self) -> ServerClock:
        """The server's clock, as the node shows it: read if it is needed, while the node is there."""
        return locks.server_clock(self.session, self.path, self.opened)


def acquire(
    session: Session, host: str, limit: int, owner: str, changed: threading.Event
) -> Connection | None:
    """One of `limit` connections; None if all are in use, and `changed` is set once that has changed."""
    while len(taken := _numbers(session, host, changed)) < limit:
        # one number more than are taken, so that at least one of these is free
        numbers = random.sample(range(limit), len(taken) + 1)
        free = next(number for number in numbers if str(number) not in taken)
        path, token = paths.connection(host, free), f"{record.token()} {owner}"
        if locks.take(session, path, token):
            return Connection(session, path, token, time.monotonic())
    return None


def release(connection: Connection) -> None:
    locks.drop(connection.session, connection.path, connection.token)


def holders(session: Session, host: str) -> tuple[str, ...]:
    """The job or batch that uses each connection to a host; '' for an unnamed one."""
    path = paths.host(host)
    if session.exists(path) is None:
        return ()
    nodes = session.get_many([f"{path}/{number}" for number in session.children(path)])
    return tuple(node[0].decode(errors="replace").partition(" ")[2] for node in nodes if node)


def _numbers(session: Session, host: str, changed: threading.Event) -> set[str]:
    """The numbers in use; `changed` is set when a connection is opened or released."""
    path = paths.host(host)
    while True:
        try:
            return set(session.ask(session.zk.get_children_async, path, watch=lambda _: changed.set()))
        except NoNodeError:
            session.ensure_node(path)
