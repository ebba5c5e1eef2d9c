"""Times that do not depend on how busy the machine of a test is."""

from collections.abc import Iterable
from math import inf

from zkstate.connection.clock import ServerClock
from zkstate.connection.session import Session


class StandingClock(ServerClock):
    """ZooKeeper's time at one moment: a reader that has to wait for a request finds no later time."""

    def now_ms(self) -> int:
        return self.read_ms


def since_change(session: Session, path: str, seconds: float) -> ServerClock:
    """The server's clock so many seconds after the last change of the node, read long ago."""
    return StandingClock(session.get(path)[1].mtime + int(seconds * 1000), -inf)


NEAR = 1.0
"""Seconds between a time that Celery says and the record's."""


def follow(said: Iterable[float], recorded: Iterable[float]) -> bool:
    """Whether Celery's times follow the record's, in order and within a second.

    One of them may be later: the machine may stop a process between a transaction and its event.
    """
    late = sorted(told - at for told, at in zip(said, recorded, strict=True))
    return late[0] >= 0 and all(seconds < NEAR for seconds in late[:-1])
