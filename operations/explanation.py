"""Why a job or a batch is where it is, as facts, and the sentences made from them.

The API returns the facts; `entrypoints/render` adds the commands, and a page its buttons.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pydantic import Field

from operations.reasons import Reason
from pipeline.attempt import Progress
from pipeline.causes import FailureCause
from pipeline.checks import CheckSummary
from pipeline.errors import Action, Remedy
from pipeline.humanize import age, ago, counted, duration, in_time, listed, progress
from pipeline.names import quote_name
from pipeline.outcome import REMEDIES
from pipeline.records import Batch, Job, Record
from pipeline.states import FailureKind, phrase
from pipeline.working_storage.capacity import in_units


class Obstacle(Record):
    """Something besides the reason itself that keeps a job or a batch from moving."""

    reason: Reason
    waits_for: str = ""
    message: str = ""
    """Why, in the words of the server or the process that said so."""


class Cause(Record):
    """Why something is where it is. Which of the optional facts are given depends on `reason`."""

    reason: Reason
    message: str = ""
    """The last fault, from the record."""
    waits_for: str = ""
    """The subject of `reason`: a collection, a host, a queue, a server."""
    holder: str = ""
    """The worker that has it, or the person who put it on hold."""
    holder_since: datetime | None = None
    hold_reason: str = ""
    limit: int | None = None
    """The maximum of places, jobs, connections, processes, bytes or tries, according to `reason`."""
    taken: int | None = None
    """How much of `limit` is in use."""
    needed: int | None = None
    """Bytes of working storage that the job needs; 0 if its size is not known."""
    ahead: int | None = None
    """Jobs before it in the queue."""
    moves_itself: bool = False
    """True if it moves without anyone's action."""
    when: datetime | None = None
    """The earliest moment of the next attempt."""
    failed_in: str = ""
    """The state in which it failed."""
    failure: FailureKind | None = None
    failure_cause: FailureCause | None = None
    """Why the job failed; null if the cause was not recorded."""
    resume_helps: bool | None = None
    """False if a resume would fail again; null if that is not known."""
    content_gone: bool = False
    """What was downloaded is not in working storage any more: a resume downloads it again."""
    resumes_in: str = ""
    """The state that a resume leads to."""
    jobs: dict[str, int] = Field(default_factory=dict)
    """Jobs of a batch, by state or by kind of failure."""
    total: int | None = None
    users: dict[str, int] = Field(default_factory=dict)
    """Who uses what it waits for: id -> connections to the host, or bytes of working storage."""
    changed_fields: tuple[str, ...] = ()
    """Fields of the profile that were changed after the batch started."""
    ark: str = ""
    outage_since: datetime | None = None
    """When the outage of the service `waits_for` began."""
    obstacles: tuple[Obstacle, ...] = ()
    """Further obstacles, which remain once `reason` is over."""
    remedies: tuple[Remedy, ...] = ()
    """In the order in which they are to be applied, now."""
    afterwards: tuple[Remedy, ...] = ()
    """To be applied once the jobs have ended."""
    progress: Progress | None = None
    """The progress of a download, as last reported by the worker."""
    checks: tuple[CheckSummary, ...] = ()
    """What checks found in the content that waits for a review."""
    first: Explanation | None = None
    """For a batch: one of the jobs that it waits for, or that failed."""


class Explanation(Cause):
    """The situation of a job or a batch: reason, holder, time and remedies."""

    id: str
    kind: str
    """`job` or `batch`."""
    name: str = ""
    """Of the job's payload, or of the batch: the deposit's, else its payload's."""
    bid: str = ""
    """The batch of a job."""
    profile: str = ""
    state: str = ""
    """Empty if the record cannot be read."""
    since: datetime | None = None
    attempt: int = 0
    tries: int = 0
    """Attempts that met a transient fault, in this state."""
    redispatches: int = 0
    """Times that its worker or its message was lost, in this state."""

    @classmethod
    def of(cls, record: Job | Batch, cause: Cause) -> Explanation:
        status, facts = record.status, dict(cause)
        if isinstance(record, Job):
            facts |= {"kind": "job", "bid": record.bid, "name": record.configuration.name}
        else:
            facts |= {"kind": "batch", "name": record.submission.name}
        return cls(
            **facts,
            id=record.id,
            profile=record.profile_name,
            state=status.status,
            since=status.since,
            attempt=status.attempt,
            tries=status.tries,
            redispatches=status.redispatches,
        )


