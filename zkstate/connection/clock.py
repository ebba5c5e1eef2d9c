"""The age of a znode, independent of jumps of the servers' clocks.

ZooKeeper stamps a node with the leader's wall clock, which an operator or NTP may set back or forward. Its
transaction ids only grow. So every sweep marks its transaction id with the fleet's time, which is measured by
monotonic clocks: a node was written between two marks, and the server's stamps only decide where in between.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

from kazoo.protocol.states import ZnodeStat
from pydantic import Field

from pipeline.records import Record, RewrittenRecord
from zkstate.connection.session import Session
from zkstate.errors import Unreachable

MACHINES = 16
"""Maximum machines whose readings are kept; a machine that was dropped counts as a new one."""

HORIZON_MS = 30 * 86_400_000
"""Age of the oldest mark that is kept; no delay is longer than hours."""

RESOLUTION = 4
"""Marks of age a are kept a / RESOLUTION apart, which limits them to some 60. An age may be too short by that
fraction if the server's clock was set back since."""

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
    """`/sweep`: what a sweep saves for the next. `cursors`: queue -> the last entry that was read."""

    marks: tuple[FleetMark, ...] = ()
    machines: dict[str, MachineReading] = Field(default_factory=dict)
    cursors: dict[str, str] = Field(default_factory=dict)
    redispatched: dict[str, int] = Field(default_factory=dict)
    """Job state -> jobs that sweeps have dispatched again, since the record was created."""


def this_machine() -> str:
    """The id of the monotonic clock that this process reads: the kernel's boot id."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return uuid4().hex  # not Linux: as if this process had its own clock


def advance(record: SweepRecord, zxid: int, server_ms: int, machine: str, monotonic_ms: int) -> SweepRecord:
    """The record with a mark for the current time, which is transaction `zxid`.

    A machine measures the time since its own last sweep. Only a new machine takes the time since the last
    sweep from the server's clock: a jump then shortens delays by its length, once, and never extends them.
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
    """Thin out the marks with their age; keep the newest, and none beyond the horizon."""
    newest = marks[-1]
    sparse = [newest]
    for mark, older in pairwise(reversed(marks[:-1])):
        if sparse[-1].ms - older.ms > (newest.ms - sparse[-1].ms) / RESOLUTION:
            sparse.append(mark)
    if len(marks) > 1:
        sparse.append(marks[0])
    return tuple(mark for mark in reversed(sparse) if newest.ms - mark.ms <= HORIZON_MS)


@dataclass(frozen=True)
class ServerClock:
    """ZooKeeper's time, in milliseconds since the epoch: one reading, extended by a monotonic clock."""

    read_ms: int
    at: float
    zxid: int = 0
    """The last transaction at the time of the reading."""
    marks: tuple[FleetMark, ...] = ()
    """The marks of sweeps before the reading: with them, a jump of the server's clock changes no age."""

    def now_ms(self) -> int:
        return self.read_ms + int((time.monotonic() - self.at) * 1000)

    def written_ms(self, stat: ZnodeStat) -> int:
        """When a node was written, by this clock as it stands now."""
        return self.read_ms - age_ms(self.marks, stat.mzxid, stat.mtime) if self.marks else stat.mtime


def server_clock(session: Session, path: str, created: float | None = None) -> ServerClock:
    """The server's clock, read from the creation time of the ephemeral node at `path`.

    `created`: when it was created, by `time.monotonic`; default: a moment ago.
    """
    stat = session.exists(path)
    if stat is None:
        raise Unreachable("the ZooKeeper session was lost")
    return ServerClock(stat.ctime, time.monotonic() if created is None else created, stat.czxid)
