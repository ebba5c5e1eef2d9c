"""The cost of processes according to the kernel: CPU including all descendants, and peak memory."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of the processes and their descendants, including ended ones."""
    whole = set(pids)
    stats = {int(path.name): _stat(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    while more := {pid for pid, stat in stats.items() if stat and stat[0] in whole} - whole:
        whole |= more
    return sum(stat[1] for pid in whole if (stat := stats.get(pid)))


def cpu_by_process(pids: Mapping[str, int]) -> dict[str, float]:
    """User and system time by name; NAME_children is the sum over all processes that NAME has started."""
    used: dict[str, float] = {}
    for name, pid in pids.items():
        whole, alone = cpu_seconds([pid]), _ticks(_fields(Path(f"/proc/{pid}"))[11:13])
        used |= {name: alone} | ({f"{name}_children": whole - alone} if whole - alone > 1 / _TICKS else {})
    return used


def _stat(process: Path) -> tuple[int, float] | None:
    """(parent, seconds of CPU including ended children); None for an ended process."""
    try:
        fields = _fields(process)
    except OSError:
        return None
    return int(fields[1]), _ticks(fields[11:15])


def _fields(process: Path) -> list[str]:
    """The fields of /proc/PID/stat, from the state on; see proc(5)."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def _ticks(fields: Iterable[str]) -> float:
    return sum(map(int, fields)) / _TICKS


def children(pid: int) -> list[int]:
    """The running children of this process."""
    stats = {int(path.name): _stat(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    return [child for child, stat in stats.items() if stat and stat[0] == pid]


def peak_megabytes(pid: int) -> float:
    """The process's peak memory (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def megabytes(pid: int) -> float:
    """The process's current memory (VmRSS); 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


def tree(name: str, pid: int) -> dict[str, list[int]]:
    """The process by its name, and its children as NAME_children."""
    started = children(pid)
    return {name: [pid]} | ({f"{name}_children": started} if started else {})
