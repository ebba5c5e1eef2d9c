"""What an operator does to one job: each verb is an event of the job's table, committed as one move."""

from collections.abc import Callable
from pathlib import Path

from operations.operator import (
    TRIES,
    Operator,
    VerbResult,
    check,
    feed,
    follow,
    refuse_while_on_hold,
    remove_folder,
)
from pipeline.inventory.archive import tombstone
from pipeline.records import Job
from pipeline.states import JOB, BatchState, Event, FailureKind, IllegalTransition
from zkstate import batches, deletion, jobs
from zkstate.errors import Busy, Stale
from zkstate.jobs import Lock


def act_on_job(operator: Operator, jid: str, event: Event, *, feeding: bool = True) -> VerbResult:
    """Raise `event` on the job, and let follow what follows from it.

    A job may move while it is looked at: then it is looked at again. Without `feeding` the caller hands
    out the pending jobs, once for many.
    """
    for _ in range(TRIES):
        job = jobs.load(operator.session, jid)
        check(job, event)
        try:
            acted = _VERBS[event](operator, job)
        except Stale:
            continue
        except Busy:
            if event is not Event.FAIL:
                raise
            continue
        if feeding:
            feed(operator)
        return acted
    raise Busy(f"{jid} moves faster than it can be changed: try again")


def possible(operator: Operator, jid: str, event: Event) -> VerbResult:
    """What `act_on_job` would do, without doing it; raises what it would raise."""
    job = jobs.load(operator.session, jid)
    check(job, event)
    status = job.status
    _refuse(operator, job, event)
    target = JOB.next(status.status, event, status.last_successful_status, status.kind)
    return VerbResult(id=jid, was=status.status, now=target)


def _refuse(operator: Operator, job: Job, event: Event) -> None:
    """What the table cannot know."""
    if event is Event.RELEASE:
        refuse_while_on_hold(operator.session, job.configuration.profile_name, job.jid)
    if event is Event.RESUME:
        batch = batches.load(operator.session, job.bid)
        if batch.status.status is BatchState.DELETED:
            raise IllegalTransition(f"{job.jid} cannot be resumed: its batch {job.bid} is being deleted")


def _move(operator: Operator, job: Job, event: Event, **changes: object) -> Job:
    message = f"{event} by {operator.by}{operator.because}"
    options = {"message": message, "lock": Lock.FREE, **changes}
    return jobs.move(operator.session, job, event, operator.by, **options)  # type: ignore[arg-type]


def _acted(operator: Operator, job: Job, moved: Job) -> VerbResult:
    note = follow(operator.session, operator.settings, moved)
    return VerbResult(id=job.jid, was=job.status.status, now=moved.status.status, note=note)


def _hold(operator: Operator, job: Job) -> VerbResult:
    return _acted(operator, job, _move(operator, job, Event.HOLD))


def _release(operator: Operator, job: Job) -> VerbResult:
    _refuse(operator, job, Event.RELEASE)
    return _acted(operator, job, _move(operator, job, Event.RELEASE))


def _resume(operator: Operator, job: Job) -> VerbResult:
    _refuse(operator, job, Event.RESUME)
    return _acted(operator, job, _move(operator, job, Event.RESUME))


def _fail(operator: Operator, job: Job) -> VerbResult:
    """Whoever works on it loses its lock, and with it the right to any further effect."""
    reason = operator.because or ", who gave no reason"
    moved = _move(
        operator,
        job,
        Event.FAIL,
        message=f"failed by {operator.by}{reason}",
        kind=FailureKind.SYSTEM,
        lock=Lock.BREAK,
    )
    return _acted(operator, job, moved)


def _delete(operator: Operator, job: Job) -> VerbResult:
    """The tombstone first, the folder last: a crash leaves at most a folder, which `cleanup` finds."""
    tombstone(operator.inventory(), job, by=operator.by, reason=operator.reason)
    deleted = deletion.delete_job(operator.session, job)
    note = remove_folder(operator, Path(job.configuration.working_dir))
    acted = _acted(operator, job, deleted)
    return acted.model_copy(update={"note": note or acted.note})


_VERBS: dict[Event, Callable[[Operator, Job], VerbResult]] = {
    Event.HOLD: _hold,
    Event.RELEASE: _release,
    Event.RESUME: _resume,
    Event.FAIL: _fail,
    Event.DELETE: _delete,
}

VERBS = frozenset(_VERBS)
