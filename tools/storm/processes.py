"""The processes of a running stack and the peak memory of each, from /proc."""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SAMPLE_INTERVAL = 0.25
"""Seconds between two samples: a decoding process that needs memory lives for a second or more."""


@dataclass
class Observed:
    name: str
    started: str
    """The kernel's start time, which distinguishes the process from a later one with the same id."""
    peak_kb: int = 0


@dataclass
class Observer:
    """A thread that samples the named processes and their descendants."""

    named: Callable[[], Mapping[int, str]]
    """The processes that the stack is running now: pid -> name."""
    observed: dict[int, Observed] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True, name="observer")
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()

    def peaks(self) -> dict[str, float]:
        """The peak of a process of each name, in megabytes (1,000,000 bytes)."""
        peaks: defaultdict[str, float] = defaultdict(float)
        for process in self.observed.values():
            peaks[process.name] = max(peaks[process.name], process.peak_kb * 1024 / 1e6)
        return dict(sorted(peaks.items()))

    def left(self) -> list[str]:
        """The processes that were seen and are still running."""
        return [
            f"{process.name} (process {pid})"
            for pid, process in self.observed.items()
            if _stat(pid)[1:] == (process.started, True)
        ]

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_INTERVAL):
            self.sample()

    def sample(self) -> None:
        names = dict(self.named())
        for pid, parent in sorted(_parents().items()):
            # a child's pid is larger than its parent's, unless pids have wrapped around
            if pid not in names and parent in names:
                names[pid] = f"{names[parent].partition(' ')[0]} {_kind(pid)}"
        for pid, name in names.items():
            _, started, runs = _stat(pid)
            if runs:
                process = self.observed.setdefault(pid, Observed(name, started))
                process.peak_kb = max(process.peak_kb, peak_kb(pid))


def _kind(pid: int) -> str:
    """`decoder` or `process`, a process of the pool."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "process"
    return "decoder" if b"pipeline.decoding" in command else "process"


def _parents() -> dict[int, int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return {pid: parent for pid in pids if (parent := _stat(pid)[0])}


def _stat(pid: int) -> tuple[int, str, bool]:
    """Parent, start time, and whether the process is running; a zombie is not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, "", False
    return int(fields[1]), fields[19], fields[0] != "Z"


def peak_kb(pid: int) -> int:
    """The kernel's record of a process's peak resident memory; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
