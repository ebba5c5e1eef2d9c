"""Why a batch is where it is."""

from collections import Counter

from operations import why_host, why_waiting
from operations.batch_view import BatchView, batch_view
from operations.facts import Cause, Explanation, Obstacle, Reason
from operations.fleet import Fleet
from operations.job_view import operator_verbs
from operations.why_job import FAILURES, why_job, with_worker
from pipeline.records import Batch
from pipeline.remedies import Action, Remedy
from pipeline.states import BATCH, BatchState, Bucket, Event, FailureKind, JobState
from zkstate import batches, holds, jobs, views
from zkstate.errors import Corrupt, Missing
from zkstate.session import Session

EXAMINED = 50
"""Jobs of a batch that are read to find one that an operator can help."""

_REPORTING = (BatchState.REPORTING, BatchState.UPDATE_REPORTING)


def why_batch(session: Session, fleet: Fleet, batch: Batch) -> Explanation:
    status = batch.status
    return Explanation.model_validate(
        {
            **dict(_cause(session, fleet, batch)),
            "id": batch.bid,
            "kind": "batch",
            "name": batch.submission.payload_filename or batch.submission.payload_url,
            "profile": batch.submission.profile_name,
            "state": status.status,
            "since": status.last_modified,
            "tries": status.tries,
            "redispatches": status.redispatches,
        }
    )


def _cause(session: Session, fleet: Fleet, batch: Batch) -> Cause:
    state = batch.status.status
    if state is BatchState.HELD:
        return why_waiting.held(session, batch.submission.profile_name, batch.bid)
    if state is BatchState.PROCESSING and batch.status.total is not None:
        return _jobs_at_work(session, fleet, batch)
    if state in BATCH.working():
        return _at_work(session, fleet, batch)
    if state is BatchState.DELETED:
        cause = why_waiting.blocked(fleet, Cause(reason=Reason.BEING_REMOVED, moves_itself=True))
        if cause.moves_itself:
            return cause
        return cause.model_copy(update={"remedies": (Remedy(Action.DELETE, batch.bid),)})
    view = batch_view(session, batch.bid)
    return _failed(session, fleet, batch, view) if state is BatchState.FAILED else _completed(batch, view)


def _completed(batch: Batch, view: BatchView) -> Cause:
    counts = {str(state): number for state, number in view.jobs.items()}
    if _not_mailed(batch):
        return Cause(
            reason=Reason.REPORT_NOT_SENT,
            message=batch.status.message,
            jobs=counts,
            total=view.total,
            remedies=(Remedy(Action.SHOW_REPORT, batch.bid),),
        )
    return Cause(reason=Reason.COMPLETED, jobs=counts, total=view.total)


def _not_mailed(batch: Batch) -> bool:
    return "report could not be mailed" in batch.status.message


def _jobs_at_work(session: Session, fleet: Fleet, batch: Batch) -> Cause:
    view = batch_view(session, batch.bid)
    if not view.buckets[Bucket.PROCESSING]:
        return why_waiting.blocked(fleet, Cause(reason=Reason.REPORTING, moves_itself=True))
    first = _first_unended(session, fleet, batch.bid)
    return Cause(
        reason=Reason.WAITING_FOR_JOBS,
        jobs={str(state): number for state, number in view.jobs.items()},
        total=view.total,
        first=first,
        moves_itself=first is None or first.moves_itself,
        remedies=first.remedies if first else (),
    )


def _first_unended(session: Session, fleet: Fleet, bid: str) -> Explanation | None:
    """The first job that an operator holds back, else the first that has not ended."""
    names = batches.jobs_in(session, bid, Bucket.PROCESSING)[:EXAMINED]
    rows = list(views.readable(views.job_rows(session, names)))
    rows.sort(key=lambda row: row.state is not JobState.HELD)
    try:
        return why_job(session, fleet, jobs.load(session, rows[0].jid)) if rows else None
    except (Missing, Corrupt):
        return None


