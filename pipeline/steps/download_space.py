"""Working storage and live progress of a download: space is reserved before more than reserved is written.

Rule: a job with the estimated sizes writes nothing to the record here. A job that finds no room gives back
all that it has and waits for room as before its download: two downloads of unknown size that kept half of
working storage each would wait for each other forever.
"""

import shutil
import threading
import time
from collections import deque
from dataclasses import replace
from functools import cache, partial

from pipeline import causes
from pipeline.attempt import Attempt, CheckedAttempt, Progress
from pipeline.errors import ArklineError
from pipeline.manifests.checkm import Row
from pipeline.outcome import Done, Promised, content
from pipeline.records import Job
from pipeline.states import Event
from pipeline.steps.context import StepContext
from pipeline.working_storage.capacity import in_units, measure_again, refusal, usage
from pipeline.working_storage.workspace import Workspace

REPORT_INTERVAL = 1.0
"""Seconds between two reports."""

RATE_WINDOW = 10
"""Number of reports over which the rate is measured."""


class DownloadProgress:
    """The progress of an attempt's download, shared by its threads; reports once per REPORT_INTERVAL."""

    def __init__(self, attempt: Attempt, files: tuple[Row, ...]) -> None:
        self._attempt = attempt
        self._sizes = {file.line: file.size for file in files}
        """Line of a file -> its size as declared, or as its source states it."""
        self._files = 0
        self._bytes: dict[int, int] = {}
        """Line of a file -> its bytes so far."""
        self._samples: deque[tuple[float, int]] = deque(maxlen=RATE_WINDOW)
        """Time and bytes of the last reports."""
        self._mutex = threading.Lock()

    def expect(self, files: tuple[Row, ...]) -> None:
        """Add the files that a bag among the first files lists."""
        with self._mutex:
            self._sizes |= {file.line: file.size for file in files}

    @property
    def _expected(self) -> int | None:
        known = [size for size in self._sizes.values() if size is not None]
        return sum(known) if len(known) == len(self._sizes) else None

    def of(self, file: Row, attempt: Attempt) -> Attempt:
        """The attempt for the download of one file, whose progress counts towards the whole job's."""
        return CheckedAttempt(attempt.check, partial(self.report, file), attempt.yields)

    def complete(self, file: Row, size: int) -> None:
        with self._mutex:
            self._files += 1
            self._bytes[file.line] = self._sizes[file.line] = size

    def report(self, file: Row, progress: Progress) -> None:
        now = time.monotonic()
        with self._mutex:
            self._bytes[file.line] = progress.bytes or self._bytes.get(file.line, 0)
            self._sizes[file.line] = progress.bytes_expected or self._sizes[file.line]
            if not self._samples and sum(self._bytes.values()) == self._expected:
                return  # a download that is complete with its first chunk has no progress to show
            if self._samples and now - self._samples[-1][0] < REPORT_INTERVAL:
                return
            whole = self._whole(file, progress, now)
        self._attempt.report(whole)

    def _whole(self, file: Row, progress: Progress, now: float) -> Progress:
        total = sum(self._bytes.values())
        self._samples.append((now, total))
        start, before = self._samples[0]
        return replace(
            progress,
            file=file.name,
            bytes=total,
            bytes_expected=self._expected,
            files=self._files,
            files_expected=len(self._sizes),
            bytes_per_second=(total - before) / (now - start) if now > start else None,
        )


SMALLEST_STEP = 1 << 20
"""Minimum bytes to reserve beyond those that are about to be written; if there is less room, none."""

FIRST_STEP = 16 << 20

LARGEST_STEP = 1 << 30
"""Bytes. The reservation doubles up to this step, so that a terabyte of unknown size takes 1,000 writes."""

UNPACKED = -1
"""The number for all unpacked files of a container; other files have the numbers of their lines."""


