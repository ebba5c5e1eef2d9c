"""Why a job or a batch is where it is, as facts: what it waits for, who has it, and what helps."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import partial

from operations.explanation import Cause, Explanation, Obstacle
from operations.fleet.fleet import Fleet
from operations.fleet.record_fault import RecordFault, record_fault
from operations.jobs.allowed_verbs import allowed_verbs
from operations.jobs.batch_view import BatchView, archived_since, batch_view_of
from operations.jobs.job_view import progress_of
from operations.reasons import Reason
from operations.site import Site
from operations.verbs.overruling import findings_of, names_of
from operations.visibility import kind_of, sees_fleet, visible
from operations.why import waiting
from pipeline.causes import describe
from pipeline.errors import Action, Remedy
from pipeline.inventory import archive
from pipeline.outcome import Service, ServiceDown
from pipeline.principal import Principal
from pipeline.profiles.profile import ProfileError
from pipeline.profiles.snapshot import profile_changes
from pipeline.records import Batch, Job
from pipeline.states import BATCH, FAILING, JOB, BatchState, Bucket, Event, FailureKind, JobState, Room
from pipeline.working_storage import mount
from pipeline.working_storage.workspace import Workspace
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Missing
from zkstate.fleet import holds
from zkstate.queue import listings
from zkstate.queue.listings import Unreadable
from zkstate.record import batches, jobs

FAILURES = {
    FailureKind.CONTENT: Reason.FAILED_CONTENT,
    FailureKind.SYSTEM: Reason.FAILED_SYSTEM,
    FailureKind.TRANSIENT: Reason.FAILED_TRANSIENT,
}


def why_job(fleet: Fleet, job: Job) -> Explanation:
    return Explanation.of(job, _cause_of_job(fleet, job))


def _cause_of_job(fleet: Fleet, job: Job) -> Cause:
    state = job.status.status
    if state in JOB.working():
        return _job_at_work(fleet, job)
    if state is JobState.FAILED:
        return _failed_job(fleet, job)
    if state is JobState.HELD:
        return _held(fleet.session, job)
    if state is JobState.REVIEW:
        decide = (Remedy(Action.APPROVE, job.jid), Remedy(Action.REJECT, job.jid))
        return Cause(
            reason=Reason.WAITING_FOR_REVIEW,
            message=job.status.message,
            checks=job.status.checks or (),
            remedies=decide,
        )
    return Cause(reason=Reason.COMPLETED, ark=job.identifiers.primary_id or "", message=job.status.message)


def _job_at_work(fleet: Fleet, job: Job) -> Cause:
    activity = listings.activity(fleet.session, job)
    host = waiting.for_host(fleet.site, job)
    if activity.holder is not None:
        progress = progress_of(fleet.settings, job.jid, job.status.status)
        working = Cause(reason=Reason.BEING_WORKED_ON, progress=progress, moves_itself=True)
        return with_worker(host or working, activity.holder)
    status, written = job.status, activity.status_written or 0.0
    channel = JOB.task(status.status).queue
    if status.waits_for is not None:
        cause = waiting.later(fleet, status, written, host)
        return waiting.blocked(fleet, cause, channel)
    if status.status is JobState.PENDING and status.dispatched_at is None:
        return waiting.in_line(fleet, job)
    if status.status is JobState.PROVISIONING:
        return waiting.for_space(fleet, job)
    return waiting.for_a_worker(fleet, job.jid, status, written, channel)


def with_worker(cause: Cause, holder: listings.Holder) -> Cause:
    since = datetime.fromtimestamp(holder.since, UTC)
    return cause.model_copy(update={"holder": holder.name, "holder_since": since})


def _held(session: Session, job: Job) -> Cause:
    cause = waiting.held(session, job.configuration.profile_name, job.jid)
    # A worker that meets the hold of a collection moves the job, too; a person's move has its interface.
    put = next((move for move in job.history[-1:] if move.event is Event.HOLD and move.via), None)
    if cause.reason is Reason.HOLD_ENDED and put is not None:
        who = {"holder": put.by, "holder_since": put.at, "hold_reason": put.reason}
        cause = cause.model_copy(update=who)
    if holds.paused(session) is None:
        return cause
    return cause.model_copy(
        update={
            "obstacles": (Obstacle(reason=Reason.QUEUE_PAUSED),),
            "remedies": (*cause.remedies, Remedy(Action.UNPAUSE)),
        }
    )


def _failed_job(fleet: Fleet, job: Job) -> Cause:
    status = job.status
    batch = batches.state_of(fleet.session, job.bid)
    resumable = Event.RESUME in allowed_verbs(job) and batch is not BatchState.DELETED
    afterwards = (Remedy(Action.UPDATE_REPORT, job.bid),) if batch is BatchState.FAILED else ()
    target = ""
    changed: tuple[str, ...] = ()
    submit_again = Remedy(Action.SUBMIT_AGAIN, job.bid), Remedy(Action.DELETE, job.jid)
    remedies: tuple[Remedy, ...] = submit_again
    resume_helps = _resume_helps(job)
    obstacles: tuple[Obstacle, ...] = ()
    if resumable:
        target = jobs.target_of(status, Event.RESUME)
        changed = _changed_fields(fleet, job)
        obstacles, before = _in_the_way(fleet.session, job, target)
        findings = findings_of(job)
        remedies = (
            *before,
            *((Remedy(Action.RENEW_PROFILE, job.bid),) if changed else ()),
            Remedy(Action.OVERRULE, job.jid, findings) if findings else Remedy(Action.RESUME, job.jid),
        )
        if resume_helps is False:
            remedies = (submit_again[0], *(remedies if findings else ()), submit_again[1])
    if target == JobState.PROVISIONING and (too_large := waiting.exceeds_space(fleet, job)) is not None:
        return too_large.model_copy(
            update={"failed_in": _state_before_failure(job), "failure": status.kind, "afterwards": afterwards}
        )
    return Cause(
        reason=FAILURES[status.kind or FailureKind.SYSTEM],
        message=status.message,
        failed_in=_state_before_failure(job),
        failure=status.kind,
        failure_cause=status.failure_cause,
        resume_helps=resume_helps if resumable else None,
        resumes_in=target,
        content_gone=_content_gone(fleet, job, target),
        changed_fields=changed,
        obstacles=obstacles,
        remedies=remedies,
        afterwards=afterwards if resumable else (),
    )


def _resume_helps(job: Job) -> bool | None:
    """Whether a resume can help; an upload cannot be corrected at its source. None: not known."""
    status = job.status
    if status.kind is FailureKind.CONTENT and job.configuration.is_uploaded:
        return False
    return describe(status.failure_cause, status.kind, status.message).resume if status.kind else None


def _in_the_way(session: Session, job: Job, target: str) -> tuple[tuple[Obstacle, ...], tuple[Remedy, ...]]:
    """Holds and pauses that stop a job resumed in pending; a later state is not affected."""
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
    """Whether a resume downloads the content again; without working storage here, only the record tells."""
    if job.status.room is Room.EMPTY:
        return target == JobState.PROVISIONING
    working = fleet.settings.working
    here = mount.is_marked(working)
    reads_content = target in JOB.where(lambda facts: facts.reads_content)
    return reads_content and here and not Workspace.of(job, working).downloaded.exists()


def _state_before_failure(job: Job) -> str:
    failures = [n for n, entry in enumerate(job.history) if entry.event in FAILING]
    return job.history[failures[-1] - 1].state if failures and failures[-1] else ""


def _changed_fields(fleet: Fleet, job: Job) -> tuple[str, ...]:
    """Fields of the collection's profile that were changed after the job's batch started."""
    snapshot = batches.profile_snapshot(fleet.session, job.bid)
    if snapshot is None:
        return ()
    try:
        return tuple(profile_changes(snapshot, fleet.site.profiles.get(job.profile_name)))
    except ProfileError:
        return ()


EXAMINED = 50
"""Maximum number of a batch's jobs read to find one that an operator can help."""