def _at_work(session: Session, fleet: Fleet, batch: Batch) -> Cause:
    status, settings = batch.status, fleet.settings
    activity = views.batch_activity(session, batch.bid)
    host = why_host.batch_waits(session, settings, batch)
    if activity.holder is not None:
        doing = Reason.REPORTING if status.status in _REPORTING else Reason.BEING_SPLIT
        cause = host or Cause(reason=doing, jobs={"created": status.created}, moves_itself=True)
        return with_worker(cause, activity.holder)
    written, channel = activity.status_written or 0.0, BATCH.task(status.status).queue
    if status.delay:
        cause = why_waiting.later(fleet, status, written, host)
        return why_waiting.blocked(fleet, cause, channel)
    hold = holds.collection_hold(session, batch.submission.profile_name)
    if hold is not None and status.status is BatchState.PENDING:
        return why_waiting.on_hold(batch.submission.profile_name, hold)
    return why_waiting.for_a_worker(fleet, batch.bid, status, written, channel)


def _failed(session: Session, fleet: Fleet, batch: Batch, view: BatchView) -> Cause:
    obstacles = (Obstacle(reason=Reason.REPORT_NOT_SENT),) if _not_mailed(batch) else ()
    by_hand = (Remedy(Action.SHOW_REPORT, batch.bid),) if obstacles else ()
    update = Remedy(Action.UPDATE_REPORT, batch.bid)
    facts = {"total": view.total, "obstacles": obstacles, "message": batch.status.message}
    if view.buckets[Bucket.PROCESSING]:
        first = _first_unended(session, fleet, batch.bid)
        return Cause.model_validate(
            {
                **facts,
                "reason": Reason.JOBS_RESUMED,
                "jobs": view.jobs,
                "first": first,
                "moves_itself": first is None or first.moves_itself,
                "remedies": (*(first.remedies if first else ()), *by_hand),
                "afterwards": (update,),
            }
        )
    if not view.total or batch.status.kind is not None:
        return Cause.model_validate(
            {
                **facts,
                "reason": FAILURES[batch.status.kind or FailureKind.CONTENT],
                "failure": batch.status.kind,
                "remedies": (Remedy(Action.SUBMIT_AGAIN), Remedy(Action.DELETE, batch.bid), *by_hand),
            }
        )
    outdated = (update,) if _outdated(session, batch) else ()
    if not view.buckets[Bucket.FAILED]:
        reason = Reason.REPORT_OUTDATED if outdated else Reason.JOBS_FAILED
        remedies = outdated or (Remedy(Action.DELETE, batch.bid),)
        return Cause.model_validate(
            {**facts, "reason": reason, "jobs": view.jobs, "remedies": (*remedies, *by_hand)}
        )
    first, resumable = _first_failed(session, fleet, view)
    resume = (Remedy(Action.RESUME_BATCH, batch.bid),)
    again = (*outdated, Remedy(Action.SUBMIT_AGAIN), Remedy(Action.DELETE, batch.bid))
    return Cause.model_validate(
        {
            **facts,
            "reason": Reason.JOBS_FAILED,
            "jobs": Counter(str(job.kind or "unknown") for job in view.failed_jobs),
            "first": first,
            "remedies": (*(resume if resumable else again), *by_hand),
            "afterwards": (update,) if resumable else (),
        }
    )


def _outdated(session: Session, batch: Batch) -> bool:
    """Whether the failed jobs are no longer those of the last report."""
    reported = set(batch.report.failed_jobs) if batch.report else set()
    return reported != set(batches.jobs_in(session, batch.bid, Bucket.FAILED))


def _first_failed(session: Session, fleet: Fleet, view: BatchView) -> tuple[Explanation | None, bool]:
    """The first failed job that can be resumed, else the first; and whether it can."""
    first = None
    for row in view.failed_jobs[:EXAMINED]:
        try:
            job = jobs.load(session, row.jid)
        except (Missing, Corrupt):
            continue
        if Event.RESUME in operator_verbs(job):
            return why_job(session, fleet, job), True
        first = first or job
    return (why_job(session, fleet, first) if first else None), False