def sentence(facts: Explanation) -> str:
    """The sentence for the reason, filled with these facts."""
    if make := _SENTENCES.get(facts.reason):
        return make(facts)
    words = {
        "active": counted(facts.taken or 0, "active job"),
        "by": by(facts),
        "fault": fault(facts),
        "found": "".join(map(_found, facts.checks)),
        "soon": in_time(facts.when),
        "states": listed(facts.jobs),
    }
    return facts.reason.sentence.format(**dict(facts), **words)


def by(facts: Explanation) -> str:
    """` by ann@desk 2 hours ago (database is moved)`."""
    who = f" by {facts.holder}" if facts.holder else ""
    when = f" {ago(facts.holder_since)}" if facts.holder_since else ""
    return f"{who}{when}" + (f" ({facts.hold_reason})" if facts.hold_reason else "")


def _held_alone(facts: Explanation) -> str:
    if facts.holder:
        return f"It was put on hold{by(facts)}. Collection {facts.waits_for} is not on hold."
    return f"Collection {facts.waits_for} is no longer on hold."


def _spent(facts: Explanation) -> str:
    return duration(age(facts.holder_since)) if facts.holder_since else "some time"


def fault(facts: Explanation) -> str:
    return facts.message.rstrip(".") or "no reason was recorded"


def _found(run: CheckSummary) -> str:
    named = "; ".join(f"{quote_name(one.path)} ({one.message or one.code})" for one in run.findings)
    counts = f"{run.fine:,} fine, {run.found:,} found, {run.unchecked:,} not checked"
    return f" The check {run.check}: {counts}{': ' if named else ''}{named}."


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
    holders = f"; {held} (the view of working storage has all)" if held else ""
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
    outdated = any(remedy.action is Action.RECONCILE for remedy in facts.remedies)
    remedy = "" if outdated else REMEDIES.get(facts.waits_for.partition(":")[0], "")
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


def _failed(facts: Explanation) -> str:
    kind = f" ({facts.failure}: {facts.failure.doc})" if facts.failure else ""
    if facts.kind == "batch":
        return (
            f"Its payload could not be split into jobs{kind}: {fault(facts)}. A new submission is required."
        )
    where = f" while {phrase(facts.failed_in)}" if facts.failed_in else ""
    failed = f"It failed{where}{kind}: {fault(facts)}."
    if not facts.resumes_in:
        return f"{failed} Its content has to be corrected and deposited again."
    if facts.resume_helps is False:
        return f"{failed} A resume would fail again: the content is to be corrected and deposited again."
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
    failed, total = sum(facts.jobs.values()), counted(facts.total or 0, "job")
    return f"{failed:,} of {total} failed: {listed(facts.jobs)}."


def _completed(facts: Explanation) -> str:
    if facts.kind == "batch":
        return (
            f"Its jobs have ended ({listed(facts.jobs)}), and its report is written. Nothing is left to do."
        )
    stored = f"stored as {facts.ark}" if facts.ark else "stored"
    return f"The object is {stored} and recorded in the inventory. Nothing is left to do."


_SENTENCES: dict[Reason, Callable[[Explanation], str]] = {
    Reason.HOLD_ENDED: _held_alone,
    Reason.WAITING_FOR_TURN: _turn,
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
    Reason.SERVICE_DOWN: _service_down,
    Reason.LOST_WORKER: _lost,
    Reason.NO_WORKER: _no_worker,
    Reason.RECORD_OUTDATED: _record_fault,
    Reason.RECORD_FOREIGN: _record_fault,
    Reason.BEING_SPLIT: _splitting,
    Reason.REPORTING: _reporting,
    Reason.FAILED_CONTENT: _failed,
    Reason.FAILED_SYSTEM: _failed,
    Reason.FAILED_TRANSIENT: _failed,
    Reason.JOBS_FAILED: _jobs_failed,
    Reason.COMPLETED: _completed,
}
