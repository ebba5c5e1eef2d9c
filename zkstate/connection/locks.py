"""Ephemeral locks with one holder in the fleet, and the guard of an attempt."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat

from pipeline import codes
from pipeline.attempt import Attempt, Progress
from pipeline.outcome import AttemptOver, Stopping, of_object
from zkstate import paths
from zkstate.connection.clock import ServerClock, server_clock
from zkstate.connection.session import BROKEN, Session
from zkstate.connection.transaction import token
from zkstate.errors import Unreachable, UserRefused

GIVES_WAY = 2
"""Writes to a lock after which its attempt ends, and hands its job back."""

LOCK_WAIT = 20.0
"""Seconds to wait for another holder of the same object; then the job is handed back."""


class AttemptGuard:
    """The guard of work under a lock in ZooKeeper; implements `pipeline.attempt.Attempt`.

    Created before the lock is taken; once the lock is in doubt, every further check fails.
    """

    def __init__(self, session: Session, stopping: Callable[[], bool] = lambda: False) -> None:
        self._session = session
        self._standing = session.standing()
        self._stopping = stopping
        self._lock_deleted = threading.Event()
        self._yields = threading.Event()
        self._gives_way = threading.Event()
        self._answers: list[tuple[str, Any]] = []
        """Unread answers to the requests that set a watch on the lock, with its path."""
        self._created: int | None = None
        """The transaction that created the lock."""

    def carried(self, stopping: Callable[[], bool]) -> "AttemptGuard":
        """The guard of the attempt at the next state, under the same lock, which is watched already."""
        guard = copy(self)
        guard._stopping = stopping
        return guard

    def watch_lock(self, path: str) -> None:
        """Fail the checks once the lock at `path` is deleted, for example by an operator who fails the job.

        A write to the lock asks the attempt to yield; after a second write the checks fail. The watch
        is set without waiting for the answer; if the lock is missing already, the checks fail too. The end
        of a connection ends the watch and not the lock: another watch is set.
        """

        def on_event(event: WatchedEvent) -> None:
            if event.type in (EventType.CHANGED, EventType.NONE):
                self.watch_lock(path)
            else:
                self._lock_deleted.set()

        self._answers.append((path, self._session.zk.exists_async(path, watch=on_event)))

    def yields(self) -> bool:
        self._read_answers()
        return self._yields.is_set()

    def _read_answers(self) -> None:
        """Evaluate the answers that have arrived; with callbacks, kazoo would wake a thread for each."""
        for path, answer in [entry for entry in self._answers if entry[1].ready()]:
            with suppress(ValueError):  # another thread evaluates it
                self._answers.remove((path, answer))
                self._evaluate(path, answer)

    def _evaluate(self, path: str, answer: Any) -> None:
        if not answer.successful():
            self.watch_lock(path)
        elif not self._is_own(answer.value):
            self._lock_deleted.set()
        else:
            self._created = answer.value.czxid
            if answer.value.version:
                self._yields.set()
            if answer.value.version >= GIVES_WAY:
                self._gives_way.set()

    def _is_own(self, lock: ZnodeStat | None) -> bool:
        """False if there is no lock, or if it belongs to a later attempt or to another record."""
        if lock is None or lock.ephemeralOwner != self._session.id:
            return False
        return self._created in (None, lock.czxid)

    def check(self) -> None:
        """Raise AttemptOver once the lock may be lost, or the worker is stopping."""
        self._read_answers()
        if self._standing is None or self._session.standing() != self._standing:
            self._standing = None
            raise AttemptOver("the ZooKeeper session was lost: another worker takes over")
        if self._lock_deleted.is_set():
            raise AttemptOver("the lock was removed: an operator or another worker has taken over")
        if self._stopping():
            raise Stopping("the worker is stopping: another worker takes over")
        if self._gives_way.is_set():
            raise Stopping(
                "the job gives its process to a job of another submitter or collection; "
                "what its source cannot continue starts anew"
            )

    def report(self, progress: Progress) -> None:
        """Progress is not part of the record; see tasks.redis_keys."""


@contextmanager
def single_flight(session: Session, name: str) -> Iterator[ServerClock | None]:
    """Run the block in one process of the fleet at a time; None if another process is running it."""
    path = paths.exclusive("single-flight", name)
    mark = token()
    if not take(session, path, mark):
        yield None
        return
    try:
        yield server_clock(session, path)
    finally:
        drop(session, path, mark)


@contextmanager
def own_clock(session: Session) -> Iterator[ServerClock]:
    """The server's clock, read by a lock with a new name, as several threads may read it at once."""
    with single_flight(session, f"clock {token()}") as clock:
        if clock is None:
            raise session.unreachable()
        yield clock


@contextmanager
def exclusive(
    session: Session, kind: str, name: str, attempt: Attempt, wait: float = LOCK_WAIT
) -> Iterator[None]:
    """Hold (kind, name) exclusively; waits up to `wait` seconds for another holder, then raises Later."""
    path = paths.exclusive(kind, name)
    mark = token()
    deadline = time.monotonic() + wait
    while not take(session, path, mark):
        _wait_until_gone(session, path, attempt, deadline)
        if time.monotonic() > deadline:
            raise of_object(name, f"another job has held {kind} {name} for {wait:.0f} s")
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
    """Create the ephemeral node at `path`; False if another holder has it."""
    while True:
        try:
            session.zk.create_ephemeral(path, mark.encode()).get(timeout=session.answer_timeout)
        except NodeExistsError:
            return _is_mine(session, path, mark)
        except NoNodeError:
            session.ensure_node(path.rpartition("/")[0])
        except BROKEN as error:
            if not session.wait_connected(time.monotonic() + session.answer_timeout):
                raise session.unreachable() from error
        else:
            return True


def _is_mine(session: Session, path: str, mark: str) -> bool:
    node = session.find(path)
    return node is not None and node[0] == mark.encode()


def drop(session: Session, path: str, mark: str) -> None:
    """Delete the lock; Unreachable with `lock-lost` if the record that answers has no such lock.

    A session can survive the replacement of the record. If the data with the lock come back, the lock would
    stay for as long as this process lives: so the caller has to drop its session. A web process does not: a
    deletion that was not confirmed is repeated for as long as the session can have the lock.
    """
    deadline = time.monotonic() + max(session.timeout, session.answer_timeout)
    in_doubt = False
    while True:
        try:
            if not _is_mine(session, path, mark):
                break
            session.zk.delete_async(path).get(timeout=session.answer_timeout)
        except NoNodeError:
            break
        except UserRefused:
            raise
        except (Unreachable, *BROKEN) as error:
            in_doubt = in_doubt or not isinstance(error, Unreachable)
            if not session.wait_connected(deadline):
                raise session.unreachable() from error
        else:
            return
    if not in_doubt:
        raise Unreachable(
            f"the lock {path} is gone: the session was lost, or another record answers", code=codes.LOCK_LOST
        )
