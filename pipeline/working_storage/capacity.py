"""How full working storage is, and whether a job's content fits.

Rule: a job counts with its bytes on the disk and with its outstanding bytes, which are reserved and not yet
on the disk. Both are counted per job, so that bytes that one job has beyond its reservation never hide what
another job was promised.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.file_system import is_full, mount_faults, sync, write_file
from pipeline.outcome import Later, Service, WaitKind

if TYPE_CHECKING:
    from pipeline.settings import Settings

MEASURED_FOR = 5
"""Seconds for which a measurement of the disk is reused: all waiting jobs are checked in a row."""

REST = 4
"""A measurement is also reused for this many times its duration, so that a large folder takes only a part of
one processor."""

OUTSIDE_OF_JOBS = ""
"""The key for files that belong to no job."""

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
SPACE_WAIT = 30.0
"""Seconds after which a job that found working storage full is retried."""


@dataclass(frozen=True)
class Usage:
    """The usable bytes of working storage, and those in use."""

    total: int
    used: int

    def limit(self, threshold: int) -> int:
        """Bytes that may be used or reserved; `threshold`: percent of working storage."""
        return self.total * threshold // 100


@dataclass(frozen=True)
class Occupancy(Usage):
    """Usage at one moment, with the bytes in the working directory of every job."""

    on_disk: Mapping[str, int] = field(default_factory=dict)
    """JID -> bytes."""

    def outstanding(self, reservations: Mapping[str, int], except_for: str = "") -> dict[str, int]:
        """Job -> bytes that are reserved and have not arrived yet; jobs without any are left out."""
        lacking = {jid: size - self.on_disk.get(jid, 0) for jid, size in reservations.items()}
        return {jid: size for jid, size in lacking.items() if size > 0 and jid != except_for}


def usage(settings: Settings) -> Usage:
    """Usage of the file system, or of the folder if the settings limit its capacity."""
    with working_storage_faults(settings):
        if not settings.working_capacity:
            return _of_disk(settings.working)
        measured = occupancy(settings)
        return Usage(measured.total, measured.used)


def _of_disk(working: Path) -> Usage:
    disk = shutil.disk_usage(working)
    # `disk.total` includes blocks that only root may use.
    return Usage(disk.used + disk.free, disk.used)


def check_writable(settings: Settings) -> None:
    """ServiceDown unless a file can be written, synced and removed; a full disk is no fault."""
    probe = settings.working / f".probe-{uuid.uuid4().hex}"
    with working_storage_faults(settings), suppress_full():
        try:
            write_file(probe, b"arkline")
            sync(probe)
        finally:
            probe.unlink(missing_ok=True)


def occupancy(settings: Settings) -> Occupancy:
    """Usage and the bytes of every job, measured together; at most MEASURED_FOR seconds old, or the last one.

    Bytes that arrive or are removed later change used and outstanding bytes by the same number, so that
    reservations read after the measurement are counted correctly.
    """
    return _MEASUREMENTS.of(settings.working, settings.working_capacity)


def usage_now(settings: Settings) -> Usage | None:
    """Like `usage`, without waiting; None while another thread makes the first measurement."""
    if not settings.working_capacity:
        return usage(settings)
    with working_storage_faults(settings):
        return occupancy_now(settings)


def occupancy_now(settings: Settings) -> Occupancy | None:
    """Like `occupancy`, without waiting; None while another thread makes the first measurement."""
    return _MEASUREMENTS.known(settings.working, settings.working_capacity)


def measure_again() -> None:
    """Discard the measurements, because files were removed."""
    _MEASUREMENTS.forget()


class _Measurements:
    """The last measurement of every folder. One thread at a time measures while the others use the last one.

    A key is a folder and its capacity in the settings.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._measuring: dict[tuple[Path, int], threading.Lock] = {}
        self._last: dict[tuple[Path, int], tuple[Occupancy, float]] = {}
        """Key -> measurement, and the time, by the monotonic clock, until which it is reused."""
        self._forgotten = 0

    def of(self, folder: Path, capacity: int) -> Occupancy:
        known = self.known(folder, capacity)
        if known is not None:
            return known
        with self._measuring[folder, capacity]:
            return self._measure((folder, capacity))

    def known(self, folder: Path, capacity: int) -> Occupancy | None:
        """The measurement, without waiting; None while another thread makes the first one."""
        key = folder, capacity
        with self._guard:
            measuring = self._measuring.setdefault(key, threading.Lock())
            last = self._last.get(key)
        if last is not None and time.monotonic() < last[1]:
            return last[0]
        if not measuring.acquire(blocking=False):
            return last[0] if last else None
        try:
            return self._measure(key)
        finally:
            measuring.release()

    def _measure(self, key: tuple[Path, int]) -> Occupancy:
        began = time.monotonic()
        with self._guard:
            last, forgotten = self._last.get(key), self._forgotten
        if last is not None and began < last[1]:
            return last[0]  # measured while this thread waited
        measured = _measured(*key)
        ended = time.monotonic()
        with self._guard:
            # If it has been discarded since, the next caller measures again.
            reused = max(MEASURED_FOR, (ended - began) * REST) if forgotten == self._forgotten else 0.0
            self._last[key] = measured, ended + reused
        return measured

    def forget(self) -> None:
        """Have the next caller measure; until then, others still use the last measurement."""
        with self._guard:
            self._forgotten += 1
            self._last = {key: (measured, 0.0) for key, (measured, _) in self._last.items()}


