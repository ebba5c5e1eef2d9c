"""Watch the record during the faults: which process holds which job, and how soon another takes it over."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.errors import ArklineError
from pipeline.records import JobStatus
from pipeline.settings import Settings
from pipeline.states import JOB
from zkstate import codec, paths
from zkstate.session import Session, connect

LOOK = 0.3
"""Seconds between two looks: the precision of what is measured here."""


@dataclass(frozen=True)
class Holder:
    """A job that a process works on."""

    jid: str
    state: str
    mark: bytes
    pid: int


@dataclass
class Recovery:
    """A job whose holder was killed: when, and when somebody else took it up."""

    holder: Holder
    killed: float
    fault: str
    confirmed: bool = False
    """Its lock was seen after the kill: the dead process had not let go of it."""
    taken_up: float | None = None

    @property
    def seconds(self) -> float | None:
        return None if self.taken_up is None else self.taken_up - self.killed


class Witness:
    """A thread with a session of its own. Times are those of time.monotonic()."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._holders: tuple[Holder, ...] = ()
        self._beat: int | None = None
        self._recoveries: list[Recovery] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="witness")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(40)

    def holders(self) -> tuple[Holder, ...]:
        """Who held what at the last look."""
        with self._lock:
            return self._holders

    def leading_beat(self) -> int | None:
        """The process id of the elected beat at the last look."""
        with self._lock:
            return self._beat

    def killed(self, pids: Iterable[int], fault: str) -> list[str]:
        """Measure how soon the jobs of these dead processes go on; the jobs."""
        gone, now = set(pids), time.monotonic()
        with self._lock:
            lost = [Recovery(each, now, fault) for each in self._holders if each.pid in gone]
            self._recoveries += lost
        return [each.holder.jid for each in lost]

    def recoveries(self) -> list[Recovery]:
        with self._lock:
            return [each for each in self._recoveries if each.confirmed]

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with connect(self._settings) as session:
                    while not self._over.wait(LOOK):
                        self._look(session)
            except ArklineError:
                self._over.wait(LOOK)

    def _look(self, session: Session) -> None:
        began = time.monotonic()
        holders, beat = _holders(session), _leading_beat(session)
        with self._lock:
            self._holders, self._beat = holders, beat
            # a look that began before the kill may have seen the lock of a job that has moved since
            open_ones = [each for each in self._recoveries if each.taken_up is None and each.killed < began]
        marks = {each.jid: each.mark for each in holders}
        for each in open_ones:
            self._follow(session, each, marks.get(each.holder.jid))

    def _follow(self, session: Session, each: Recovery, mark: bytes | None) -> None:
        if mark == each.holder.mark:
            each.confirmed = True
            return
        path = paths.job_status(each.holder.jid)
        found = session.get_many([path])[0]
        moved = found is None or codec.decode(JobStatus, found[0], path).status != each.holder.state
        if mark is not None or moved:
            each.taken_up = time.monotonic()


def _holders(session: Session) -> tuple[Holder, ...]:
    found: list[Holder] = []
    for state in JOB.working():
        jids = [paths.read_queue_entry(name)[1] for name in session.children(paths.queue(state))]
        locks = session.get_many([paths.job_lock(jid) for jid in jids])
        for jid, lock in zip(jids, locks, strict=True):
            if lock is not None and lock[0]:
                mark, _, by = lock[0].partition(b" ")
                found.append(Holder(jid, state, mark, int(by.rpartition(b":")[2])))
    return tuple(found)


def _leading_beat(session: Session) -> int | None:
    """The contender whose node in the election is the oldest; its data ends with its process id."""
    nodes = sorted(session.children(paths.LEADER), key=lambda name: name[-10:])
    found = session.get_many([f"{paths.LEADER}/{nodes[0]}"])[0] if nodes else None
    return int(found[0].rpartition(b":")[2]) if found and found[0] else None
