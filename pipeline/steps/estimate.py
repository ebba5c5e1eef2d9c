"""Estimating: the working storage that the job will need, as far as its sources state sizes; never fails.

The step may wait for a rate limit or for a host that does not answer (RateLimited), but only before the first
answer. After an answer it continues without the sizes that it cannot get, since starting over might never
end.

Rule for the queue: jobs of unknown size and very large jobs yield to others, by PENALTY, which is added to
the priority with which the job entered this state. Only the move out of the state stores the new priority,
and a job that was estimated before keeps its own: repeating the step never adds the penalty twice.
"""

import time
from contextlib import closing

from pipeline.attempt import Attempt, in_parallel
from pipeline.decoding.calls import manifest_reader
from pipeline.manifests.checkm import Row
from pipeline.outcome import Done, RateLimited, StepFailed, Wait
from pipeline.records import Job, PayloadType
from pipeline.states import Event, JobState
from pipeline.steps import earlier_version
from pipeline.steps.context import StepContext
from pipeline.steps.expected_files import expected_files
from pipeline.working_storage.capacity import in_units

PENALTY = 10
"""Added to the priority (00 goes first), as Merritt does for undeclared jobs."""

LAST = 99
"""The largest priority with two digits, because queue entries are sorted as text."""

LARGE = 10 << 30
"""Bytes above which a job waits behind smaller jobs, since it occupies a worker and storage for long."""

CONTAINER_FACTOR = 2
"""A container counts for itself and for its unpacked files, assumed to be as large: most deposited formats
(images, PDF, sound, film) hardly compress. Downloading replaces the estimate by the real size."""

TIME_LIMIT = 300.0
"""Seconds after which no further sizes are requested; they stay unknown."""


def work(job: Job, context: StepContext) -> Done | Wait:
    try:
        earlier = earlier_version.find(job, context)
        if earlier is not None:
            return Done(space_needed=0, message=earlier_version.message(earlier))
        parse = manifest_reader(context.decoder, context.attempt)
        files = expected_files(job, context.settings.working, parse)
    except StepFailed as failure:
        # Downloading will meet the same fault and fail; here the size is just unknown.
        return Done(
            space_needed=0, priority=_new_priority(job, 0, 0), message=f"size unknown: {failure.message}"
        )
    sizes = _sizes(files, context)
    known = [size for size in sizes if size is not None]
    needed = sum(known)
    if job.configuration.payload_type is PayloadType.CONTAINER:
        needed *= CONTAINER_FACTOR
    return Done(
        space_needed=needed,
        priority=_new_priority(job, needed, len(known)),
        message=_message(needed, len(known), len(sizes)),
    )


def _new_priority(job: Job, needed: int, known: int) -> int | None:
    """The job's new priority; None if it does not change."""
    if known and needed <= LARGE:
        return None
    if any((entry.state, entry.event) == (JobState.PROVISIONING, Event.SUCCEED) for entry in job.history):
        return None
    return min(LAST, job.priority + PENALTY)


def _message(needed: int, known: int, files: int) -> str:
    unknown = files - known
    if not known:
        return "size unknown: the source does not say"
    if unknown:
        return f"about {in_units(needed)}; the size of {unknown:,} of {files:,} files is unknown"
    return f"about {in_units(needed)}"


def _sizes(files: tuple[Row, ...], context: StepContext) -> list[int | None]:
    """The files' declared sizes, and for the others the sizes that sources state; None if unknown."""
    deadline = time.monotonic() + TIME_LIMIT

    def ask(file: Row, attempt: Attempt) -> int | None:
        attempt.check()
        return context.fetcher.size(file.url, attempt) if time.monotonic() < deadline else None

    undeclared = [file for file in files if file.size is None]
    answers: list[int | None] = []
    threads = context.settings.download_threads
    with closing(in_parallel(ask, undeclared, threads, context.attempt)) as outcomes:
        try:
            for _, future in outcomes:
                answers.append(future.result())
        except RateLimited:
            if not answers:
                raise
    answers += [None] * (len(undeclared) - len(answers))
    return [*(file.size for file in files if file.size is not None), *answers]
