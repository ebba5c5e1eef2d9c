"""Checks mails and callbacks: each report has one content, and every outcome has its callback."""

from collections import defaultdict
from collections.abc import Iterator

from pipeline.records import Job
from pipeline.states import JobState
from tasks.callback import NOT_DELIVERED
from tools.chaos.acts import Acts
from tools.chaos.final_state import FinalState
from tools.chaos.problem import Category, Problem


def check_notifications(final: FinalState, acts: Acts) -> Iterator[Problem]:
    """Check that a report has one content however often delivered, and every completed job a callback.

    A job that an operator ended in its notification needs none.
    """
    contents: dict[str, set[str]] = defaultdict(set)
    for letter in final.letters:
        contents[letter.name].add(letter.digest)
    for name, several in contents.items():
        if len(several) > 1:
            yield Problem(
                Category.DUPLICATED, name.partition(".")[0], f"{name} was sent with different contents"
            )
    yield from _called(final, acts)


def _called(final: FinalState, acts: Acts) -> Iterator[Problem]:
    called: dict[str, set[str]] = defaultdict(set)
    failures = {call.jid for call in final.calls if call.status == "FAILED"}
    for call in final.calls:
        if call.status == "COMPLETED":
            called[call.jid].add(call.name)
        if call.jid in acts.deleted_jobs and call.jid not in final.jobs:
            continue
        if call.status not in _possible_states(final.jobs.get(call.jid)):
            yield Problem(Category.ILLEGAL, call.jid, f"a callback said {call.status} of it")
    for jid, names in called.items():
        resumed = final.jobs[jid].status.retry_count if jid in final.jobs else 0
        if len(names) > 1 + resumed:
            yield Problem(Category.DUPLICATED, jid, f"callbacks were made as {sorted(names)}")
    for jid, job in final.jobs.items():
        ended = job.status.last_successful_status is JobState.RECORDING  # by an operator, without a callback
        if job.status.status is JobState.COMPLETED and not ended and jid not in called:
            yield Problem(Category.LOST, jid, "no callback was received")
        if _is_owed(job) and jid not in failures:
            yield Problem(
                Category.LOST, jid, "no callback reported its failure, and the history has no reason"
            )


def _is_owed(job: Job) -> bool:
    """Whether a failure needs a callback: not if the history says that the callback failed or was given
    up."""
    status, last = job.status, job.history[-1]
    noted = last.event is None and last.message.startswith(NOT_DELIVERED)
    return (
        status.status is JobState.FAILED
        and status.last_successful_status is not JobState.RECORDING
        and not noted
    )


def _possible_states(job: Job | None) -> Iterator[str]:
    """The states that a callback may report; a failure may have been reported before the job was resumed."""
    if job is not None and job.status.status is JobState.COMPLETED:
        yield "COMPLETED"
    if job is not None and any(entry.state is JobState.FAILED for entry in job.history):
        yield "FAILED"
