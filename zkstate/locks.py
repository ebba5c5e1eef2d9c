"""Ephemeral locks with one holder in the fleet, the latch of a lost lock, and the server's clock."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

from pipeline.attempt import Attempt, Progress
from pipeline.outcome import AttemptOver, Stopping, transient
from zkstate import counters, paths
from zkstate.errors import Unreachable
from zkstate.record import token
from zkstate.session import ANSWER_TIMEOUT, BROKEN, Session

__all__ = ["AttemptGuard", "ServerClock", "drop", "exclusive", "single_flight", "take", "token"]

PATIENCE = 300.0
"""Seconds to wait for another holder of the same object before the step is tried again later."""


class AttemptGuard:
    """Made before a lock is taken; once the session that holds the lock is in doubt, it stays shut."""

    def __init__(self, session: Session, stopping: Callable[[], bool] = lambda: False) -> None:
        self._session = session
        self._standing = session.standing()
        self._stopping = stopping
        self._taken_away = threading.Event()

    def watch_lock(self, path: str) -> None:
        """Shut when the lock at `path` goes: an operator who fails a job takes its lock away.

        Nobody waits for the answer; a lock that is gone by then shuts the latch as well.
        """
        zk = self._session.zk
        answer = zk.exists_async(path, watch=lambda _: self._taken_away.set())
        answer.rawlink(self._read)

    def _read(self, answer: Any) -> None:
        if answer.successful() and answer.value is None:
            self._taken_away.set()

    def check(self) -> None:
        """Raise AttemptOver once the lock may be lost, or the worker is asked to stop."""
        if self._standing is None or self._session.standing() != self._standing:
            self._standing = None
            raise AttemptOver("the ZooKeeper session was lost: another worker takes over")
        if self._taken_away.is_set():
            raise AttemptOver("the lock was taken away: an operator, or another worker, goes on with it")
        if self._stopping():
            raise Stopping("the worker is stopping: another worker takes over")

    def report(self, progress: Progress) -> None:
        del progress


@dataclass(frozen=True)
class ServerClock:
    """ZooKeeper's time, in milliseconds since the epoch: one reading, carried on by a monotonic clock."""

    read_ms: int
    at: float

    def now_ms(self) -> int:
        return self.read_ms + int((time.monotonic() - self.at) * 1000)


@contextmanager
def single_flight(session: Session, name: str) -> Iterator[ServerClock | None]:
    """Run alone in the fleet: None if somebody else is at it already."""
    path = paths.exclusive("single-flight", name)
    mark = token()
    if not take(session, path, mark):
        yield None
        return
    try:
        stat = session.exists(path)
        if stat is None:
            raise Unreachable("the ZooKeeper session was lost")
        yield ServerClock(stat.ctime, time.monotonic())
    finally:
        drop(session, path, mark)


@contextmanager
def exclusive(
    session: Session, kind: str, name: str, attempt: Attempt, patience: float = PATIENCE
) -> Iterator[None]:
    """Hold (kind, name) alone; waits for its holder, and gives up as a passing fault."""
    path = paths.exclusive(kind, name)
    mark = token()
    deadline = time.monotonic() + patience
    while not take(session, path, mark):
        _wait_until_gone(session, path, attempt, deadline)
        if time.monotonic() > deadline:
            raise transient(f"another job has been working on {kind} {name} for {patience:.0f} s")
    try:
        yield
    finally:
        drop(session, path, mark)


def _wait_until_gone(session: Session, path: str, attempt: Attempt, deadline: float) -> None:
    gone = threading.Event()
    there = session.ask(session.zk.exists_async, path, watch=lambda _: gone.set())
    while there is not None and not gone.wait(0.5) and time.monotonic() < deadline:
        attempt.check()


def take(session: Session, path: str, mark: str) -> bool:
    """Make the ephemeral node at `path`; False if it is somebody else's."""
    while True:
        try:
            session.zk.create_async(path, mark.encode(), ephemeral=True).get(timeout=ANSWER_TIMEOUT)
        except NodeExistsError:
            return _is_mine(session, path, mark)
        except NoNodeError:
            counters.ensure_node(session, path.rpartition("/")[0])
        except BROKEN as error:
            if not session.wait_connected(time.monotonic() + ANSWER_TIMEOUT):
                raise session.unreachable() from error
        else:
            return True


def _is_mine(session: Session, path: str, mark: str) -> bool:
    found = session.get_many([path])[0]
    return found is not None and found[0] == mark.encode()


def drop(session: Session, path: str, mark: str) -> None:
    """Delete the lock if it is still this holder's; a lost session has dropped it already."""
    try:
        if _is_mine(session, path, mark):
            session.zk.delete_async(path).get(timeout=ANSWER_TIMEOUT)
    except NoNodeError:
        return
    except BROKEN as error:
        raise session.unreachable() from error
