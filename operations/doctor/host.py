"""This host: versions, limits, and the folders with their disks.

Nothing is left behind: what a probe writes is removed, and has a name that no job has.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from operations.doctor.line import Line, line, release, unknown
from pipeline.file_system import is_full, opened, write_all
from pipeline.settings import SECRETS, Settings, ignored_settings
from pipeline.working_storage import capacity

LEAST_FILES, LEAST_PROCESSES = 1024, 512
"""Open files of a process, and processes and threads of its user."""

SLOW_SYNC, STALLED_SYNC = 0.05, 1.0
"""Seconds of one fsync: a small job waits for some twenty of them."""

LEAST_PART = 0.05
"""Part of the inodes that should be free."""

STORAGE, LIMITS = "(production.md#storage)", "(production.md#limits)"
INSTALL = "(install.md#one-machine-without-containers)"
MOUNT = f"mount it on this host; the user of the fleet has to own it {STORAGE}"


def versions(_: Settings) -> Iterator[Line]:
    yield release("python", "Python", ".".join(map(str, sys.version_info[:3])), INSTALL)
    packages = {one.name.lower().replace("_", "-"): one.version for one in metadata.distributions()}
    yield line("arkline", packages["arkline"])
    required = [Requirement(text) for text in metadata.requires("arkline") or ()]
    needed = [one for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    wrong = [
        f"{one.name} {packages.get(one.name, 'is absent')}, required {one.specifier}"
        for one in needed
        if packages.get(one.name, "") not in one.specifier
    ]
    fact = "; ".join(wrong) or ", ".join(f"{one.name} {packages[one.name]}" for one in needed)
    step = f"install the wheel into an environment of its own {INSTALL}"
    yield line("libraries", fact, step, wrong=bool(wrong))


def settings_and_secrets(settings: Settings) -> Iterator[Line]:
    ignored = "; ".join(ignored_settings())
    yield line(
        "settings", ignored or "none is ignored", "correct or unset these (settings.md)", warn=bool(ignored)
    )
    folder = os.environ.get(SECRETS)
    files = [settings.zk_tls_key] if settings.zk_tls_key else []
    files += Path(folder).expanduser().glob("arkline_*") if folder else ()
    readable = ", ".join(str(path) for path in files if path.exists() and path.stat().st_mode & 0o004)
    fact = f"every user of this host can read {readable}" if readable else f"{len(files)}, all private"
    step = "take the permission from others: chmod o= FILE (trust.md#which-process-has-which-secret)"
    yield line("secret files", fact, step, warn=bool(readable))


def limits(_: Settings) -> Iterator[Line]:
    """Of this process, and of the workers, beats and web processes on this host that it may read."""
    step = f"raise LimitNOFILE of the units, or the ulimits of the containers {LIMITS}"
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield line("open files", f"{files:,} for this command", step, warn=files < LEAST_FILES)
    name = "open files of the fleet"
    if used := sorted(_open_files(), key=lambda row: row[1] / row[2]):
        number, most, limit = used[-1]
        fact = f"{most:,} of {limit:,} in process {number}, the most of {len(used)}"
        yield line(name, fact, step, warn=limit < LEAST_FILES, wrong=most > 0.7 * limit)
    else:
        yield unknown(name, "this user sees no process of it", f"run this as its user {LIMITS}")
    threads = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    limited = threads != resource.RLIM_INFINITY
    fact = f"{threads:,} for this user" if limited else "no limit"
    step = f"raise LimitNPROC of the units, or pids_limit of the containers {LIMITS}"
    yield line("processes", fact, step, warn=limited and threads < LEAST_PROCESSES)


def _open_files() -> Iterator[tuple[int, int, int]]:
    """Process id, its open files and their limit."""
    programs = {b"tasks.worker_program", b"tasks.beat_leader", b"arkline"}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if programs.isdisjoint((process / "cmdline").read_bytes().split(b"\0")):
                continue
            rows = [row.split() for row in (process / "limits").read_text().splitlines()]
            limit = next(row[3] for row in rows if row[:3] == ["Max", "open", "files"])
            number = len(list((process / "fd").iterdir()))
            yield int(process.name), number, int(limit) if limit.isdecimal() else sys.maxsize
        except OSError:
            continue  # ended meanwhile, or another user's


def folder(settings: Settings, path: Path, use: Path) -> Iterator[Line]:
    """Owner, permissions, renames, fsync and room; `use`: the folder in it where files are written."""
    if not path.is_dir():
        yield unknown("folder", f"{path} is not there: not mounted, or not used yet", MOUNT)
        return
    place = use if use.is_dir() else path
    owner, own = place.stat().st_uid, os.geteuid()
    step = f"run this and the fleet as one user, or: chown -R USER {path} {STORAGE}"
    yield line("owner", f"user {owner} owns {place}, and user {own} runs this", step, warn=owner != own)
    try:
        # its name is new: one with the process id, which containers have again, may be left of a killed probe
        trial = Path(tempfile.mkdtemp(prefix=".arkline-doctor-", dir=place))
        try:
            (trial / "from").mkdir()
            (trial / "from" / "file").touch()
            (trial / "from" / "file").rename(trial / "file")
            apart = trial.stat().st_dev != path.stat().st_dev
            fact = f"{place} and {path} are {'different file systems' if apart else 'one file system'}"
            step = f"mount one file system at {path}, none inside it {STORAGE}"
            yield line("rename", fact, step, wrong=apart)
            yield _synced(trial / "file")
        finally:
            shutil.rmtree(trial)
    except OSError as error:
        step = f"enlarge it, or remove files of other programs {STORAGE}" if is_full(error) else MOUNT
        yield line("writing", f"{place} cannot be written: {error.strerror}", step, wrong=True)
    yield from _space(settings, path)


def _synced(file: Path) -> Line:
    times = []
    with opened(file, os.O_WRONLY) as descriptor:
        for _ in range(7):
            write_all(descriptor, b"x" * 4096)
            began = time.monotonic()
            os.fsync(descriptor)
            times.append(time.monotonic() - began)
    usual = statistics.median(times)
    fact = f"{usual * 1000:.1f} ms, the slowest of {len(times)} {max(times) * 1000:.1f} ms"
    step = f"move it to a faster disk, or find what loads this one {STORAGE}"
    return line("fsync", fact, step, warn=usual > SLOW_SYNC, wrong=usual > STALLED_SYNC)


def _space(settings: Settings, path: Path) -> Iterator[Line]:
    """Free bytes against the largest accepted object, and free inodes."""
    free = room = shutil.disk_usage(path).free
    if path == settings.working:
        usage = capacity.usage(settings)
        room = usage.limit(settings.working_threshold)
        free = max(0, room - usage.used)
    largest, units = settings.object_bytes, capacity.in_units
    fact = f"{units(free)} are free, {units(room)} when idle; an object of up to {units(largest)} is accepted"
    yield line("space", fact, f"enlarge it, or lower ARKLINE_OBJECT_BYTES {STORAGE}", warn=largest > room)
    disk = os.statvfs(path)
    part = disk.f_favail / disk.f_files if disk.f_files else 1.0  # some file systems have no fixed number
    step = f"make a file system with more inodes {STORAGE}"
    yield line("inodes", f"{part:.0%} are free", step, warn=part < LEAST_PART)
