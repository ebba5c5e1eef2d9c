"""Ephemeral locks with one holder in the fleet, the guard of an attempt, and the age of a znode.

ZooKeeper stamps a node with the leader's wall clock, which an operator or NTP may set back or forward. Its
transaction ids only grow. So every sweep marks its transaction id with a time of the fleet that is measured
by monotonic clocks: a node lies between two marks, and the server's stamps decide only where between them.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat
from pydantic import Field

from pipeline.attempt import Attempt, Progress
from pipeline.outcome import AttemptOver, Stopping, of_object
from pipeline.records import Record, RewrittenRecord
from zkstate import paths
from zkstate.connection.session import BROKEN, Session
from zkstate.connection.transaction import token
from zkstate.errors import LockLost, Unreachable

MACHINES = 16
"""Machines whose readings are kept; one that is forgotten is a new one."""

HORIZON_MS = 30 * 86_400_000
"""Age of the oldest mark that is kept; no delay is longer than hours."""

RESOLUTION = 4
"""Marks of the age a are kept a / RESOLUTION apart, so that they stay some 60. By that part of it an age may
be too short if the server's clock was set back since."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class FleetMark(Record):
    """The moment of one sweep: ZooKeeper's transaction id, the fleet's time and the server's clock, in ms."""

    zxid: int
    ms: int
    server_ms: int


class MachineReading(Record):
    """A machine's monotonic clock at its last sweep, and the fleet's time at that moment, in ms."""

    monotonic_ms: int
    ms: int


class SweepRecord(RewrittenRecord):
    """`/sweep`: what a sweep leaves to the next. `cursors`: queue -> the last entry that was read."""

    marks: tuple[FleetMark, ...] = ()
    machines: dict[str, MachineReading] = Field(default_factory=dict)
    cursors: dict[str, str] = Field(default_factory=dict)
    redispatched: dict[str, int] = Field(default_factory=dict)
    """Job state -> jobs that sweeps have dispatched again, since the record was created."""


def this_machine() -> str:
    """The name of the monotonic clock that this process reads: the kernel's since its start."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return uuid4().hex  # no Linux: a clock of this process's own


def advance(record: SweepRecord, zxid: int, server_ms: int, machine: str, monotonic_ms: int) -> SweepRecord:
    """The record with a mark for the present, which is transaction `zxid`.

    A machine measures the time since its own last sweep. Only a machine that is new takes the time since
    the last sweep from the server's clock: a jump hastens then by its length, once, and never delays.
    """
    if record.marks and record.marks[-1].zxid >= zxid:
        record = record.model_copy(update={"marks": (), "machines": {}})  # of another ZooKeeper, or restored
    last = record.marks[-1] if record.marks else FleetMark(zxid=zxid, ms=0, server_ms=server_ms)
    own = record.machines.get(machine)
    if own is not None and own.monotonic_ms <= monotonic_ms:
        present = own.ms + monotonic_ms - own.monotonic_ms
    else:
        present = last.ms + max(0, server_ms - last.server_ms)
    ms = max(last.ms, present)
    machines = {**record.machines, machine: MachineReading(monotonic_ms=monotonic_ms, ms=ms)}
    latest = sorted(machines.items(), key=lambda item: item[1].ms)[-MACHINES:]
    marks = _thinned((*record.marks, FleetMark(zxid=zxid, ms=ms, server_ms=server_ms)))
    return record.model_copy(update={"marks": marks, "machines": dict(latest)})


def age_ms(marks: Sequence[FleetMark], zxid: int, written_ms: int) -> int:
    """Milliseconds from the write of a node to the newest mark; `written_ms`: the server's stamp."""
    if zxid > marks[-1].zxid:
        return 0
    before = None
    for mark in marks:
        if mark.zxid >= zxid:
            within = max(0, mark.server_ms - written_ms)
            if before is not None:
                within = min(within, mark.ms - before.ms)
            return marks[-1].ms - mark.ms + within
        before = mark
    return 0


def _thinned(marks: tuple[FleetMark, ...]) -> tuple[FleetMark, ...]:
    """Fewer marks the older they are; the newest always, and none beyond the horizon."""
    newest = marks[-1]
    sparse = [newest]
    for mark, older in pairwise(reversed(marks[:-1])):
        if sparse[-1].ms - older.ms > (newest.ms - sparse[-1].ms) / RESOLUTION:
            sparse.append(mark)
    if len(marks) > 1:
        sparse.append(marks[0])
    return tuple(mark for mark in reversed(sparse) if newest.ms - mark.ms <= HORIZON_MS)