_REPORTING = (BatchState.REPORTING, BatchState.UPDATE_REPORTING)


def why_batch(fleet: Fleet, batch: Batch) -> Explanation:
    return Explanation.of(batch, _cause_of_batch(fleet, batch))


def _cause_of_batch(fleet: Fleet, batch: Batch) -> Cause:
    state = batch.status.status
    if state is BatchState.HELD:
        return waiting.held(fleet.session, batch.submission.profile_name, batch.bid)
    if state is BatchState.PROCESSING and batch.status.total is not None:
        return _jobs_at_work(fleet, batch)
    if state in BATCH.working():
        return _batch_at_work(fleet, batch)
    if state is BatchState.DELETED:
        cause = waiting.blocked(fleet, Cause(reason=Reason.BEING_REMOVED, moves_itself=True))
        if cause.moves_itself:
            return cause
        return cause.model_copy(update={"remedies": (Remedy(Action.DELETE, batch.bid),)})
    view = batch_view_of(fleet.site, batch)
    return _failed_batch(fleet, batch, view) if state is BatchState.FAILED else _completed(batch, view)


def _jobs(view: BatchView) -> dict[str, int]:
    return {str(state): number for state, number in view.jobs.items()}


def _completed(batch: Batch, view: BatchView) -> Cause:
    if not _not_mailed(batch):
        return Cause(reason=Reason.COMPLETED, jobs=_jobs(view), total=view.total)
    return Cause(
        reason=Reason.REPORT_NOT_SENT,
        message=batch.status.message,
        jobs=_jobs(view),
        total=view.total,
        remedies=(Remedy(Action.SHOW_REPORT, batch.bid),),
    )


