"""Estimating: how much working storage the job will need, as far as anybody can tell; it never fails.

It may have to wait for its turn with a host (NotYet), but only before the first question: whoever was asked
something and cannot go on does without the rest, as beginning anew might never come to an end.

Rule for the queue: a job of unknown size and a very large one let others go first, by PENALTY. Both are
added to the priority with which the job came to this state. That is stored only by the move out of the
state, to which no event leads back, so doing the step again after a crash adds nothing twice.
"""

import time
from contextlib import closing

from pipeline.attempt import Attempt
from pipeline.outcome import Done, RateLimited, StepFailed, Wait
from pipeline.parallel import in_parallel
from pipeline.records import Job, PayloadType
from pipeline.steps.context import StepContext
from pipeline.steps.expected_files import FileSpec, wanted
from pipeline.working_storage.capacity import in_units

PENALTY = 10
"""Added to the priority (00 goes first), as Merritt does for unsized jobs."""

LAST = 99
"""The largest priority that has two digits, as queue entries are sorted as text."""

LARGE = 10 << 30
"""Bytes from which a job lets others go first: it keeps a worker and the storage for long."""

CONTAINER_FACTOR = 2
"""A container counts for itself and for what is unpacked of it, taken to be as large: what is deposited most
(images, PDF, sound, film) hardly packs. Downloading replaces the estimate by what there really is."""

PATIENCE = 300.0
"""Seconds spent on asking for sizes; what is not known by then stays unknown."""


def work(job: Job, context: StepContext) -> Done | Wait:
    try:
        files = wanted(job)
    except StepFailed as failure:
        # Downloading reads the same and can fail; here, not knowing is the answer.
        return Done(space_needed=0, priority=_later(job, 0, 0), message=f"size unknown: {failure.message}")
    sizes = _sizes(files, context)
    known = [size for size in sizes if size is not None]
    needed = sum(known)
    if job.configuration.payload_type is PayloadType.CONTAINER:
        needed *= CONTAINER_FACTOR
    return Done(
        space_needed=needed,
        priority=_later(job, needed, len(known)),
        message=_told(needed, len(known), len(sizes)),
    )


def _later(job: Job, needed: int, known: int) -> int | None:
    """The job's new priority, if it changes."""
    if known and needed <= LARGE:
        return None
    return min(LAST, job.priority + PENALTY)


def _told(needed: int, known: int, files: int) -> str:
    unknown = files - known
    if not known:
        return "size unknown: the source does not tell it"
    if unknown:
        return f"about {in_units(needed)}; the size of {unknown:,} of {files:,} files is unknown"
    return f"about {in_units(needed)}"


def _sizes(files: tuple[FileSpec, ...], context: StepContext) -> list[int | None]:
    """The declared size of each file, or what its source says."""
    deadline = time.monotonic() + PATIENCE

    def ask(file: FileSpec, attempt: Attempt) -> int | None:
        attempt.check()
        return context.fetcher.size(file.url, attempt) if time.monotonic() < deadline else None

    unsized = [file for file in files if file.size is None]
    asked: list[int | None] = []
    threads = context.settings.download_threads
    with closing(in_parallel(ask, unsized, threads, context.attempt)) as outcomes:
        try:
            for _, future in outcomes:
                asked.append(future.result())
        except RateLimited:
            if not asked:
                raise
    asked += [None] * (len(unsized) - len(asked))
    return [*(file.size for file in files if file.size is not None), *asked]
