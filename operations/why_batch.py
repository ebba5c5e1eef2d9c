"""Why a batch is where it is."""

import time
from collections import Counter

from operations import why_host, why_waiting
from operations.batch_view import ENDED, BatchView, batch_view
from operations.why_job import why_job
from operations.wording import by_whom, counted, duration, listed, standing
from pipeline.records import Batch
from pipeline.settings import Settings
from pipeline.states import BATCH, BatchState, Bucket, Event
from zkstate import batches, holds, jobs, views
from zkstate.session import Session

_DOES = {
    BatchState.PENDING: "reading its payload",
    BatchState.PROCESSING: "splitting it into jobs",
    BatchState.REPORTING: "writing its report",
    BatchState.UPDATE_REPORTING: "writing its second report",
}


def why_batch(session: Session, settings: Settings, batch: Batch) -> str:
    state = batch.status.status
    opening = (
        f"{batch.bid} ({batch.submission.payload_filename or batch.submission.payload_url}, collection "
        f"{batch.submission.profile_name}) "
        f"{standing(state, batch.status.last_modified, ended=state in ENDED)}."
    )
    if state is BatchState.HELD:
        return f"{opening} {_held(session, batch)}"
    if state is BatchState.PROCESSING and batch.status.total is not None:
        return f"{opening} {_jobs_at_work(session, settings, batch)}"
    if state in BATCH.working():
        return f"{opening} {_at_work(session, settings, batch)}"
    view = batch_view(session, batch.bid)
    if Event.UPDATE_REPORT in BATCH.events(state):
        return f"{opening} {_failed(view)}"
    if state is BatchState.DELETED:
        return f"{opening} It is being taken out of ZooKeeper. There is nothing to do."
    return f"{opening} {counted(view.ended_jobs, 'job')} completed, and the depositor was told."


def _held(session: Session, batch: Batch) -> str:
    name = batch.submission.profile_name
    hold = holds.collection_hold(session, name)
    if hold is None:
        return f"Its collection {name} is not on hold any more. `arkline release {batch.bid}` lets it go on."
    return (
        f"Its collection {name} has been on hold{by_whom(hold.by, hold.reason, hold.at)}. "
        f"`arkline release --collection {name} --jobs` ends the hold and lets everything in it go on."
    )


def _jobs_at_work(session: Session, settings: Settings, batch: Batch) -> str:
    unended = batches.jobs_in(session, batch.bid, Bucket.PROCESSING)
    view = batch_view(session, batch.bid)
    if not unended:
        return "Its last job has just ended; the report is begun within seconds."
    told = (
        f"{counted(len(unended), 'job')} of {batch.status.total} "
        f"{'has' if len(unended) == 1 else 'have'} not ended ({listed(view.jobs)})."
    )
    first = jobs.load(session, unended[0])
    return f"{told} The first of them: {why_job(session, settings, first)}"


def _at_work(session: Session, settings: Settings, batch: Batch) -> str:
    status = batch.status
    activity = views.batch_activity(session, batch.bid)
    doing = _DOES[status.status]
    if activity.holder is not None:
        holder = activity.holder.name
        spent = duration(max(0.0, time.time() - activity.holder.since))
        made = f" ({counted(status.created, 'job')} so far)" if status.created else ""
        waits = why_host.batch_waits(session, settings, batch)
        rest = waits or "There is nothing to do."
        return f"The {holder} has been {doing}{made} for {spent}. {rest}"
    if status.delay and activity.status_written is not None:
        left = activity.status_written + status.delay - time.time()
        when = f"in {duration(left)}" if left > 0 else "any moment now, by the sweep"
        if status.in_line:
            return (
                f"Nothing failed, but it waits for its turn: {status.message.rstrip('.')}. It asks again "
                f"{when}; there is nothing to do."
            )
        return (
            f"A worker that was {doing} met a fault that may pass ({status.message}); it is tried again "
            f"{when}: try {status.tries + 1} of {settings.max_tries}."
        )
    hold = holds.collection_hold(session, batch.submission.profile_name)
    if hold is not None and status.status is BatchState.PENDING:
        return (
            f"Its collection has been on hold{by_whom(hold.by, hold.reason, hold.at)}, so that it will be "
            f"held when a worker takes it up. "
            f"`arkline release --collection {batch.submission.profile_name}` ends the hold."
        )
    from tasks.dispatch import BATCH_TASKS

    return why_waiting.for_a_worker(session, settings, batch.bid, status, BATCH_TASKS[status.status])


def _failed(view: BatchView) -> str:
    if not view.failed_jobs:
        because = view.message or "nothing could be made of its payload"
        kind = f" ({view.kind}: {view.kind.doc})" if view.kind else ""
        return f"{because.rstrip('.')}{kind}. The depositor was told; a new submission is required."
    kinds = Counter(str(job.kind or "unknown") for job in view.failed_jobs)
    first = view.failed_jobs[0]
    failed = view.buckets[Bucket.FAILED]
    return (
        f"{counted(failed, 'job')} of {view.total} failed ({listed(kinds)}), and the depositor was told. "
        f"The first is {first.jid}: {first.message.rstrip('.')}. `arkline why {first.jid}` says what can be "
        f"done; "
        f"`arkline resume --batch {view.bid} --state failed` goes on with all that can, and "
        f"`arkline update-report {view.bid}` then tells the depositor what changed."
    )
