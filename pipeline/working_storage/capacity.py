"""How full working storage is, and whether a job's content fits.

Rule: used bytes and reserved bytes both count, so that many jobs that pass at one moment do not all count on
the same free bytes.
"""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pipeline.outcome import transient
from pipeline.settings import Settings

MEASURED_FOR = 5
"""Seconds that one count of the bytes below a folder is reused: all waiting jobs are checked in a row."""

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Usage:
    """Bytes of working storage: those that can be used, and those in use."""

    total: int
    used: int


def usage(settings: Settings) -> Usage:
    """Usage of the file system; of the folder, if the settings limit its capacity."""
    settings.working.mkdir(parents=True, exist_ok=True)
    if settings.working_capacity:
        return Usage(settings.working_capacity, bytes_below(settings.working))
    disk = shutil.disk_usage(settings.working)
    # `disk.total` includes blocks that only root may use.
    return Usage(disk.used + disk.free, disk.used)


def bytes_below(folder: Path) -> int:
    """Bytes of the files below `folder`, counted at most MEASURED_FOR seconds ago."""
    return _counted(folder, int(time.monotonic() // MEASURED_FOR))


@lru_cache(maxsize=8)
def _counted(folder: Path, _moment: int) -> int:
    return _bytes_below(str(folder))


def _bytes_below(folder: str) -> int:
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += _bytes_below(entry.path)
                else:
                    total += _size(entry)
    except (FileNotFoundError, NotADirectoryError):
        return total  # jobs end while we count, and their folders are removed
    return total


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def fits(need: int, promised: int, space: Usage, threshold: int) -> str | None:
    """None if `need` bytes fit beside the used and the reserved bytes; else why not, for people.

    `promised`: bytes reserved for other jobs and not in `space.used` yet; `threshold`: percentage of working
    storage that may be used.
    """
    limit = space.total * threshold // 100
    if need > limit:
        return (
            f"needs {in_units(need)}, but {threshold} % of working storage is only {in_units(limit)}: it "
            "can never fit; an operator enlarges working storage or raises ARKLINE_WORKING_THRESHOLD, or "
            "the depositor divides the object"
        )
    taken = space.used + promised
    if taken + need <= limit:
        return None
    facts = (
        f"{in_units(space.used)} used and {in_units(promised)} reserved of the {in_units(limit)} "
        f"({threshold} % of working storage) available"
    )
    if not need:
        return f"its size is not known, so it waits until working storage is below its threshold: {facts}"
    return f"needs {in_units(need)}, but {in_units(max(0, limit - taken))} are free: {facts}"


def refusal(need: int, promised: int, settings: Settings) -> str | None:
    """Why `need` bytes do not fit now, with `promised` bytes reserved by all jobs; None if they fit."""
    space = usage(settings)
    reason = fits(need, promised, space, settings.working_threshold)
    if reason is None or not promised:
        return reason
    # Reserved bytes that have arrived are in use already and count once. All files in working storage belong
    # to jobs with a reservation, since directory and reservation are removed together.
    outstanding = max(0, promised - bytes_below(settings.working))
    return fits(need, outstanding, space, settings.working_threshold)


def in_units(count: int) -> str:
    """Bytes for people: `1.5 GB`; units are powers of 1000."""
    size = float(count)
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "bytes" or size >= 99.95 else f"{size:.1f} {unit}"


def is_full(error: OSError) -> bool:
    """True if the write failed for want of space or quota."""
    return error.errno in _FULL


@contextmanager
def full_is_transient(doing: str) -> Iterator[None]:
    """Raise a full disk in this block as a transient failure; `doing` names the work."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise transient(
            f"working storage is full ({error.strerror} while {doing}); "
            "the job continues by itself once there is space"
        ) from error
