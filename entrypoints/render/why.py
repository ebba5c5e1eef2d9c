"""The sentences of `arkline why` about jobs and batches that have not ended.

The text of `arkline why`: a paragraph written from the facts, and the commands that help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from entrypoints.render.remedies import command, hints
from operations.reasons import Explanation, Obstacle, Reason
from pipeline.humanize import age, ago, counted, duration, in_time, listed, progress
from pipeline.outcome import REMEDIES
from pipeline.states import JOB, JobState
from pipeline.working_storage.capacity import in_units


def by(facts: Explanation) -> str:
    """` by ann@desk 2 hours ago (database is moved)`."""
    who = f" by {facts.holder}" if facts.holder else ""
    when = f" {ago(facts.holder_since)}" if facts.holder_since else ""
    return f"{who}{when}" + (f" ({facts.hold_reason})" if facts.hold_reason else "")


def _spent(facts: Explanation) -> str:
    return duration(age(facts.holder_since)) if facts.holder_since else "some time"


def fault(facts: Explanation) -> str:
    return facts.message.rstrip(".") or "no reason was recorded"


def _turn(facts: Explanation) -> str:
    others = (
        f"{counted(facts.ahead, 'job')} of the same or higher priority {'is' if facts.ahead == 1 else 'are'} "
        "ahead of it"
        if facts.ahead
        else "It is next"
    )
    return (
        f"{others}; {facts.taken} of {facts.limit} places for active jobs are taken (ARKLINE_IN_FLIGHT). "
        "Collections take turns within a priority. It starts when other jobs end."
    )


def _working(facts: Explanation) -> str:
    before = f" {counted(facts.tries, 'earlier attempt')} met a transient fault." if facts.tries else ""
    far = f" {progress(facts.progress)}." if facts.progress else ""
    attempt = facts.tries + facts.redispatches + 1
    nth = f" (attempt {attempt} at this step)" if attempt > 1 else ""
    return f"The {facts.holder} has been working on it for {_spent(facts)}{nth}.{far}{before}"


def _host(facts: Explanation) -> str:
    worker = f"The {facts.holder} is processing it and waits. " if facts.holder else ""
    if not facts.waits_for:
        return f"{worker}Nothing failed: {fault(facts)}. The next request is sent {in_time(facts.when)}."
    if facts.reason is Reason.HOST_DOWN:
        return (
            f"{worker}{facts.waits_for} does not answer ({fault(facts)}). Nothing is counted against it; the "
            f"next request is sent {in_time(facts.when)}."
        )
    if facts.reason is Reason.HOST_BACKING_OFF:
        return (
            f"{worker}{facts.waits_for} asked clients to slow down ({facts.message or 'Retry-After'}); the "
            f"next request is sent {in_time(facts.when)}."
        )
    return (
        f"{worker}All {facts.limit} allowed connections to {facts.waits_for} "
        f"(ARKLINE_HOST_LIMIT, or limits.host_connections in the profile) are in use ({listed(facts.users)})."
    )


def _space(facts: Explanation) -> str:
    if facts.limit is None or facts.taken is None:
        return f"It waits for working storage: {fault(facts)}."
    size = f"It needs {in_units(facts.needed)}" if facts.needed else "Its size is not known"
    free = in_units(max(0, facts.limit - facts.taken))
    held = ", ".join(f"{jid} {in_units(held)}" for jid, held in facts.users.items())
    holders = f"; {held} (`arkline space`)" if held else " (`arkline space`)"
    return (
        f"{size}, and {free} of working storage are free: {in_units(facts.taken)} of the "
        f"allowed {in_units(facts.limit)} are used or reserved{holders}. Smaller jobs start before it."
    )


def _lost(facts: Explanation) -> str:
    before = f" (it was {counted(facts.redispatches, 'time')} before)" if facts.redispatches else ""
    return (
        f"Its worker or its message was lost{before}; the scheduler dispatches it again "
        f"{in_time(facts.when)}."
    )


def _service_down(facts: Explanation) -> str:
    since = f" since {facts.outage_since:%Y-%m-%d %H:%M} UTC" if facts.outage_since else ""
    remedy = REMEDIES.get(facts.waits_for.partition(":")[0], "")
    operator = f" The operator's part: {remedy}." if remedy else ""
    return (
        f"The shared service {facts.waits_for} has been unavailable{since}: {fault(facts)}. "
        f"The {facts.kind} waits however long that takes, counts no try, and continues by itself once the "
        f"service works; the next probe starts {in_time(facts.when)}.{operator}"
    )


def _record_fault(facts: Explanation) -> str:
    since = (
        f" The workers have waited since {facts.outage_since:%Y-%m-%d %H:%M} UTC."
        if facts.outage_since
        else ""
    )
    return (
        f"But what the record in ZooKeeper says of it may be wrong, and nothing is processed: {fault(facts)}."
        f"{since}"
    )


def _no_worker(facts: Explanation) -> str:
    if facts.taken:
        drained = f"{counted(facts.taken, 'worker')} answer{'s' if facts.taken == 1 else ''}, but none does"
        return f"It needs a worker that consumes queue '{facts.waits_for}': {drained}."
    return f"It needs a worker that consumes queue '{facts.waits_for}', and no worker answers."


def _splitting(facts: Explanation) -> str:
    created = facts.jobs.get("created", 0)
    so_far = f"; {counted(created, 'job')} created so far" if created else ""
    return f"The {facts.holder} has been splitting it into jobs for {_spent(facts)}{so_far}."


def _reporting(facts: Explanation) -> str:
    if not facts.holder:
        return "Its last job has ended, and its report starts within seconds."
    return f"The {facts.holder} has been writing its report for {_spent(facts)}."


WAITING: dict[Reason, Callable[[Explanation], str]] = {
    Reason.QUEUE_PAUSED: lambda facts: f"The queue was paused{by(facts)}: no new job starts.",
    Reason.COLLECTION_ON_HOLD: lambda facts: f"Collection {facts.waits_for} was put on hold{by(facts)}.",
    Reason.HOLD_ENDED: lambda facts: f"Collection {facts.waits_for} is no longer on hold.",
    Reason.COLLECTION_AT_QUOTA: lambda facts: (
        f"Collection {facts.waits_for} has {facts.taken} active jobs, and its profile allows {facts.limit} "
        "(limits.jobs_at_work). It starts when one of them ends."
    ),
    Reason.SHARE_TAKEN: lambda facts: (
        f"The {facts.waits_for} has {facts.taken} active jobs, which is its share of the places "
        "(ARKLINE_SHARE_OF_PLACES). It starts when one of them ends."
    ),
    Reason.WAITING_FOR_TURN: _turn,
    Reason.STARTING: lambda facts: "It can continue now and starts within seconds.",
    Reason.BEING_DISPATCHED: lambda facts: "It is being sent to a worker.",
    Reason.BEING_WORKED_ON: _working,
    Reason.WAITING_FOR_HOST: _host,
    Reason.HOST_DOWN: _host,
    Reason.HOST_BACKING_OFF: _host,
    Reason.WAITING_FOR_SPACE: _space,
    Reason.EXCEEDS_SPACE: lambda facts: (
        f"It needs {in_units(facts.needed or 0)}, but working storage may hold only "
        f"{in_units(facts.limit or 0)}: it never fits. Enlarge working storage or raise "
        "ARKLINE_WORKING_THRESHOLD and resume the job, or delete the job and ask the depositor to divide the "
        "object."
    ),
    Reason.BETWEEN_TRIES: lambda facts: (
        f"A step met a transient fault: {fault(facts)}. Try {(facts.taken or 0) + 1} of {facts.limit} "
        f"starts {in_time(facts.when)}; the job fails after the last one."
    ),
    Reason.WAITING_FOR_OBJECT: lambda facts: (
        f"Another job of the same object works on it: {fault(facts)}. It tries again {in_time(facts.when)}, "
        "and the wait counts as no try."
    ),
    Reason.RECORD_FULL: lambda facts: (
        f"Its jobs do not fit into ZooKeeper now: {fault(facts)}. It tries again {in_time(facts.when)}, and "
        "the wait counts as no try."
    ),
    Reason.SERVICE_DOWN: _service_down,
    Reason.RECORD_DAMAGED: lambda facts: (
        f"{fault(facts)}. Restore this znode from a backup, or have it replaced, which ends the job as "
        "failed. `arkline check --record` lists every damaged znode."
    ),
    Reason.RECORD_OUTDATED: _record_fault,
    Reason.RECORD_FOREIGN: _record_fault,
    Reason.WORKERS_BUSY: lambda facts: (
        f"Its message is in queue '{facts.waits_for}', and all {facts.limit} processes that consume this "
        "queue are busy. More workers would help."
    ),
    Reason.LOST_WORKER: _lost,
    Reason.NO_WORKER: _no_worker,
    Reason.BROKER_UNREACHABLE: lambda facts: (
        f"Redis at {facts.waits_for} does not answer, so no worker receives work. Nothing is lost: "
        "it continues by itself once Redis is back."
    ),
    Reason.BROKER_REFUSES: lambda facts: (
        f"Redis at {facts.waits_for} refuses writes, so no worker receives work: {fault(facts)}. Nothing is "
        "lost: it continues by itself once Redis accepts writes."
    ),
    Reason.BROKER_FOREIGN: lambda facts: (
        f"The workers of this deployment wait, because {fault(facts)}. Nothing is lost."
    ),
    Reason.NO_BEAT: lambda facts: (
        "No beat is running, so nothing is dispatched, retried or cleaned up on schedule."
    ),
    Reason.SWEEP_LATE: lambda facts: (
        f"{facts.waits_for} runs, but no scheduled work was done for {facts.message}: nothing is dispatched, "
        "retried or cleaned up on schedule."
    ),
    Reason.BEING_SPLIT: _splitting,
    Reason.REPORTING: _reporting,
}


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
