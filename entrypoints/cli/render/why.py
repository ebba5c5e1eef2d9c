"""The paragraph that `arkline why` prints, and the commands below it, written from the facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from entrypoints.cli.render.humanize import ago, counted, duration, in_time, listed
from entrypoints.cli.render.progress import progress
from entrypoints.cli.render.remedies import command, hints
from operations.facts import Explanation, Obstacle, Reason
from operations.wording import age
from pipeline.states import JOB
from pipeline.working_storage.capacity import in_units


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


def _by(found: Explanation) -> str:
    """` by ann@desk 2 hours ago (database is moved)`."""
    who = f" by {found.holder}" if found.holder else ""
    when = f" {ago(found.holder_since)}" if found.holder_since else ""
    return f"{who}{when}" + (f" ({found.hold_reason})" if found.hold_reason else "")


def _fault(found: Explanation) -> str:
    return found.message.rstrip(".") or "no reason was recorded"


def _on_hold(found: Explanation) -> str:
    return f"Collection {found.waits_for} was put on hold{_by(found)}."


def _turn(found: Explanation) -> str:
    others = (
        f"{counted(found.ahead, 'job')} of the same or higher priority {'is' if found.ahead == 1 else 'are'} "
        "before it"
        if found.ahead
        else "It is next"
    )
    return (
        f"{others}; {found.taken} of {found.limit} places for active jobs are taken (ARKLINE_IN_FLIGHT). "
        "Collections take turns within a priority. It starts when other jobs end."
    )


def _starting(found: Explanation) -> str:
    return "It can continue now and starts within seconds."


def _working(found: Explanation) -> str:
    spent = duration(age(found.holder_since)) if found.holder_since else "some time"
    before = f" {counted(found.tries, 'earlier attempt')} met a transient fault." if found.tries else ""
    far = f" {progress(found.progress)}." if found.progress else ""
    return f"The {found.holder} has been working on it for {spent} (attempt {found.attempt}).{far}{before}"


def _host(found: Explanation) -> str:
    worker = f"The {found.holder} has it and waits. " if found.holder else ""
    if not found.waits_for:
        return f"{worker}Nothing failed: {_fault(found)}. It asks again {in_time(found.when)}."
    if found.reason is Reason.HOST_BACKING_OFF:
        return (
            f"{worker}{found.waits_for} asked not to be contacted for a while; it is asked again "
            f"{in_time(found.when)}."
        )
    return (
        f"{worker}All {found.limit} connections that may be open to {found.waits_for} "
        f"(ARKLINE_HOST_LIMIT, or limits.host_connections in the profile) are in use ({listed(found.users)})."
    )


def _space(found: Explanation) -> str:
    if found.limit is None or found.taken is None:
        return f"It waits for working storage: {_fault(found)}."
    size = f"It needs {in_units(found.needed)}" if found.needed else "Its size is not known"
    free = in_units(max(0, found.limit - found.taken))
    return (
        f"{size}, and {free} of working storage are free: {in_units(found.taken)} of the "
        f"{in_units(found.limit)} that may be used are used or reserved (`arkline space`). "
        "Smaller jobs pass it meanwhile."
    )


def _too_large(found: Explanation) -> str:
    return (
        f"It needs {in_units(found.needed or 0)}, but working storage may hold only "
        f"{in_units(found.limit or 0)}: it never fits. Enlarge working storage or raise "
        "ARKLINE_WORKING_THRESHOLD, or stop the job and have the object divided."
    )


def _between_tries(found: Explanation) -> str:
    return (
        f"A step met a fault that may pass: {_fault(found)}. Try {(found.taken or 0) + 1} of {found.limit} "
        f"starts {in_time(found.when)}; after the last one it fails."
    )


def _damaged(found: Explanation) -> str:
    return (
        f"{_fault(found)}. Restore this znode from a backup of ZooKeeper; `arkline audit` lists every "
        "damaged one."
    )


def _busy(found: Explanation) -> str:
    return (
        f"Its message is in queue '{found.waits_for}', and all {found.limit} processes that consume this "
        "queue are busy. More workers would help."
    )


def _lost(found: Explanation) -> str:
    before = f" (it was {counted(found.redispatches, 'time')} before)" if found.redispatches else ""
    return (
        f"Its worker or its message was lost{before}; the scheduler dispatches it again "
        f"{in_time(found.when)}."
    )


def _no_worker(found: Explanation) -> str:
    if found.taken:
        drained = f"{counted(found.taken, 'worker')} answer{'s' if found.taken == 1 else ''}, but none does"
        return f"It needs a worker that consumes queue '{found.waits_for}': {drained}."
    return f"It needs a worker that consumes queue '{found.waits_for}', and no worker answers."


def _no_redis(found: Explanation) -> str:
    return (
        f"Redis at {found.waits_for} does not answer, so no worker can be given work. Nothing is lost: "
        "it continues by itself once Redis is back."
    )


def _no_beat(found: Explanation) -> str:
    return "No beat is running, so nothing is dispatched, retried or cleaned up on schedule."


def _splitting(found: Explanation) -> str:
    spent = duration(age(found.holder_since)) if found.holder_since else "some time"
    created = found.jobs.get("created", 0)
    so_far = f"; {counted(created, 'job')} created so far" if created else ""
    return f"The {found.holder} has been splitting it into jobs for {spent}{so_far}."


def _reporting(found: Explanation) -> str:
    if not found.holder:
        return "Its last job has ended, and its report starts within seconds."
    spent = duration(age(found.holder_since)) if found.holder_since else "some time"
    return f"The {found.holder} has been writing its report for {spent}."


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
            f"Its payload could not be split into jobs{kind}: {_fault(found)}. A new submission is required."
        )
    where = f" while {found.failed_in}" if found.failed_in else ""
    failed = f"It failed{where}{kind}: {_fault(found)}."
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
    return f"Its jobs have ended ({listed(found.jobs)}), but {_fault(found)}. Forward the report by hand."


def _completed(found: Explanation) -> str:
    if found.kind == "batch":
        return (
            f"Its jobs have ended ({listed(found.jobs)}), and its report is written. Nothing is left to do."
        )
    stored = f"stored as {found.ark}" if found.ark else "stored"
    return f"The object is {stored} and recorded in the inventory. Nothing is left to do."


def _archived(found: Explanation) -> str:
    return f"It was removed from ZooKeeper{_by(found)}; the archive has its record. Nothing is left to do."


_REASONS: dict[Reason, Callable[[Explanation], str]] = {
    Reason.QUEUE_PAUSED: lambda found: f"The queue was paused{_by(found)}: no new job starts.",
    Reason.COLLECTION_ON_HOLD: _on_hold,
    Reason.HOLD_ENDED: lambda found: f"Collection {found.waits_for} is not on hold any more.",
    Reason.COLLECTION_AT_QUOTA: lambda found: (
        f"Collection {found.waits_for} has {found.taken} active jobs, and its profile allows {found.limit} "
        "(limits.jobs_at_work). It starts when one of them ends."
    ),
    Reason.WAITING_FOR_TURN: _turn,
    Reason.STARTING: _starting,
    Reason.BEING_DISPATCHED: lambda found: "It is being handed to a worker.",
    Reason.BEING_WORKED_ON: _working,
    Reason.WAITING_FOR_HOST: _host,
    Reason.HOST_BACKING_OFF: _host,
    Reason.WAITING_FOR_SPACE: _space,
    Reason.EXCEEDS_SPACE: _too_large,
    Reason.BETWEEN_TRIES: _between_tries,
    Reason.RECORD_DAMAGED: _damaged,
    Reason.WORKERS_BUSY: _busy,
    Reason.LOST_WORKER: _lost,
    Reason.NO_WORKER: _no_worker,
    Reason.BROKER_UNREACHABLE: _no_redis,
    Reason.NO_BEAT: _no_beat,
    Reason.BEING_SPLIT: _splitting,
    Reason.WAITING_FOR_JOBS: _jobs,
    Reason.REPORTING: _reporting,
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