_MEASUREMENTS = _Measurements()


def _measured(working: Path, capacity: int) -> Occupancy:
    # The files are counted before the disk: what arrives in between counts twice and is never missed.
    on_disk = _counted(working)
    if capacity:
        return Occupancy(capacity, sum(on_disk.values()), on_disk)
    space = _of_disk(working)
    return Occupancy(space.total, space.used, on_disk)


def _counted(folder: Path) -> Mapping[str, int]:
    """Job -> bytes below `folder`, in which a job's folder is `BID/JID`."""
    counts: Counter[str] = Counter()
    for parent, _, names in os.walk(folder, onerror=_raise_unless_gone):
        jid = next(iter(Path(parent).relative_to(folder).parts[1:2]), OUTSIDE_OF_JOBS)
        for name in names:
            with suppress(FileNotFoundError):
                counts[jid] += os.lstat(f"{parent}/{name}").st_size
    return counts


def _raise_unless_gone(error: OSError) -> None:
    """Ignore missing folders: jobs end, and their folders are removed, while their bytes are counted."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def never_fits(need: int, settings: Settings, space: Usage | None = None) -> str | None:
    """Why `need` bytes do not fit into empty working storage, for people; None if they do.

    `space`: working storage as measured before; by default it is measured.
    """
    limit = (space or usage(settings)).limit(settings.working_threshold)
    if need <= limit:
        return None
    return (
        f"needs {in_units(need)}, but {settings.working_threshold} % of working storage is only "
        f"{in_units(limit)}: it can never fit; an operator enlarges working storage or raises "
        "ARKLINE_WORKING_THRESHOLD and resumes the job, or the depositor divides the object"
    )


def fits(need: int, outstanding: int, space: Usage, threshold: int) -> str | None:
    """None if `need` bytes fit beside the used and the outstanding bytes; else why not, for people.

    `outstanding`: bytes reserved for other jobs and not yet in `space.used`; `threshold`: percentage of
    working storage that may be used.
    """
    limit = space.limit(threshold)
    taken = space.used + outstanding
    if taken + need <= limit:
        return None
    facts = (
        f"{in_units(space.used)} used and {in_units(outstanding)} reserved of the {in_units(limit)} "
        f"({threshold} % of working storage) available"
    )
    if not need:
        return f"its size is not known, so it waits until working storage is below its threshold: {facts}"
    return f"needs {in_units(need)}, but {in_units(max(0, limit - taken))} are free: {facts}"


def refusal(
    need: int, promised: int, reservations: Callable[[], Mapping[str, int]], settings: Settings, jid: str = ""
) -> str | None:
    """Why `need` bytes for job `jid` do not fit now beside the reservations of all jobs; None if they fit.

    `promised`: the sum of the reservations, which are read only if the sum does not decide. Bytes that the
    job already has on the disk count as its own.
    """
    if fits(need, promised, usage(settings), settings.working_threshold) is None:
        return None  # even if not one reserved byte has arrived
    space = occupancy(settings)
    own = space.on_disk.get(jid, 0)
    outstanding = sum(space.outstanding(reservations(), except_for=jid).values())
    return fits(max(0, need - own), outstanding, space, settings.working_threshold)


def holders(reservations: Mapping[str, int], on_disk: Mapping[str, int]) -> dict[str, int]:
    """Job -> bytes that it holds: the reserved bytes, or those on the disk if more; largest first."""
    held = {jid: max(reservations.get(jid, 0), on_disk.get(jid, 0)) for jid in {*reservations, *on_disk}}
    held.pop(OUTSIDE_OF_JOBS, None)
    return dict(sorted(held.items(), key=lambda entry: (-entry[1], entry[0])))


def in_units(count: int) -> str:
    """Bytes for people: `1.5 GB`; units are powers of 1000."""
    if count == 1:
        return "1 byte"
    size = float(count)
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "bytes" or size >= 99.95 else f"{size:.1f} {unit}"


def working_storage_faults(settings: Settings) -> AbstractContextManager[None]:
    """Raise ServiceDown for a fault of working storage's file system in this block."""
    return mount_faults(Service.WORKING_STORAGE, settings.working, "working storage")


@contextmanager
def suppress_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise


@contextmanager
def full_waits(doing: str) -> Iterator[None]:
    """Raise a full disk in this block as Later: the job waits for room. `doing` names the work."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise no_room(f"{error.strerror} while {doing}") from error


def no_room(reason: str) -> Later:
    message = f"working storage is full ({reason}); the job continues by itself once there is space"
    return Later(WaitKind.SPACE, "", message, SPACE_WAIT)
