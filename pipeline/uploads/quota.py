"""The quota of an owner in the folder of uploads: current use and limits.

`owners/HASH/ID` marks an upload as the owner's, so that an owner's uploads are found without reading all
uploads. The marker is written after the upload's folder, and again at every write; a process that finds that
the upload no longer exists removes it. Rule: bytes count when they arrive, exactly for the same process and
within seconds for others. No process knowingly exceeds a limit, so that all processes together never use more
than the limit times their number.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline import codes
from pipeline.errors import UsageRefused
from pipeline.settings import Settings
from pipeline.uploads import stored
from pipeline.uploads.stored import faults

MEASURED_FOR = 5.0
"""Seconds for which a measurement is reused, plus what this process has since added."""

OWNERS = 1000
"""Maximum owners whose measurements a process keeps."""

REST = 4
"""A measurement is also reused for this many times its duration."""


class UploadQuota(UsageRefused):
    code = codes.UPLOAD_QUOTA


@dataclass(frozen=True)
class Used:
    """An owner's uploads and files, counted together, and the bytes of the files."""

    entries: int = 0
    size: int = 0

    def __add__(self, other: "Used") -> "Used":
        return Used(self.entries + other.entries, self.size + other.size)

    def __sub__(self, other: "Used") -> "Used":
        return Used(self.entries - other.entries, self.size - other.size)


class Quota:
    """The quota of one owner in one process. Thread-safe; no thread waits while another one measures."""

    def __init__(self, settings: Settings, owner: str) -> None:
        self._settings = settings
        self._root = settings.uploads_folder
        self._owner = owner
        self._guard = threading.Lock()
        self._measuring = threading.Lock()
        self._measured: Used | None = None
        self._added = Used()
        """Added by this process and not in the measurement."""
        self._unwritten = Used()
        """Taken, but possibly not on the disk yet."""
        self._took = 0.0
        self._ended = 0.0
        self._until = 0.0
        """The time, by the monotonic clock, until which the measurement is reused."""

    @contextmanager
    def taking(self, entries: int = 0, size: int = 0) -> Iterator[None]:
        """Count uploads and files, or bytes, that the block creates; UploadQuota if a limit is exceeded."""
        more = Used(entries, size)
        self._take(more)
        try:
            yield
        finally:
            with self._guard:
                self._unwritten -= more

    def _take(self, more: Used) -> None:
        self._measure_if_due()
        if not self._taken(more):
            self.forget()
            self._measure_if_due()
            if not self._taken(more):
                raise self._refusal(more)

    def forget(self) -> None:
        """Measure again soon because something was removed, but not before REST times the last duration."""
        with self._guard:
            self._until = self._ended + REST * self._took

    def note(self, upload: str) -> None:
        """Mark the upload as the owner's."""
        folder = stored.owner_folder(self._root, self._owner)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / upload).touch()

    def _taken(self, more: Used) -> bool:
        with self._guard:
            total = (self._measured or Used()) + self._added + more
            if self._measured and self._limit_exceeded(total, more):
                return False
            self._added += more
            self._unwritten += more
            return True

    def _limit_exceeded(self, total: Used, more: Used) -> str:
        """The setting of the limit that `more` would exceed; empty if none."""
        if more.entries and total.entries > self._settings.uploads_of_owner:
            return "uploads_of_owner"
        if more.size and total.size > self._settings.upload_bytes_of_owner:
            return "upload_bytes_of_owner"
        return ""

    def _measure_if_due(self) -> None:
        if time.monotonic() < self._until or not self._measuring.acquire(blocking=False):
            return
        try:
            with self._guard:
                before, unwritten = self._added, self._unwritten
            began = time.monotonic()
            measured = measure(self._root, self._owner)
            with self._guard:
                self._measured, self._added = measured, self._added - before + unwritten
                self._ended = time.monotonic()
                self._took = self._ended - began
                self._until = self._ended + max(MEASURED_FOR, REST * self._took)
        finally:
            self._measuring.release()

    def _refusal(self, more: Used) -> UploadQuota:
        used = (self._measured or Used()) + self._added
        if self._limit_exceeded(used + more, more) == "uploads_of_owner":
            have, limit = f"{used.entries:,} uploads and files", self._settings.uploads_of_owner
            setting = "ARKLINE_UPLOADS_OF_OWNER"
        else:
            have, limit = f"{used.size:,} bytes", self._settings.upload_bytes_of_owner
            setting = "ARKLINE_UPLOAD_BYTES_OF_OWNER"
        return UploadQuota(
            f"{self._owner} has {have} in the folder of uploads, and may have {limit:,} ({setting}): remove "
            "uploads that are not needed (DELETE /v1/uploads/ID), wait until uploads are removed that no "
            f"unfinished batch needs ({self._settings.upload_days:g} days), or ask an administrator"
        )


class Quotas:
    """The quotas of one process, shared by all its requests. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._guard = threading.Lock()
        self._of: OrderedDict[str, Quota] = OrderedDict()

    def of(self, owner: str) -> Quota:
        """The quota of one owner; beyond OWNERS, the least recently used is dropped."""
        with self._guard:
            quota = self._of.pop(owner, None) or Quota(self._settings, owner)
            self._of[owner] = quota
            while len(self._of) > OWNERS:
                self._of.popitem(last=False)
        return quota


def measure(root: Path, owner: str) -> Used:
    """Measure what the owner has; removes markers of uploads that no longer exist."""
    used = Used(size=sum(_size(path) for path in form_files(root, owner)))
    folder = stored.owner_folder(root, owner)
    with faults(root):
        for note in _entries(folder):
            place = stored.folder_of(root, note.name)
            if not place.exists():
                with suppress(FileNotFoundError):
                    note.unlink()
                continue
            used += _of_upload(place)
    return used


def form_files(root: Path, owner: str) -> Iterator[Path]:
    """Files of the owner's forms that are still arriving."""
    return (root / stored.FORMS).glob(f"{stored.owner_folder(root, owner).name}.*")


def _of_upload(place: Path) -> Used:
    files = [*_entries(place / "files"), *_entries(place / "parts")]
    return Used(
        1 + len(files), _size(place / stored.DRAFT) + sum(_size(file / stored.CONTENT) for file in files)
    )


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
