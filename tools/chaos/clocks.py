"""The wall clocks of individual processes, which libfaketime can change while they run."""

from pathlib import Path

_LIBRARY = next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)

BACK = -30 * 60
"""Seconds by which a clock is set back."""

FORWARD = 30 * 60


class Clock:
    """The wall clock of processes started with `environment`; their monotonic clock stays right."""

    def __init__(self, file: Path, library: Path) -> None:
        self._file = file
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # otherwise a waiting Java thread does not sleep
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
        self.set(0)

    def set(self, seconds: int) -> None:
        """Set the clock off by this many seconds; effective within a second."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{seconds:+d}\n")
        written.replace(self._file)


def has_faketime() -> bool:
    return _LIBRARY is not None


def clocks_of(folder: Path, count: int) -> list[Clock]:
    """`count` clocks, or none if this machine lacks libfaketime."""
    if _LIBRARY is None:
        return []
    folder.mkdir(parents=True)
    return [Clock(folder / f"{number}.txt", _LIBRARY) for number in range(1, count + 1)]
