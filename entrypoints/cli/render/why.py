"""The text of `arkline why`: a paragraph written from the facts, and the commands that help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from entrypoints.cli.render.humanize import age, counted, duration, listed
from entrypoints.cli.render.remedies import command, hints
from entrypoints.cli.render.why_waiting import WAITING, by, fault
from operations.facts import Explanation, Obstacle, Reason
from pipeline.states import JOB, JobState


def text(facts: Explanation) -> str:
    """The paragraph, then one line for each command that helps."""
    return "\n".join((paragraph(facts), *(f"  {hint}" for hint in _advice(facts))))


def document(facts: Explanation) -> dict[str, Any]:
    """The facts with the paragraph and the commands, for --json."""
    commands = [spelled for remedy in facts.remedies if (spelled := command(remedy))]
    return {**facts.model_dump(mode="json"), "text": paragraph(facts), "commands": commands}


def paragraph(facts: Explanation) -> str:
    sentences = (
        _opening(facts),
        _REASONS[facts.reason](facts),
        *map(_obstacle, facts.obstacles),
    )
    return " ".join(filter(None, (*sentences, _closing(facts))))


def _opening(facts: Explanation) -> str:
    if facts.since is None:
        return f"The record of {facts.id} is damaged."
    about = ", ".join(
        filter(
            None,
            (
                facts.name,
                f"batch {facts.bid}" if facts.bid else "",
                f"collection {facts.profile}" if facts.kind == "batch" else "",
            ),
        )
    )
    about = f" ({about})" if about else ""
    spent = duration(age(facts.since))
    if facts.state in JOB.where(lambda row: row.ended):
        was = "was " if facts.state == JobState.DELETED else ""
        return f"{facts.id}{about} {was}{facts.state} {spent} ago."
    return f"{facts.id}{about} has been {facts.state} for {spent}."


def _closing(facts: Explanation) -> str:
    if facts.reason is Reason.SERVICE_DOWN:
        return ""  # the operator's part is in the sentence before
    if facts.moves_itself:
        return "No action is needed now." if facts.afterwards else "No action is needed."
    if facts.remedies:
        return "What helps:"
    return ""


def _advice(facts: Explanation) -> Iterator[str]:
    if not facts.moves_itself:
        yield from hints(facts.remedies)
    for hint in hints(facts.afterwards):
        yield f"afterwards {hint}"


def _example(facts: Explanation) -> str:
    if facts.first is None:
        return ""
    return (
        f" One of them: {paragraph(facts.first.model_copy(update={'remedies': (), 'moves_itself': False}))}"
    )


def _failed(facts: Explanation) -> str:
    kind = f" ({facts.failure}: {facts.failure.doc})" if facts.failure else ""
    if facts.kind == "batch":
        return (
            f"Its payload could not be split into jobs{kind}: {fault(facts)}. A new submission is required."
        )
    where = f" while {facts.failed_in}" if facts.failed_in else ""
    failed = f"It failed{where}{kind}: {fault(facts)}."
    if not facts.resumes_in:
        return f"{failed} The depositor has to correct the content and submit it again."
    changed = (
        f" Profile {facts.profile} was changed after the batch started ({', '.join(facts.changed_fields)}): "
        "without a renewal the job uses the old one."
        if facts.changed_fields
        else ""
    )
    again = (
        " Its content is no longer in working storage: the resume downloads it again, unless it is stored."
    )
    gone = again if facts.content_gone else ""
    return f"{failed} Once the cause is removed, a resume continues with {facts.resumes_in}.{gone}{changed}"


def _jobs_failed(facts: Explanation) -> str:
    if not any(facts.jobs.values()) or not facts.first:
        return "Its failed jobs were deleted. Nothing is left to resume."
    return f"Of {counted(facts.total or 0, 'job')} failed: {listed(facts.jobs)}.{_example(facts)}"


def _completed(facts: Explanation) -> str:
    if facts.kind == "batch":
        return (
            f"Its jobs have ended ({listed(facts.jobs)}), and its report is written. Nothing is left to do."
        )
    stored = f"stored as {facts.ark}" if facts.ark else "stored"
    return f"The object is {stored} and recorded in the inventory. Nothing is left to do."


_REASONS: dict[Reason, Callable[[Explanation], str]] = {
    **WAITING,
    Reason.WAITING_FOR_JOBS: lambda facts: (
        f"It waits for its jobs: {listed(facts.jobs)}, of {facts.total} in all.{_example(facts)}"
    ),
    Reason.BEING_REMOVED: lambda facts: "It was deleted and is being removed from ZooKeeper.",
    Reason.JOBS_RESUMED: lambda facts: (
        f"Jobs were resumed after its report and have not ended ({listed(facts.jobs)}).{_example(facts)}"
    ),
    Reason.REPORT_MISSING: lambda facts: (
        f"Its jobs have ended ({listed(facts.jobs)}), but no report was sent: {fault(facts)}."
    ),
    Reason.REPORT_OUTDATED: lambda facts: (
        f"The state of its jobs has changed since its last report ({listed(facts.jobs)})."
    ),
    Reason.FAILED_CONTENT: _failed,
    Reason.FAILED_SYSTEM: _failed,
    Reason.FAILED_TRANSIENT: _failed,
    Reason.JOBS_FAILED: _jobs_failed,
    Reason.RECORD_LIMIT: lambda facts: facts.reason.doc,
    Reason.FIXITY_DAMAGED: lambda facts: facts.reason.doc,
    Reason.FIXITY_OVERDUE: lambda facts: facts.reason.doc,
    Reason.REPORT_NOT_SENT: lambda facts: (
        f"Its jobs have ended ({listed(facts.jobs)}), but {fault(facts)}. Forward the report by hand."
    ),
    Reason.COMPLETED: _completed,
    Reason.ARCHIVED: lambda facts: (
        f"It was removed from ZooKeeper{by(facts)}; the archive has its record. Nothing is left to do."
    ),
}

_OBSTACLES: dict[Reason, str] = {
    Reason.COLLECTION_ON_HOLD: "Collection {} is on hold as well.",
    Reason.QUEUE_PAUSED: "The queue is paused as well.",
    Reason.BROKER_UNREACHABLE: "But Redis at {} does not answer.",
    Reason.BROKER_REFUSES: "But Redis at {} refuses writes: {message}",
    Reason.BROKER_FOREIGN: "But its workers wait: {message}.",
    Reason.NO_BEAT: "But no beat is running, so the job is not scheduled again.",
    Reason.SWEEP_LATE: "But no scheduled work was done for {message}, although {} runs.",
    Reason.NO_WORKER: "But no worker consumes queue '{}'.",
    Reason.REPORT_NOT_SENT: "Its report could not be mailed: use update-report, or forward it by hand.",
}


def _obstacle(obstacle: Obstacle) -> str:
    return _OBSTACLES[obstacle.reason].format(obstacle.waits_for, message=obstacle.message)
