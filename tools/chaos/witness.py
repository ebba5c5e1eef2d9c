"""Watches the record during the faults: which process holds which job, and how soon another takes over."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.errors import ArklineError
from pipeline.records import BatchStatus, JobStatus
from pipeline.settings import Settings
from pipeline.states import JOB
from zkstate import codec, paths
from zkstate.connection.session import Session, connect

READ_INTERVAL = 0.3
"""Seconds between two reads: the precision of measured times."""


@dataclass(frozen=True)
class Holder:
    """A job or a batch that a process works on."""

    jid: str
    state: str
    mark: bytes
    pid: int


@dataclass
class Recovery:
    """A job whose holder was killed: when, and when another process acquired it."""

    holder: Holder
    killed: float
    fault: str
    confirmed: bool = False
    """Whether its lock was seen after the kill: the dead process had not released it."""
    recovered: float | None = None

    @property
    def seconds(self) -> float | None:
        return None if self.recovered is None else self.recovered - self.killed


class Witness:
    """A thread with its own session. Times are from time.monotonic()."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._holders: tuple[Holder, ...] = ()
        self._batch_holders: tuple[Holder, ...] = ()
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
        """The jobs and their processes as of the last read."""
        with self._lock:
            return self._holders

    def batch_holders(self) -> tuple[Holder, ...]:
        """The batches and their processes as of the last read; `jid` is the batch's id."""
        with self._lock:
            return self._batch_holders

    def leading_beat(self) -> int | None:
        """The process id of the elected beat as of the last read."""
        with self._lock:
            return self._beat

    def killed(self, pids: Iterable[int], fault: str) -> list[str]:
        """Start measuring how soon the jobs of these dead processes continue; returns the job ids."""
        gone, now = set(pids), time.monotonic()
        with self._lock:
            lost = [Recovery(holder, now, fault) for holder in self._holders if holder.pid in gone]
            self._recoveries += lost
        return [recovery.holder.jid for recovery in lost]

    def recoveries(self) -> list[Recovery]:
        with self._lock:
            return [recovery for recovery in self._recoveries if recovery.confirmed]

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with connect(self._settings) as session:
                    while not self._over.wait(READ_INTERVAL):
                        self._read(session)
            except ArklineError:
                self._over.wait(READ_INTERVAL)

    def _read(self, session: Session) -> None:
        began = time.monotonic()
        holders, beat = _holders(session), _leading_beat(session)
        batch_holders = _batch_holders(session)
        with self._lock:
            self._holders, self._batch_holders, self._beat = holders, batch_holders, beat
            # a read that began before the kill may have seen the lock of a job that has moved since
            pending = [
                recovery
                for recovery in self._recoveries
                if recovery.recovered is None and recovery.killed < began
            ]
        marks = {holder.jid: holder.mark for holder in holders}
        for recovery in pending:
            self._follow(session, recovery, marks.get(recovery.holder.jid))

    def _follow(self, session: Session, recovery: Recovery, mark: bytes | None) -> None:
        if mark == recovery.holder.mark:
            recovery.confirmed = True
            return
        path = paths.job_status(recovery.holder.jid)
        node = session.get_many([path])[0]
        moved = node is None or codec.decode(JobStatus, node[0], path).status != recovery.holder.state
        if mark is not None or moved:
            recovery.recovered = time.monotonic()


def _holders(session: Session) -> tuple[Holder, ...]:
    holders: list[Holder] = []
    for state in JOB.working():
        jids = [jid for _, jid in paths.read_queue_entries(session.children(paths.queue(state)))]
        locks = session.get_many([paths.job_lock(jid) for jid in jids])
        for jid, lock in zip(jids, locks, strict=True):
            if lock is not None and lock[0]:
                holders.append(_holder(jid, state, lock[0]))
    return tuple(holders)


def _batch_holders(session: Session) -> tuple[Holder, ...]:
    bids = session.children(paths.OPEN_BATCHES)
    locks = session.get_many([paths.batch_lock(bid) for bid in bids])
    held = {bid: lock[0] for bid, lock in zip(bids, locks, strict=True) if lock is not None and lock[0]}
    places = [paths.batch_status(bid) for bid in held]
    statuses = session.get_many(places)
    return tuple(
        _holder(bid, codec.decode(BatchStatus, status[0], place).status, held[bid])
        for bid, place, status in zip(held, places, statuses, strict=True)
        if status is not None
    )


def _holder(name: str, state: str, lock: bytes) -> Holder:
    mark, _, by = lock.partition(b" ")
    return Holder(name, state, mark, int(by.rpartition(b":")[2]))


def _leading_beat(session: Session) -> int | None:
    """The process id of the elected contender, from the end of its (the oldest) election node's data."""
    nodes = sorted(session.children(paths.LEADER), key=lambda name: name[-10:])
    node = session.get_many([f"{paths.LEADER}/{nodes[0]}"])[0] if nodes else None
    return int(node[0].rpartition(b":")[2]) if node and node[0] else None