def _not_mailed(batch: Batch) -> bool:
    return batch.report is not None and not batch.report.mailed


def _jobs_at_work(fleet: Fleet, batch: Batch) -> Cause:
    view = batch_view_of(fleet.site, batch)
    if not view.buckets[Bucket.PROCESSING]:
        return waiting.blocked(fleet, Cause(reason=Reason.REPORTING, moves_itself=True))
    first = _first_unended(fleet, batch.bid)
    return Cause(
        reason=Reason.WAITING_FOR_JOBS,
        jobs=_jobs(view),
        total=view.total,
        first=first,
        moves_itself=first is None or first.moves_itself,
        remedies=first.remedies if first else (),
    )


def _first_unended(fleet: Fleet, bid: str) -> Explanation | None:
    """The first job that waits for an operator, or else the first that has not ended."""
    names = batches.jobs_in(fleet.session, bid, Bucket.PROCESSING)[:EXAMINED]
    read = list(listings.job_rows(fleet.session, names))
    rows = list(listings.readable(iter(read)))
    if not rows and read and isinstance(read[0], Unreadable):
        remedies = (Remedy(Action.REPAIR, read[0].id),)
        damaged = {"reason": Reason.RECORD_DAMAGED, "message": read[0].problem, "remedies": remedies}
        return Explanation(id=read[0].id, kind="job", **damaged)
    rows.sort(key=lambda row: row.state not in (JobState.HELD, JobState.REVIEW))
    try:
        return why_job(fleet, jobs.load(fleet.session, rows[0].jid)) if rows else None
    except (Missing, Corrupt):
        return None


def _batch_at_work(fleet: Fleet, batch: Batch) -> Cause:
    status = batch.status
    activity = listings.activity(fleet.session, batch)
    host = waiting.for_host(fleet.site, batch)
    if activity.holder is not None:
        doing = Reason.REPORTING if status.status in _REPORTING else Reason.BEING_SPLIT
        cause = host or Cause(reason=doing, jobs={"created": status.created}, moves_itself=True)
        return with_worker(cause, activity.holder)
    written, channel = activity.status_written or 0.0, BATCH.task(status.status).queue
    if status.waits_for is not None:
        cause = waiting.later(fleet, status, written, host)
        return waiting.blocked(fleet, cause, channel)
    hold = holds.collection_hold(fleet.session, batch.submission.profile_name)
    if hold is not None and status.status is BatchState.PENDING:
        return waiting.on_hold(batch.submission.profile_name, hold)
    return waiting.for_a_worker(fleet, batch.bid, status, written, channel)


def _failed_batch(fleet: Fleet, batch: Batch, view: BatchView) -> Cause:
    obstacles = (Obstacle(reason=Reason.REPORT_NOT_SENT),) if _not_mailed(batch) else ()
    by_hand = (Remedy(Action.SHOW_REPORT, batch.bid),) if obstacles else ()
    update = Remedy(Action.UPDATE_REPORT, batch.bid)
    cause = partial(Cause, total=view.total, obstacles=obstacles, message=batch.status.message)
    if view.buckets[Bucket.PROCESSING]:
        first = _first_unended(fleet, batch.bid)
        return cause(
            reason=Reason.JOBS_RESUMED,
            jobs=_jobs(view),
            first=first,
            moves_itself=first is None or first.moves_itself,
            remedies=(*(first.remedies if first else ()), *by_hand),
            afterwards=(update,),
        )
    again = (Remedy(Action.SUBMIT_AGAIN), Remedy(Action.DELETE, batch.bid))
    if not view.total or batch.status.kind is not None:
        reason = FAILURES[batch.status.kind or FailureKind.CONTENT]
        return cause(reason=reason, failure=batch.status.kind, remedies=(*again, *by_hand))
    outdated = (update,) if _outdated(fleet.session, batch) else ()
    if not view.buckets[Bucket.FAILED]:
        reason = Reason.JOBS_FAILED
        if outdated:
            reason = Reason.REPORT_MISSING if batch.report is None else Reason.REPORT_OUTDATED
        return cause(reason=reason, jobs=_jobs(view), remedies=(*(outdated or again[1:]), *by_hand))
    first, resumes = _first_failed(fleet, view)
    what_helps = resumes or (*outdated, Remedy(Action.SUBMIT_AGAIN, batch.bid), again[1])
    return cause(
        reason=Reason.JOBS_FAILED,
        jobs=Counter(str(job.kind or "unknown") for job in view.failed_jobs),
        first=first,
        remedies=(*what_helps, *by_hand),
        afterwards=(update,) if resumes else (),
    )


