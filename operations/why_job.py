"""Why a job is where it is."""

from datetime import UTC, datetime

from operations import why_host, why_waiting
from operations.facts import Cause, Explanation, Obstacle, Reason
from operations.fleet import Fleet
from operations.job_view import operator_verbs
from operations.live import progress_of
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.profiles.snapshot import profile_changes
from pipeline.records import Job
from pipeline.remedies import Action, Remedy
from pipeline.states import JOB, BatchState, Event, FailureKind, JobState
from zkstate import batches, holds, views
from zkstate.session import Session

FAILURES = {
    FailureKind.CONTENT: Reason.FAILED_CONTENT,
    FailureKind.SYSTEM: Reason.FAILED_SYSTEM,
    FailureKind.TRANSIENT: Reason.FAILED_TRANSIENT,
}


def why_job(session: Session, fleet: Fleet, job: Job) -> Explanation:
    status = job.status
    return Explanation.model_validate(
        {
            **dict(_cause(session, fleet, job)),
            "id": job.jid,
            "kind": "job",
            "name": job.configuration.payload_name or job.configuration.payload_url,
            "bid": job.bid,
            "profile": job.configuration.profile_name,
            "state": status.status,
            "since": status.last_modification_date,
            "attempt": status.attempt,
            "tries": status.tries,
            "redispatches": status.redispatches,
        }
    )


def _cause(session: Session, fleet: Fleet, job: Job) -> Cause:
    state = job.status.status
    if state in JOB.working():
        return _at_work(session, fleet, job)
    if state is JobState.FAILED:
        return _failed(session, fleet, job)
    if state is JobState.HELD:
        return _held(session, job)
    return Cause(reason=Reason.COMPLETED, ark=job.identifiers.primary_id or "", message=job.status.message)


def _at_work(session: Session, fleet: Fleet, job: Job) -> Cause:
    activity = views.job_activity(session, job.jid)
    host = why_host.job_waits(session, fleet.settings, job)
    if activity.holder is not None:
        progress = progress_of(fleet.settings, job.jid, job.status.status)
        working = Cause(reason=Reason.BEING_WORKED_ON, progress=progress, moves_itself=True)
        return with_worker(host or working, activity.holder)
    status, written = job.status, activity.status_written or 0.0
    channel = JOB.task(status.status).queue
    if status.delay:
        cause = why_waiting.later(fleet, status, written, host)
        return why_waiting.blocked(fleet, cause, channel)
    if status.status is JobState.PENDING and status.dispatched_at is None:
        return why_waiting.in_line(session, fleet, job)
    if status.status is JobState.PROVISIONING:
        return why_waiting.for_space(session, fleet, job)
    return why_waiting.for_a_worker(fleet, job.jid, status, written, channel)


def with_worker(cause: Cause, holder: views.Holder) -> Cause:
    since = datetime.fromtimestamp(holder.since, UTC)
    return cause.model_copy(update={"holder": holder.name, "holder_since": since})


def _held(session: Session, job: Job) -> Cause:
    cause = why_waiting.held(session, job.configuration.profile_name, job.jid)
    if holds.paused(session) is None:
        return cause
    return cause.model_copy(
        update={
            "obstacles": (Obstacle(reason=Reason.QUEUE_PAUSED),),
            "remedies": (*cause.remedies, Remedy(Action.UNPAUSE)),
        }
    )


def _failed(session: Session, fleet: Fleet, job: Job) -> Cause:
    status = job.status
    batch = batches.load(session, job.bid).status.status
    resumable = Event.RESUME in operator_verbs(job) and batch is not BatchState.DELETED
    afterwards = (Remedy(Action.UPDATE_REPORT, job.bid),) if batch is BatchState.FAILED else ()
    target = ""
    changed: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = (Remedy(Action.SUBMIT_AGAIN), Remedy(Action.DELETE, job.jid))
    obstacles: tuple[Obstacle, ...] = ()
    if resumable:
        target = JOB.next(status.status, Event.RESUME, status.last_successful_status, status.kind)
        changed = _changed_fields(session, fleet, job)
        obstacles, before = _in_the_way(session, job, target)
        remedies = (
            *before,
            *((Remedy(Action.RENEW_PROFILE, job.bid),) if changed else ()),
            Remedy(Action.RESUME, job.jid),
        )
    return Cause(
        reason=FAILURES[status.kind or FailureKind.SYSTEM],
        message=status.message,
        failed_in=_state_before_failure(job),
        failure=status.kind,
        resumes_in=target,
        changed_fields=changed,
        obstacles=obstacles,
        remedies=remedies,
        afterwards=afterwards if resumable else (),
    )


def _in_the_way(session: Session, job: Job, target: str) -> tuple[tuple[Obstacle, ...], tuple[Remedy, ...]]:
    """Holds and pauses stop a job that is resumed in pending; a later state is not affected."""
    if target != JobState.PENDING:
        return (), ()
    name = job.configuration.profile_name
    obstacles = []
    if holds.collection_hold(session, name) is not None:
        obstacles.append(
            (
                Obstacle(reason=Reason.COLLECTION_ON_HOLD, waits_for=name),
                Remedy(Action.RELEASE_COLLECTION, name),
            )
        )
    if holds.paused(session) is not None:
        obstacles.append((Obstacle(reason=Reason.QUEUE_PAUSED), Remedy(Action.UNPAUSE)))
    return tuple(obstacle for obstacle, _ in obstacles), tuple(remedy for _, remedy in obstacles)


def _state_before_failure(job: Job) -> str:
    failures = [n for n, entry in enumerate(job.history) if entry.event is Event.FAIL]
    return job.history[failures[-1] - 1].state if failures and failures[-1] else ""


def _changed_fields(session: Session, fleet: Fleet, job: Job) -> tuple[str, ...]:
    """Fields of the collection's profile that were changed after the job's batch started."""
    snapshot = batches.profile_snapshot(session, job.bid)
    if snapshot is None:
        return ()
    try:
        return tuple(
            profile_changes(snapshot, Profiles(fleet.settings.profiles).get(job.configuration.profile_name))
        )
    except ProfileError:
        return ()
