"""The paragraph that `arkline why` prints, and the commands below it, written from the facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from entrypoints.cli.render.humanize import age, counted, duration, listed
from entrypoints.cli.render.remedies import command, hints
from entrypoints.cli.render.why_waiting import WAITING, by, fault
from operations.facts import Explanation, Obstacle, Reason
from pipeline.states import JOB


def text(found: Explanation) -> str:
    """The paragraph, then one line for each command that helps."""
    return "\n".join((paragraph(found), *(f"  {hint}" for hint in _advice(found))))


def document(found: Explanation) -> dict[str, Any]:
    """The facts with the paragraph and the commands, for --json."""
    commands = [spelled for remedy in found.remedies if (spelled := command(remedy))]
    return {**found.model_dump(mode="json"), "text": paragraph(found), "commands": commands}


def paragraph(found: Explanation) -> str:
    sentences = (_opening(found), _REASONS[found.reason](found), *map(_obstacle, found.obstacles))
    return " ".join(filter(None, (*sentences, _closing(found))))


def _opening(found: Explanation) -> str:
    if found.since is None:
        return f"The record of {found.id} is damaged."
    about = ", ".join(
        filter(
            None,
            (
                found.name,
                f"batch {found.bid}" if found.bid else "",
                f"collection {found.profile}" if found.kind == "batch" else "",
            ),
        )
    )
    about = f" ({about})" if about else ""
    spent = duration(age(found.since))
    if found.state in JOB.where(lambda facts: facts.ended):
        return f"{found.id}{about} is {found.state} since {spent} ago."
    return f"{found.id}{about} has been {found.state} for {spent}."


def _closing(found: Explanation) -> str:
    if found.moves_itself:
        return "Nothing has to be done now." if found.afterwards else "Nothing has to be done."
    if found.remedies:
        return "What helps:"
    return ""


def _advice(found: Explanation) -> Iterator[str]:
    if not found.moves_itself:
        yield from hints(found.remedies)
    for hint in hints(found.afterwards):
        yield f"afterwards {hint}"


def _jobs(found: Explanation) -> str:
    states = listed(found.jobs)
    first = f" One of them: {_without_advice(found.first)}" if found.first else ""
    return f"It waits for its jobs: {states}, of {found.total} in all.{first}"


def _without_advice(first: Explanation) -> str:
    return paragraph(first.model_copy(update={"remedies": (), "moves_itself": False}))


def _removing(found: Explanation) -> str:
    return "It was deleted and is being removed from ZooKeeper."


def _resumed(found: Explanation) -> str:
    return f"Jobs were resumed after its report and have not ended ({listed(found.jobs)}).{_example(found)}"


def _outdated(found: Explanation) -> str:
    return f"Its jobs have ended otherwise than its last report says ({listed(found.jobs)})."


def _example(found: Explanation) -> str:
    return f" One of them: {_without_advice(found.first)}" if found.first else ""


def _failed(found: Explanation) -> str:
    kind = f" ({found.failure}: {found.failure.doc})" if found.failure else ""
    if found.kind == "batch":
        return (
            f"Its payload could not be split into jobs{kind}: {fault(found)}. A new submission is required."
        )
    where = f" while {found.failed_in}" if found.failed_in else ""
    failed = f"It failed{where}{kind}: {fault(found)}."
    if not found.resumes_in:
        return f"{failed} The depositor has to correct the content and submit it again."
    changed = (
        f" Profile {found.profile} was changed after the batch started ({', '.join(found.changed_fields)}): "
        "without a renewal the job uses the old one."
        if found.changed_fields
        else ""
    )
    return f"{failed} Once the cause is removed, a resume continues with {found.resumes_in}.{changed}"


def _jobs_failed(found: Explanation) -> str:
    if not any(found.jobs.values()) or not found.first:
        return "Its failed jobs were deleted. Nothing is left to resume."
    return f"Of {counted(found.total or 0, 'job')} failed: {listed(found.jobs)}.{_example(found)}"


def _not_sent(found: Explanation) -> str:
    return f"Its jobs have ended ({listed(found.jobs)}), but {fault(found)}. Forward the report by hand."


def _completed(found: Explanation) -> str:
    if found.kind == "batch":
        return (
            f"Its jobs have ended ({listed(found.jobs)}), and its report is written. Nothing is left to do."
        )
    stored = f"stored as {found.ark}" if found.ark else "stored"
    return f"The object is {stored} and recorded in the inventory. Nothing is left to do."


def _archived(found: Explanation) -> str:
    return f"It was removed from ZooKeeper{by(found)}; the archive has its record. Nothing is left to do."


_REASONS: dict[Reason, Callable[[Explanation], str]] = {
    **WAITING,
    Reason.WAITING_FOR_JOBS: _jobs,
    Reason.BEING_REMOVED: _removing,
    Reason.JOBS_RESUMED: _resumed,
    Reason.REPORT_OUTDATED: _outdated,
    Reason.FAILED_CONTENT: _failed,
    Reason.FAILED_SYSTEM: _failed,
    Reason.FAILED_TRANSIENT: _failed,
    Reason.JOBS_FAILED: _jobs_failed,
    Reason.REPORT_NOT_SENT: _not_sent,
    Reason.COMPLETED: _completed,
    Reason.ARCHIVED: _archived,
}

_OBSTACLES: dict[Reason, str] = {
    Reason.COLLECTION_ON_HOLD: "Collection {} is on hold as well.",
    Reason.QUEUE_PAUSED: "The queue is paused as well.",
    Reason.BROKER_UNREACHABLE: "But Redis at {} does not answer.",
    Reason.NO_BEAT: "But no beat is running, so it is not looked at again.",
    Reason.NO_WORKER: "But no worker consumes queue '{}'.",
    Reason.REPORT_NOT_SENT: "Its report could not be mailed: forward it by hand.",
}


def _obstacle(obstacle: Obstacle) -> str:
    return _OBSTACLES[obstacle.reason].format(obstacle.waits_for)
