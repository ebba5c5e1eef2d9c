"""One leader among many: kazoo's election, left at the first doubt."""

import os
from collections.abc import Callable

from kazoo.client import KazooState

from zkstate import paths
from zkstate.session import Session

EXIT_IN_DOUBT = 75
"""EX_TEMPFAIL of sysexits.h: start me again."""


def lead(session: Session, name: str, work: Callable[[], None]) -> None:
    """Wait to be elected, then run `work`; the process ends when the session is in doubt."""

    def in_doubt(state: str) -> None:
        if state != KazooState.CONNECTED:
            os._exit(EXIT_IN_DOUBT)

    session.zk.add_listener(in_doubt)
    try:
        session.zk.Election(paths.LEADER, name).run(work)
    finally:
        session.zk.remove_listener(in_doubt)
