"""How full working storage is, and whether a job's content still fits.

Rule: what is counted is what lies there and what is promised and has not arrived yet, so that many jobs
let through at one moment do not all count on the same free bytes.
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
"""Seconds that one count of the bytes below a folder is used: all waiting jobs are looked at in a row."""

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Usage:
    """Bytes of working storage: all that there are for us, and those in use."""

    total: int
    used: int


def usage(settings: Settings) -> Usage:
    """What the file system says, or what lies in the folder if the settings give it a capacity."""
    settings.working.mkdir(parents=True, exist_ok=True)
    if settings.working_capacity:
        return Usage(settings.working_capacity, landed(settings.working))
    disk = shutil.disk_usage(settings.working)
    # `total` has blocks that only root may use; what we can fill is what is used and what is free for us.
    return Usage(disk.used + disk.free, disk.used)


def landed(folder: Path) -> int:
    """Bytes of the files below `folder`, counted at most MEASURED_FOR seconds ago."""
    return _landed(folder, int(time.monotonic() // MEASURED_FOR))


@lru_cache(maxsize=8)
def _landed(folder: Path, _moment: int) -> int:
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
        return total  # jobs end while we count, and their folders go
    return total


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def fits(need: int, promised: int, space: Usage, threshold: int) -> str | None:
    """None if `need` bytes fit beside the used and the promised ones; else why not, for people.

    `promised` is what is promised to other jobs and is not in `space.used` already; `threshold` is the
    percentage of working storage that may be used.
    """
    limit = space.total * threshold // 100
    if need > limit:
        return (
            f"needs {in_units(need)}, but {threshold} % of working storage are only {in_units(limit)}: it "
            "can never fit; an operator enlarges working storage or raises ARKLINE_WORKING_THRESHOLD, or "
            "the depositor divides the object"
        )
    taken = space.used + promised
    if taken + need <= limit:
        return None
    facts = (
        f"{in_units(space.used)} used and {in_units(promised)} promised of the {in_units(limit)} "
        f"({threshold} % of working storage) that may be"
    )
    if not need:
        return f"its size is not known, so it waits until working storage is below its threshold: {facts}"
    return f"needs {in_units(need)}, but {in_units(max(0, limit - taken))} are free: {facts}"


def refusal(need: int, promised: int, settings: Settings) -> str | None:
    """Why `need` bytes do not fit now, `promised` of them being promised to all jobs; None if they do."""
    space = usage(settings)
    reason = fits(need, promised, space, settings.working_threshold)
    if reason is None or not promised:
        return reason
    # What of the promised bytes has arrived is in use already: counted once. Only files are in working
    # storage whose jobs hold a promise, since directory and promise go together.
    outstanding = max(0, promised - landed(settings.working))
    return fits(need, outstanding, space, settings.working_threshold)


def in_units(count: int) -> str:
    """Bytes for people: `1.5 GB`; a thousand of one unit are one of the next."""
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
    """Turn a full disk met in this block into a transient failure; `doing` says what met it."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise transient(
            f"working storage is full ({error.strerror} while {doing}); "
            "once there is space again the job goes on by itself"
        ) from error
