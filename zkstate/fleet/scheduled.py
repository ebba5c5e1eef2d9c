"""Scheduled work: the beat that leads, and what one sweep saves for the next.

The leader is elected by kazoo's recipe, and exits at the first doubt about its session. `/sweep` has the
times of the sweeps and where the last one stopped, whichever process runs the next.
"""

import os
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from kazoo.client import KazooState
from kazoo.protocol.states import ZnodeStat

from zkstate import paths
from zkstate.connection.clock import ServerClock, SweepRecord, advance, this_machine
from zkstate.connection.locks import own_clock
from zkstate.connection.session import Session
from zkstate.errors import Corrupt
from zkstate.record.node import Node, log_damage

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
    """The number of running beats: one of them does scheduled work, the others are standbys."""
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


FRONT = 250
"""Entries at the front of a queue, the most urgent, which every sweep reads."""

PAGE = 750
"""Entries behind the front that one sweep reads: 5,000 are read within seven sweeps."""

SWEEP_LIMIT = 60.0
"""Seconds without a sweep after which scheduled work counts as stopped; beat sends one every 3 seconds."""

MACHINE = this_machine()


def _begin_anew(damage: Corrupt) -> SweepRecord:
    log_damage(damage)
    return SweepRecord()


_SWEEP = Node(paths.SWEEP, SweepRecord, _begin_anew)


class Sweep:
    """One pass: its clock, and the pages that it reads."""

    def __init__(self, session: Session, clock: ServerClock) -> None:
        self._session = session
        stored = _SWEEP.find(session)
        record = stored.content if stored else SweepRecord()
        self._version: int = stored.stat.version if stored else 0
        monotonic_ms = int(clock.at * 1000)
        self._record = advance(record, clock.zxid, clock.read_ms, MACHINE, monotonic_ms)
        self.clock = replace(clock, marks=self._record.marks)
        """The server's clock, with marks, so that its jumps do not change ages."""
        self._cursors: dict[str, str] = {}
        self._redispatched = Counter(self._record.redispatched)

    def page(self, queue: str, names: Sequence[str]) -> Sequence[str]:
        """The front of the sorted `names`, and the page after the one that the last sweep read."""
        front, rest = names[:FRONT], names[FRONT:]
        start = bisect_right(rest, self._record.cursors.get(queue, ""))
        page = rest[start : start + PAGE] or rest[:PAGE]
        if page:
            self._cursors[queue] = page[-1]
        return [*front, *page]

    def count_redispatch(self, state: str) -> None:
        self._redispatched[state] += 1

    def save(self) -> None:
        """Save times and positions for the next sweep, unless a sweep that ran meanwhile has done so."""
        changes = {"cursors": self._cursors, "redispatched": dict(self._redispatched)}
        record = self._record.model_copy(update=changes)
        _SWEEP.replace(self._session, self._version, record)


def last_sweep(session: Session) -> float:
    """Seconds since the last sweep, or the start of the beat, by ZooKeeper's clock; 0 below SWEEP_LIMIT.

    The clock of this host decides only whether ZooKeeper's is asked, which takes a write.
    """
    _, stat = session.get(paths.SWEEP)
    last_ms = max(stat.mtime, started_ms(session))
    if abs(time.time() - last_ms / 1000) < SWEEP_LIMIT:
        return 0.0
    with own_clock(session) as clock:
        seconds: float = (clock.now_ms() - last_ms) / 1000
    return seconds


def redispatched(session: Session) -> dict[str, int]:
    """Job state -> jobs that sweeps have dispatched again, since the record was created."""
    return (_SWEEP.read(session) or SweepRecord()).redispatched