GIVES_WAY = 2
"""Writes to a lock after which its attempt ends, and hands its job back."""

LOCK_WAIT = 20.0
"""Seconds that a worker waits for another holder of the same object; then the job is handed back."""


class AttemptGuard:
    """Created before a lock is taken; once the lock is in doubt, every further check fails.

    The attempt that `pipeline.attempt.Attempt` describes, for work under a lock in ZooKeeper.
    """

    def __init__(self, session: Session, stopping: Callable[[], bool] = lambda: False) -> None:
        self._session = session
        self._standing = session.standing()
        self._stopping = stopping
        self._lock_deleted = threading.Event()
        self._yields = threading.Event()
        self._gives_way = threading.Event()
        self._answers: list[Any] = []
        """Of the requests that set a watch on the lock."""

    def carried(self, stopping: Callable[[], bool]) -> "AttemptGuard":
        """The guard of the attempt at the next state, under the same lock, which is watched already."""
        guard = copy(self)
        guard._stopping = stopping
        return guard

    def watch_lock(self, path: str) -> None:
        """Fail the checks once the lock at `path` is deleted, as by an operator who fails the job.

        Whoever writes to the lock asks the attempt to yield; after a second write the checks fail. The watch
        is set without waiting for the answer; if the lock is missing already, the checks fail too.
        """

        def on_event(event: WatchedEvent) -> None:
            if event.type == EventType.CHANGED:
                self._yields.set()
                self.watch_lock(path)
            else:
                self._lock_deleted.set()

        self._answers.append(self._session.zk.exists_async(path, watch=on_event))

    def yields(self) -> bool:
        return self._yields.is_set()

    def _read_answers(self) -> None:
        """Those that have come: kazoo would wake a thread of its own for each."""
        for answer in [answer for answer in self._answers if answer.ready()]:
            if answer.successful() and answer.value is None:
                self._lock_deleted.set()
            elif answer.successful() and answer.value.version >= GIVES_WAY:
                self._gives_way.set()
            with suppress(ValueError):  # another thread has removed it
                self._answers.remove(answer)

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


@dataclass(frozen=True)
class ServerClock:
    """ZooKeeper's time, in milliseconds since the epoch: one reading, extended by a monotonic clock."""

    read_ms: int
    at: float
    zxid: int = 0
    """The transaction that was the last one at the reading."""
    marks: tuple[FleetMark, ...] = ()
    """The sweeps until the reading: with them no jump of the server's clock changes an age."""

    def now_ms(self) -> int:
        return self.read_ms + int((time.monotonic() - self.at) * 1000)

    def written_ms(self, stat: ZnodeStat) -> int:
        """When a node was written, by this clock as it stands now."""
        return self.read_ms - age_ms(self.marks, stat.mzxid, stat.mtime) if self.marks else stat.mtime


def server_clock(session: Session, path: str, created: float | None = None) -> ServerClock:
    """The clock as the creation of the ephemeral node at `path` shows it.

    `created`: when that was, by `time.monotonic`; without it, a moment ago.
    """
    stat = session.exists(path)
    if stat is None:
        raise Unreachable("the ZooKeeper session was lost")
    return ServerClock(stat.ctime, time.monotonic() if created is None else created, stat.czxid)


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
def exclusive(
    session: Session, kind: str, name: str, attempt: Attempt, wait: float = LOCK_WAIT
) -> Iterator[None]:
    """Hold (kind, name) exclusively; waits for another holder, and raises Later in the end."""
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
    """Delete the lock; LockLost if the record that answers has no such lock.

    A session can outlive an exchange of the record. When the data that have the lock come back, the lock
    would stay for as long as this process lives: so the caller has to drop its session.
    """
    try:
        if _is_mine(session, path, mark):
            session.zk.delete_async(path).get(timeout=session.answer_timeout)
            return
    except NoNodeError:
        pass
    except BROKEN as error:
        raise session.unreachable() from error
    raise LockLost(f"the lock {path} is gone: the session was lost, or another record answers")
