"""Why a batch is where it is."""

from collections import Counter
from functools import partial

from operations import why_waiting
from operations.allowed_verbs import allowed_verbs
from operations.batch_view import BatchView, batch_view_of
from operations.facts import Cause, Explanation, Obstacle, Reason
from operations.fleet import Fleet
from operations.why_job import FAILURES, why_job, with_worker
from pipeline.errors import Action, Remedy
from pipeline.records import Batch
from pipeline.states import BATCH, BatchState, Bucket, Event, FailureKind, JobState
from zkstate import batches, holds, jobs, report_parts, views
from zkstate.errors import Corrupt, Missing
from zkstate.session import Session
from zkstate.views import Unreadable

EXAMINED = 50
"""Jobs of a batch that are read to find one that an operator can help."""

_REPORTING = (BatchState.REPORTING, BatchState.UPDATE_REPORTING)


def why_batch(fleet: Fleet, batch: Batch) -> Explanation:
    return Explanation.of(batch, _cause(fleet, batch))


def _cause(fleet: Fleet, batch: Batch) -> Cause:
    state = batch.status.status
    if state is BatchState.HELD:
        return why_waiting.held(fleet.session, batch.submission.profile_name, batch.bid)
    if state is BatchState.PROCESSING and batch.status.total is not None:
        return _jobs_at_work(fleet, batch)
    if state in BATCH.working():
        return _at_work(fleet, batch)
    if state is BatchState.DELETED:
        cause = why_waiting.blocked(fleet, Cause(reason=Reason.BEING_REMOVED, moves_itself=True))
        if cause.moves_itself:
            return cause
        return cause.model_copy(update={"remedies": (Remedy(Action.DELETE, batch.bid),)})
    view = batch_view_of(fleet.site, batch)
    return _failed(fleet, batch, view) if state is BatchState.FAILED else _completed(batch, view)


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
        return why_waiting.blocked(fleet, Cause(reason=Reason.REPORTING, moves_itself=True))
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
    """The first job that an operator holds back, else the first that has not ended."""
    names = batches.jobs_in(fleet.session, bid, Bucket.PROCESSING)[:EXAMINED]
    read = list(views.job_rows(fleet.session, names))
    rows = list(views.readable(iter(read)))
    if not rows and read and isinstance(read[0], Unreadable):
        remedies = (Remedy(Action.REPAIR, read[0].id),)
        damaged = {"reason": Reason.RECORD_DAMAGED, "message": read[0].problem, "remedies": remedies}
        return Explanation(id=read[0].id, kind="job", **damaged)
    rows.sort(key=lambda row: row.state is not JobState.HELD)
    try:
        return why_job(fleet, jobs.load(fleet.session, rows[0].jid)) if rows else None
    except (Missing, Corrupt):
        return None


def _at_work(fleet: Fleet, batch: Batch) -> Cause:
    status = batch.status
    activity = views.activity(fleet.session, batch)
    host = why_waiting.for_host(fleet.site, batch)
    if activity.holder is not None:
        doing = Reason.REPORTING if status.status in _REPORTING else Reason.BEING_SPLIT
        cause = host or Cause(reason=doing, jobs={"created": status.created}, moves_itself=True)
        return with_worker(cause, activity.holder)
    written, channel = activity.status_written or 0.0, BATCH.task(status.status).queue
    if status.waits_for is not None:
        cause = why_waiting.later(fleet, status, written, host)
        return why_waiting.blocked(fleet, cause, channel)
    hold = holds.collection_hold(fleet.session, batch.submission.profile_name)
    if hold is not None and status.status is BatchState.PENDING:
        return why_waiting.on_hold(batch.submission.profile_name, hold)
    return why_waiting.for_a_worker(fleet, batch.bid, status, written, channel)


def _failed(fleet: Fleet, batch: Batch, view: BatchView) -> Cause:
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
    first, resumable = _first_failed(fleet, view)
    what_helps = (Remedy(Action.RESUME_BATCH, batch.bid),) if resumable else (*outdated, *again)
    return cause(
        reason=Reason.JOBS_FAILED,
        jobs=Counter(str(job.kind or "unknown") for job in view.failed_jobs),
        first=first,
        remedies=(*what_helps, *by_hand),
        afterwards=(update,) if resumable else (),
    )


def _outdated(session: Session, batch: Batch) -> bool:
    """Whether no report was sent, or jobs, which have all ended, ended otherwise than it says."""
    report = report_parts.whole(session, batch)
    if report is None or not report.mailed:
        return True
    failed = batches.jobs_in(session, batch.bid, Bucket.FAILED)
    return bool(report.unfinished_jobs) or set(report.failed_jobs) != set(failed)


def _first_failed(fleet: Fleet, view: BatchView) -> tuple[Explanation | None, bool]:
    """The first failed job that can be resumed, else the first; and whether it can."""
    first = None
    for row in view.failed_jobs[:EXAMINED]:
        try:
            job = jobs.load(fleet.session, row.jid)
        except (Missing, Corrupt):
            continue
        if Event.RESUME in allowed_verbs(job):
            return why_job(fleet, job), True
        first = first or job
    return (why_job(fleet, first) if first else None), False