def _outdated(session: Session, batch: Batch) -> bool:
    """Whether no report was sent, or jobs, which have all ended, ended differently than it says."""
    report = batches.whole_report(session, batch)
    if report is None or not report.mailed:
        return True
    failed = batches.jobs_in(session, batch.bid, Bucket.FAILED)
    return bool(report.unfinished_jobs) or set(report.failed_jobs) != set(failed)


def _first_failed(fleet: Fleet, view: BatchView) -> tuple[Explanation | None, tuple[Remedy, ...]]:
    """The failed job that explains best why the batch failed, and the verb that resumes such jobs.

    The first job that a resume may help, or else the first that findings of checks stopped, or the first.
    """
    first = stopped = None
    may_help = any(row.kind is not FailureKind.CONTENT for row in view.failed_jobs[EXAMINED:])
    for row in view.failed_jobs[:EXAMINED]:
        try:
            job = jobs.load(fleet.session, row.jid)
        except (Missing, Corrupt):
            continue
        first = first or job
        if Event.RESUME not in allowed_verbs(job):
            continue
        if findings_of(job):
            stopped = stopped or job
        elif may_help or _resume_helps(job) is not False:
            return why_job(fleet, job), (Remedy(Action.RESUME_BATCH, view.bid),)
    if stopped is not None:
        findings = names_of(stopped) or findings_of(stopped)
        return why_job(fleet, stopped), (Remedy(Action.OVERRULE, view.bid, findings),)
    return (why_job(fleet, first) if first else None), ()


def why(site: Site, principal: Principal, name: str) -> Explanation:
    """Explain the job or batch; Missing if neither ZooKeeper nor the archive has it.

    In the archive, `holder` removed it. An unreliable record is the reason for everything in it; ServiceDown
    for a name that is not in it, because another record may have it. Only those who see the fleet learn which
    node cannot be read; for others such a job is Corrupt.
    """
    fault = record_fault(site)
    try:
        record = visible(site, principal, name)
    except Corrupt as damage:
        if not sees_fleet(principal):
            raise
        return _seen_by(principal, _damaged(name, damage), fault)
    except (Missing, ServiceDown) as error:
        if fault is None:
            raise
        message = f"{name} is not in this record: {fault.message}"
        raise ServiceDown(Service.RECORD, message).with_remedies(*fault.remedies) from error
    return _seen_by(principal, _explanation(Fleet(site), record), fault)


def why_loaded(
    fleet: Fleet, principal: Principal, record: Job | Batch | archive.ArchivedJob | archive.ArchivedBatch
) -> Explanation:
    """Explain a record that the principal may see.

    `fleet`: with recent answers of the workers.
    """
    return _seen_by(principal, _explanation(fleet, record), record_fault(fleet.site))


def _explanation(
    fleet: Fleet, record: Job | Batch | archive.ArchivedJob | archive.ArchivedBatch
) -> Explanation:
    if isinstance(record, Job | Batch):
        try:
            return why_job(fleet, record) if isinstance(record, Job) else why_batch(fleet, record)
        except Corrupt as damage:
            return _damaged(record.id, damage)
    if isinstance(record, archive.ArchivedJob):
        name, since = record.jid, record.since
    else:
        name, since = record.bid, archived_since(fleet.site, record)
    gone = record.disposition
    return Explanation(
        id=name,
        kind=kind_of(name),
        name=record.name,
        profile=record.profile,
        state=record.state,
        since=since,
        reason=Reason.ARCHIVED,
        holder=gone.who,
        holder_since=gone.at,
        hold_reason=gone.why,
    )


def _damaged(name: str, damage: Corrupt) -> Explanation:
    return Explanation(
        id=name,
        kind=kind_of(name),
        reason=Reason.RECORD_DAMAGED,
        message=str(damage),
        remedies=damage.remedies,
    )


def _seen_by(principal: Principal, explanation: Explanation, fault: RecordFault | None) -> Explanation:
    """The explanation, or the record's fault; other people's jobs are hidden from those who see only some."""
    if fault is not None and explanation.reason is not Reason.ARCHIVED:
        explanation = explanation.model_copy(update=dict(fault.cause))
    return explanation if sees_fleet(principal) else _without_others(explanation)


def _without_others(explanation: Explanation) -> Explanation:
    changes: dict[str, object] = {"users": {}}
    if explanation.waits_for.startswith(("jid", "bid")):
        changes["waits_for"] = ""
    if explanation.first is not None:
        changes["first"] = _without_others(explanation.first)
    return explanation.model_copy(update=changes)
