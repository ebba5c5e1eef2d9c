"""What an operator does to one job: every verb is an event of the job's table, committed as one move."""

from collections.abc import Callable
from pathlib import Path

from operations.operator import (
    Operator,
    VerbResult,
    check,
    check_seen,
    feed,
    follow,
    refuse_while_on_hold,
    remove_folder,
    retry_stale,
)
from pipeline.records import Job
from pipeline.states import JOB, BatchState, Event, FailureKind, IllegalTransition
from zkstate import batches, deletion, jobs
from zkstate.errors import Busy, Stale
from zkstate.jobs import JobMove
from zkstate.record import Lock


def act_on_job(
    operator: Operator, jid: str, event: Event, *, seen: int | None = None, feeding: bool = True
) -> VerbResult:
    """Raise `event` on the job, with everything that follows from the move.

    `seen`: the version of the job's status that the caller decided on; Moved if the job has another one.
    Without `feeding` the caller hands out the pending jobs, once for many.
    """
    result = retry_stale(jid, lambda: _VERBS[event](operator, _load(operator, jid, event, seen), event))
    if feeding:
        feed(operator)
    return result


def possible(operator: Operator, jid: str, event: Event, *, seen: int | None = None) -> VerbResult:
    """What `act_on_job` would do, without doing it; raises what it would raise."""
    job = _load(operator, jid, event, seen)
    status = job.status
    _refuse(operator, job, event)
    target = JOB.next(status.status, event, status.last_successful_status, status.kind)
    return VerbResult(id=jid, was=status.status, now=target, version=job.version)


def _load(operator: Operator, jid: str, event: Event, seen: int | None) -> Job:
    """The job, if this principal may raise the event on it as it is now."""
    job = jobs.load(operator.session, jid)
    operator.require(f"{event} {jid}", job.configuration.profile_name)
    check_seen(job, seen)
    check(job, event)
    return job


def _refuse(operator: Operator, job: Job, event: Event) -> None:
    """IllegalTransition for a reason that is not in the table."""
    if event is Event.RELEASE:
        refuse_while_on_hold(operator.session, job.configuration.profile_name, job.jid)
    if event is Event.RESUME:
        batch = batches.load(operator.session, job.bid)
        if batch.status.status is BatchState.DELETED:
            raise IllegalTransition(f"{job.jid} cannot be resumed: its batch {job.bid} is being deleted")


def _move(operator: Operator, job: Job, event: Event, **changes: object) -> Job:
    message = f"{event} by {operator.by}{operator.because}"
    options = {"message": message, "lock": Lock.FREE, "via": operator.principal.interface, **changes}
    return jobs.move(operator.session, job, JobMove(event, operator.by, **options))  # type: ignore[arg-type]


def _result(operator: Operator, job: Job, moved: Job) -> VerbResult:
    sent = follow(operator.session, operator.settings, moved)
    return VerbResult(
        id=job.jid, was=job.status.status, now=moved.status.status, version=moved.version, sent=sent
    )


def _move_only(operator: Operator, job: Job, event: Event) -> VerbResult:
    _refuse(operator, job, event)
    return _result(operator, job, _move(operator, job, event))


def _fail(operator: Operator, job: Job, event: Event) -> VerbResult:
    """A worker that has the job loses the lock, and with it the right to any further effect."""
    reason = operator.because or ", who gave no reason"
    message = f"failed by {operator.by}{reason}"
    try:
        moved = _move(operator, job, event, message=message, kind=FailureKind.SYSTEM, lock=Lock.BREAK)
    except Busy as error:
        raise Stale(f"a worker acquired {job.jid} after it was read") from error
    return _result(operator, job, moved)


def _delete(operator: Operator, job: Job, _: Event) -> VerbResult:
    """The tombstone first, the folder last: a crash leaves at most a folder, which the clean-up finds."""
    from pipeline.inventory.archive import tombstone  # loads SQLAlchemy

    tombstone(operator.inventory(), job, by=operator.by, reason=operator.reason)
    deleted = deletion.delete_job(operator.session, job, operator.by)
    left = remove_folder(operator, Path(job.configuration.working_dir))
    return _result(operator, job, deleted).model_copy(update={"version": None, "folder_left": left})


_VERBS: dict[Event, Callable[[Operator, Job, Event], VerbResult]] = {
    Event.HOLD: _move_only,
    Event.RELEASE: _move_only,
    Event.RESUME: _move_only,
    Event.FAIL: _fail,
    Event.DELETE: _delete,
}

VERBS = frozenset(_VERBS)
