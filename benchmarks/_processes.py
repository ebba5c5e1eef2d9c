"""What processes cost, as the kernel counts: CPU with all descendants, and the most memory used."""

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of the processes and their descendants, ended ones included."""
    whole = set(pids)
    stats = {int(path.name): _stat(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    while more := {pid for pid, stat in stats.items() if stat and stat[0] in whole} - whole:
        whole |= more
    return sum(stat[1] for pid in whole if (stat := stats.get(pid)))


def _stat(process: Path) -> tuple[int, float] | None:
    """(parent, seconds of CPU with those of ended children), as in proc(5); None for an ended process."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), sum(int(ticks) for ticks in fields[11:15]) / _TICKS


def peak_megabytes(pid: int) -> float:
    """The most memory that the process had at a time (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