class NoRoom(ArklineError):
    """Working storage has no room for the next bytes of a download."""

    def __init__(self, reason: str, needed: int | None, most: int) -> None:
        super().__init__(reason)
        self.needed = needed
        """Bytes that must be free to download the job again; None if working storage is too small."""
        self.most = most
        """Bytes that fit into empty working storage."""


class DownloadSpace:
    """The job's reservation and the sizes of its files, shared by the threads of one attempt."""

    def __init__(self, job: Job, context: StepContext, files: tuple[Row, ...]) -> None:
        self._job = job
        self._context = context
        self._sizes = {file.line: file.size or 0 for file in files}
        """Number of a file -> its bytes: as declared, or the maximum in this attempt."""
        self._total = sum(self._sizes.values())
        self._reserved = job.space_needed
        self._mutex = threading.Lock()
        self.grew = False
        """Whether the reservation is larger than at the beginning of the attempt."""

    def admit(self, number: int, size: int) -> None:
        """Called before file `number` has `size` bytes; NoRoom if they cannot be reserved."""
        with self._mutex:
            more = size - self._sizes.get(number, 0)
            if more <= 0:
                return
            if self._total + more > self._reserved:
                self._reserve(self._total + more)
            self._sizes[number] = size
            self._total += more

    def admit_unpacked(self, size: int) -> int:
        """Like `admit`, for all unpacked files; returns the bytes that they may have before the next call."""
        self.admit(UNPACKED, size)
        with self._mutex:
            return self._sizes[UNPACKED] + self._reserved - self._total

    def _reserve(self, total: int) -> None:
        """Reserve a step beyond `total` bytes, or less if there is no room for a whole step."""
        record = self._context.job_record
        reason = None
        while True:
            self._context.attempt.check()
            # The sum is read first: if a reservation changes before all are read, the sum is outdated.
            counted = record.promised()
            step, refused = self._largest_step(total, counted)
            if not refused:
                if record.reserve(self._job, total + step, counted):
                    self._reserved, self.grew = total + step, True
                    return
            elif reason:
                raise self._no_room(total, reason)
            else:
                reason = refused
                measure_again()  # the last measurement is some seconds old

    def _largest_step(self, total: int, counted: Promised) -> tuple[int, str | None]:
        """The bytes that fit beyond `total`, and None; or 0, and why not even `total` fits."""
        settings = self._context.settings
        reservations = cache(self._context.job_record.working_storage.reservations)
        left = max(0, self._most() - total)
        smallest = min(SMALLEST_STEP, left)
        step = min(max(self._reserved, FIRST_STEP), LARGEST_STEP, left)
        while reason := refusal(total + step, counted.bytes, reservations, settings, self._job.jid):
            if step == 0:
                return 0, reason
            step = max(step // 2, smallest) if step > smallest else 0
        return step, None

    def _most(self) -> int:
        """Bytes that fit into empty working storage."""
        settings = self._context.settings
        return usage(settings).limit(settings.working_threshold)

    def _no_room(self, total: int, reason: str) -> NoRoom:
        most = self._most()
        # doubled, so that an object is fetched again only a few times
        needed = min(2 * total, most) if total <= most else None
        return NoRoom(reason, needed, most)


def give_back(no_room: NoRoom, workspace: Workspace) -> Done:
    """Remove the job's content; the job waits for room again, or fails if working storage is too small."""
    remove_content(workspace)
    if no_room.needed is None:
        raise content(
            f"the content has more than the {in_units(no_room.most)} that working storage can hold, and its "
            "source did not state the size: check that the answer of the source ends; divide the object, or "
            "ask the operator to enlarge working storage"
        ).because(causes.SPACE_EXCEEDED())
    return Done(
        event=Event.DOWNLOAD_AGAIN,
        space_needed=no_room.needed,
        message="the content has more bytes than were reserved for it, and is downloaded again once there is "
        f"room: {no_room}",
    )


def remove_content(workspace: Workspace) -> None:
    for folder in workspace.content:
        shutil.rmtree(folder, ignore_errors=True)
    measure_again()
