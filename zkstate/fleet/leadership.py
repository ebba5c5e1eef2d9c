"""One leader among several processes: kazoo's election, left at the first doubt about the session."""

import os
from collections.abc import Callable

from kazoo.client import KazooState
from kazoo.protocol.states import ZnodeStat

from zkstate import paths
from zkstate.connection.session import Session

EXIT_IN_DOUBT = os.EX_TEMPFAIL
"""A supervisor restarts the process."""


def leader(session: Session) -> str:
    """The name of the beat that does scheduled work; empty if none runs."""
    node = _leading(session)
    return node[0].decode(errors="replace") if node else ""


def started_ms(session: Session) -> int:
    """When the beat that leads was started, by ZooKeeper's clock; 0 if none runs."""
    node = _leading(session)
    return int(node[1].ctime) if node else 0


def _leading(session: Session) -> tuple[bytes, ZnodeStat] | None:
    contenders = session.children(paths.LEADER)
    if not contenders:
        return None
    first = min(contenders, key=lambda name: name[-10:])  # kazoo's election: the lowest number leads
    return session.find(f"{paths.LEADER}/{first}")


def contenders(session: Session) -> int:
    """How many beats run: one of them does scheduled work, the others would follow it."""
    return len(session.children(paths.LEADER))


def lead(session: Session, name: str, work: Callable[[], None]) -> None:
    """Wait to be elected, then run `work`; the process exits when the session is in doubt."""

    def exit_in_doubt(state: str) -> None:
        if state != KazooState.CONNECTED:
            os._exit(EXIT_IN_DOUBT)

    session.zk.add_listener(exit_in_doubt)
    try:
        session.zk.Election(paths.LEADER, name).run(work)
    finally:
        session.zk.remove_listener(exit_in_doubt)
