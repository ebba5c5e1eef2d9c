"""Live progress of a job's downloads, added up over its files."""

import threading
import time
from collections import deque
from dataclasses import replace
from functools import partial

from pipeline.attempt import Attempt, CheckedAttempt, Progress
from pipeline.steps.expected_files import FileSpec

REPORT_INTERVAL = 1.0
"""Seconds between two reports."""

RATE_WINDOW = 10
"""Reports over which the rate is measured."""


class DownloadProgress:
    """Shared by the threads of one attempt; reports at most once in REPORT_INTERVAL."""

    def __init__(self, attempt: Attempt, files: tuple[FileSpec, ...]) -> None:
        self._attempt = attempt
        sizes = [file.size for file in files]
        self._expected = None if None in sizes else sum(size or 0 for size in sizes)
        self._files_expected = len(files)
        self._files = 0
        self._bytes: dict[int, int] = {}
        """Line of a file -> its bytes so far."""
        self._samples: deque[tuple[float, int]] = deque(maxlen=RATE_WINDOW)
        """Time and bytes of the last reports."""
        self._mutex = threading.Lock()

    def expect(self, files: tuple[FileSpec, ...]) -> None:
        """Add files that a bag among the first files lists."""
        sizes = [file.size for file in files]
        with self._mutex:
            more = None if None in sizes else sum(size or 0 for size in sizes)
            self._expected = None if None in (self._expected, more) else (self._expected or 0) + (more or 0)
            self._files_expected += len(files)

    def of(self, file: FileSpec, attempt: Attempt) -> Attempt:
        """The attempt for the download of one file; what is reported to it counts for the whole job."""
        return CheckedAttempt(attempt.check, partial(self.report, file), attempt.yields)

    def complete(self, file: FileSpec, size: int) -> None:
        with self._mutex:
            self._files += 1
            self._bytes[file.line] = size

    def report(self, file: FileSpec, progress: Progress) -> None:
        now = time.monotonic()
        with self._mutex:
            self._bytes[file.line] = progress.bytes
            if not self._samples and sum(self._bytes.values()) == self._expected:
                return  # a download that is over with its first piece has no progress to show
            if self._samples and now - self._samples[-1][0] < REPORT_INTERVAL:
                return
            whole = self._whole(file, progress, now)
        self._attempt.report(whole)

    def _whole(self, file: FileSpec, progress: Progress, now: float) -> Progress:
        total = sum(self._bytes.values())
        self._samples.append((now, total))
        start, before = self._samples[0]
        return replace(
            progress,
            file=file.name,
            bytes=total,
            bytes_expected=self._expected,
            files=self._files,
            files_expected=self._files_expected,
            bytes_per_second=(total - before) / (now - start) if now > start else None,
        )
