"""Why a job is where it is."""

from datetime import UTC, datetime

from operations import why_waiting
from operations.allowed_verbs import allowed_verbs
from operations.facts import Cause, Explanation, Obstacle, Reason
from operations.fleet import Fleet
from operations.live import progress_of
from pipeline.errors import Action, Remedy
from pipeline.profiles.profile import ProfileError
from pipeline.profiles.snapshot import profile_changes
from pipeline.records import Job
from pipeline.states import JOB, BatchState, Event, FailureKind, JobState, Room
from pipeline.working_storage import mount
from pipeline.working_storage.workspace import Workspace
from zkstate import batch_profile, batches, holds, views
from zkstate.session import Session

FAILURES = {
    FailureKind.CONTENT: Reason.FAILED_CONTENT,
    FailureKind.SYSTEM: Reason.FAILED_SYSTEM,
    FailureKind.TRANSIENT: Reason.FAILED_TRANSIENT,
}


def why_job(fleet: Fleet, job: Job) -> Explanation:
    return Explanation.of(job, _cause(fleet, job))


def _cause(fleet: Fleet, job: Job) -> Cause:
    state = job.status.status
    if state in JOB.working():
        return _at_work(fleet, job)
    if state is JobState.FAILED:
        return _failed(fleet, job)
    if state is JobState.HELD:
        return _held(fleet.session, job)
    return Cause(reason=Reason.COMPLETED, ark=job.identifiers.primary_id or "", message=job.status.message)


def _at_work(fleet: Fleet, job: Job) -> Cause:
    activity = views.activity(fleet.session, job)
    host = why_waiting.for_host(fleet.site, job)
    if activity.holder is not None:
        progress = progress_of(fleet.settings, job.jid, job.status.status)
        working = Cause(reason=Reason.BEING_WORKED_ON, progress=progress, moves_itself=True)
        return with_worker(host or working, activity.holder)
    status, written = job.status, activity.status_written or 0.0
    channel = JOB.task(status.status).queue
    if status.waits_for is not None:
        cause = why_waiting.later(fleet, status, written, host)
        return why_waiting.blocked(fleet, cause, channel)
    if status.status is JobState.PENDING and status.dispatched_at is None:
        return why_waiting.in_line(fleet, job)
    if status.status is JobState.PROVISIONING:
        return why_waiting.for_space(fleet, job)
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


def _failed(fleet: Fleet, job: Job) -> Cause:
    status = job.status
    batch = batches.state_of(fleet.session, job.bid)
    resumable = Event.RESUME in allowed_verbs(job) and batch is not BatchState.DELETED
    afterwards = (Remedy(Action.UPDATE_REPORT, job.bid),) if batch is BatchState.FAILED else ()
    target = ""
    changed: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = (Remedy(Action.SUBMIT_AGAIN), Remedy(Action.DELETE, job.jid))
    obstacles: tuple[Obstacle, ...] = ()
    if resumable:
        target = JOB.next(
            status.status, Event.RESUME, status.last_successful_status, status.kind, status.room
        )
        changed = _changed_fields(fleet, job)
        obstacles, before = _in_the_way(fleet.session, job, target)
        remedies = (
            *before,
            *((Remedy(Action.RENEW_PROFILE, job.bid),) if changed else ()),
            Remedy(Action.RESUME, job.jid),
        )
    if target == JobState.PROVISIONING and (too_large := why_waiting.exceeds_space(fleet, job)) is not None:
        return too_large.model_copy(
            update={"failed_in": _state_before_failure(job), "failure": status.kind, "afterwards": afterwards}
        )
    return Cause(
        reason=FAILURES[status.kind or FailureKind.SYSTEM],
        message=status.message,
        failed_in=_state_before_failure(job),
        failure=status.kind,
        resumes_in=target,
        content_gone=_content_gone(fleet, job, target),
        changed_fields=changed,
        obstacles=obstacles,
        remedies=remedies,
        afterwards=afterwards if resumable else (),
    )


def _in_the_way(session: Session, job: Job, target: str) -> tuple[tuple[Obstacle, ...], tuple[Remedy, ...]]:
    """Holds and pauses stop a job that is resumed in pending; a later state is not affected."""
    if target != JobState.PENDING:
        return (), ()
    obstacles, remedies = [], []
    if holds.collection_hold(session, job.profile_name) is not None:
        obstacles.append(Obstacle(reason=Reason.COLLECTION_ON_HOLD, waits_for=job.profile_name))
        remedies.append(Remedy(Action.RELEASE_COLLECTION, job.profile_name))
    if holds.paused(session) is not None:
        obstacles.append(Obstacle(reason=Reason.QUEUE_PAUSED))
        remedies.append(Remedy(Action.UNPAUSE))
    return tuple(obstacles), tuple(remedies)


def _content_gone(fleet: Fleet, job: Job, target: str) -> bool:
    """A resume downloads the content again; on a machine without working storage the record alone knows."""
    if job.status.room is Room.EMPTY:
        return target == JobState.PROVISIONING
    working = fleet.settings.working
    here = mount.is_marked(working)
    reads_content = target in JOB.where(lambda facts: facts.reads_content)
    return reads_content and here and not Workspace.of(job, working).downloaded.exists()


def _state_before_failure(job: Job) -> str:
    failures = [n for n, entry in enumerate(job.history) if entry.event is Event.FAIL]
    return job.history[failures[-1] - 1].state if failures and failures[-1] else ""


def _changed_fields(fleet: Fleet, job: Job) -> tuple[str, ...]:
    """Fields of the collection's profile that were changed after the job's batch started."""
    snapshot = batch_profile.snapshot(fleet.session, job.bid)
    if snapshot is None:
        return ()
    try:
        return tuple(profile_changes(snapshot, fleet.site.profiles.get(job.profile_name)))
    except ProfileError:
        return ()
