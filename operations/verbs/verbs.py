"""What an operator does to a job or a batch: every verb is an event of its table, committed as one move.

Repair of a job or a batch whose znodes cannot be read: their bytes are kept aside, and the job fails.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

from operations.jobs.allowed_verbs import allowed_verbs, check_seen, target_of
from operations.jobs.reports import compose
from operations.operator import (
    Operator,
    VerbResult,
    remove_folder,
    retry_stale,
)
from operations.visibility import recorded
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.notify.report.compose import deleted_with_batch
from pipeline.records import Batch, DamagedNode, Job
from pipeline.states import (
    BATCH,
    JOB,
    BatchState,
    Event,
    FailureKind,
    JobState,
    Raiser,
)
from pipeline.working_storage import mount
from pipeline.working_storage.workspace import folder_at
from tasks import after_move
from zkstate.care import quarantine
from zkstate.errors import Busy, Stale
from zkstate.queue import listings
from zkstate.record import batches, deletion, jobs
from zkstate.record.batches import BatchMove
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

_FOR_A_BATCH = {Event.FAIL: (Action.CANCEL,), Event.RESUME: (Action.RESUME_BATCH,)}
"""What does to the jobs of a batch what the event does to one job."""


def act(  # noqa: PLR0913 - the conditions of one verb
    operator: Operator,
    name: str,
    event: Event,
    *,
    version: int | None = None,
    to: JobState | None = None,
    dry_run: bool = False,
    feeding: bool = True,
) -> VerbResult:
    """Raise `event` on the job or batch, with everything that follows from the move.

    `version`: that of the status that the caller decided on; Moved if the status has another one. `to`: the
    state in which a job is to be resumed; None: after its last successful step. A dry run
    raises what the verb would raise. Without `feeding` the caller hands out the pending jobs, once for many.
    To delete a batch again completes a deletion that was interrupted.
    """
    check_kind(name, event)

    def attempt() -> VerbResult:
        thing = recorded(operator.site, operator.principal, name)
        operator.require(f"{event} {name}", thing.profile_name)
        check_seen(thing, version)
        return _act_on(operator, thing, event, to=to, dry_run=dry_run)

    result = retry_stale(name, attempt)
    if feeding and not dry_run:
        operator.site.feed()
    return result


def stop_job(operator: Operator, jid: str, *, dry_run: bool = False) -> VerbResult:
    """Fail the job of a batch that the operator stops; delete it if it is held, so that it has not begun."""

    def attempt() -> VerbResult:
        job = jobs.load(operator.session, jid)
        event = Event.FAIL if Event.FAIL in allowed_verbs(job) else Event.DELETE
        return _act_on(operator, job, event, dry_run=dry_run)

    return retry_stale(jid, attempt)


def _act_on(
    operator: Operator, thing: Job | Batch, event: Event, *, to: JobState | None = None, dry_run: bool
) -> VerbResult:
    target = target_of(operator.session, thing, event, to)
    if dry_run:
        return VerbResult(id=thing.id, was=thing.status.status, now=target, version=thing.version)
    if event is Event.DELETE:
        return _delete_job(operator, thing) if isinstance(thing, Job) else _delete_batch(operator, thing)
    fails = isinstance(thing, Job) and event is Event.FAIL
    changes = {} if to is None else {"to": to}
    moved = _fail(operator, thing) if fails else _move(operator, thing, event, **changes)
    return _result(operator, thing, moved)


def check_kind(name: str, event: Event) -> None:
    """UsageRefused unless the event is for a thing of this kind: a job or a batch."""
    is_batch = name.startswith("bid")
    table = BATCH.table if is_batch else JOB.table
    refused = is_batch and event in _FOR_A_BATCH
    if not refused and any(row.event is event and Raiser.OPERATOR in row.by for row in table):
        return
    if not is_batch:
        raise UsageRefused(f"{event} is for batches; {name} is a job")
    refusal = UsageRefused(f"{event} is for jobs, and {name} is a batch: name or select its jobs")
    raise refusal.with_remedies(*(Remedy(action, name) for action in _FOR_A_BATCH.get(event, ())))


def _request(operator: Operator, event: Event) -> dict[str, Any]:
    message = f"{event} by {operator.by}{operator.because}"
    principal = operator.principal
    who = {"by": operator.by, "via": principal.interface, "request_id": principal.request_id}
    return {**who, "event": event, "message": message, "lock": Lock.FREE}


def _move(operator: Operator, thing: Job | Batch, event: Event, **changes: Any) -> Job | Batch:
    request = _request(operator, event) | changes
    if isinstance(thing, Job):
        return jobs.move(operator.session, thing, JobMove(**request))
    return batches.move(operator.session, thing, BatchMove(**request))


def stop_batch(operator: Operator, bid: str, *, dry_run: bool = False) -> VerbResult | None:
    """End the split or the report of the batch; a worker that has the batch loses it. The jobs continue.

    None if the batch is split and its jobs are at work, or if it has ended.
    """

    def attempt() -> VerbResult | None:
        batch = batches.load(operator.session, bid)
        status = batch.status
        if status.total is not None and not BATCH.facts[status.status].reports:
            return None
        if Event.FAIL not in BATCH.events(status.status, Raiser.OPERATOR):
            return None
        if dry_run:
            target = BATCH.next(status.status, Event.FAIL)
            return VerbResult(id=bid, was=status.status, now=target, version=batch.version)
        message = f"cancelled by {operator.by}{operator.because or ', who gave no reason'}"
        kind = None if BATCH.facts[status.status].reports else FailureKind.SYSTEM
        try:
            changes = {"message": message, "kind": kind, "lock": Lock.BREAK}
            return _result(operator, batch, _move(operator, batch, Event.FAIL, **changes))
        except Busy as error:
            raise Stale(f"a worker acquired {bid} after it was read") from error

    return retry_stale(bid, attempt)


def _result(operator: Operator, before: Job | Batch, after: Job | Batch) -> VerbResult:
    return VerbResult(
        id=before.id,
        was=before.status.status,
        now=after.status.status,
        version=after.version,
        sent=operator.site.follow(after),
    )


def _fail(operator: Operator, job: Job | Batch) -> Job | Batch:
    """A worker that has the job loses the lock, and with it the right to any further effect."""
    message = f"failed by {operator.by}{operator.because or ', who gave no reason'}"
    try:
        return _move(operator, job, Event.FAIL, message=message, kind=FailureKind.SYSTEM, lock=Lock.BREAK)
    except Busy as error:
        raise Stale(f"a worker acquired {job.id} after it was read") from error


def _delete_job(operator: Operator, job: Job) -> VerbResult:
    """The tombstone first, the folder last: a crash leaves at most a folder, which the clean-up finds."""
    from pipeline.inventory.archive import tombstone  # loads SQLAlchemy

    tombstone(operator.site.inventory(), job, by=operator.by, reason=operator.reason)
    deleted = deletion.delete_job(operator.session, job, operator.by)
    left = remove_folder(operator, job)
    return _result(operator, job, deleted).model_copy(update={"version": None, "folder_left": left})


def _delete_batch(operator: Operator, batch: Batch) -> VerbResult:
    """Tombstones first, folders last: after a crash or a stop a repeated delete does the rest.

    Half of the progress is the writing of the tombstones, half the removal of the jobs.
    """
    session, run, was = operator.session, operator.run, batch.status.status
    jids = listings.of_batch(session, batch.bid)
    left = _folder_elsewhere(operator, jids)
    if was is not BatchState.DELETED:
        _write_tombstones(operator, batch, jids)
        batch = batches.move(session, batch, BatchMove(**_request(operator, Event.DELETE)))
    to_remove, number = set(jids), max(1, len(jids))

    def on_removed(removed: Sequence[str]) -> bool:
        for jid in to_remove.intersection(removed):
            to_remove.remove(jid)
            if not left:
                after_move.remove_folder(folder_at(operator.settings.working, batch.bid, jid))
        run.on_progress(2 * number - len(to_remove), 2 * number)
        return not run.should_stop()

    complete = deletion.remove_batch(session, batch, on_removed)
    return VerbResult(id=batch.bid, was=was, now=BatchState.DELETED, folder_left=left, complete=complete)


def _write_tombstones(operator: Operator, batch: Batch, jids: Sequence[str]) -> None:
    """Of the jobs, then of their batch, with its report; a page of jobs at a time is in memory."""
    from pipeline.inventory.archive import archive_jobs, tombstone  # loads SQLAlchemy

    inventory, by, reason = operator.site.inventory(), operator.by, operator.reason
    members = _unless_stopped(operator, batch, jids)
    buried = archive_jobs(inventory, members, by=by, reason=reason, deleted=True)
    as_deleted = partial(deleted_with_batch, reason=reason)
    report = compose(operator.site, batch, buried, as_deleted)
    tombstone(inventory, batch, by=by, reason=reason, report=report)


def _unless_stopped(operator: Operator, batch: Batch, jids: Sequence[str]) -> Iterator[Job]:
    """The jobs of a batch that is to be deleted, until the caller asks to stop."""
    for number, job in enumerate(jobs.load_present(operator.session, jids), 1):
        operator.run.check(f"the deletion of {batch.bid} was stopped before anything was removed")
        operator.run.on_progress(number, 2 * len(jids))
        yield job


def _folder_elsewhere(operator: Operator, jids: Sequence[str]) -> str:
    """The folder of these jobs' batch if working storage is not mounted here: the folder is not removed."""
    if mount.is_marked(operator.settings.working):
        return ""
    first = next(jobs.load_present(operator.session, jids), None)
    return str(PurePath(first.configuration.working_dir).parent) if first else ""


WAS = "unreadable"


def repair(operator: Operator, name: str, *, feeding: bool = True) -> VerbResult:
    """Replace what cannot be read, end a job that has not ended, and free what it holds.

    UsageRefused if every znode can be read. The collection may be unreadable too, so that only an operator of
    all collections may do this.
    """
    operator.require(f"repair {name}")
    session = operator.session
    moved: Job | Batch
    if name.startswith("bid"):
        batch = retry_stale(name, lambda: quarantine.quarantine_batch(session, name, operator.stamp))
        moved = retry_stale(name, lambda: _end_batch(operator, batches.load(session, name), batch))
    else:
        working = operator.settings.working
        job = retry_stale(name, lambda: quarantine.quarantine_job(session, name, working, operator.stamp))
        moved = retry_stale(name, lambda: _end_job(operator, jobs.load(session, name), job))
    sent = operator.site.follow(moved)
    if feeding:
        operator.site.feed()
    return VerbResult(id=name, was=WAS, now=moved.status.status, version=moved.version, sent=sent)


def _end_job(operator: Operator, job: Job, repaired: Job) -> Job:
    """A job that has not ended fails, whoever holds its lock; the depositor's report has the message."""
    if Event.FAIL not in JOB.events(job.status.status, Raiser.OPERATOR):
        return job
    nodes = _replaced(repaired)
    lost = {"configuration", "identifiers"} & {node.path.rpartition("/")[2] for node in nodes}
    what = " and ".join(sorted(lost)) or "state"
    message = f"the {what} of this object in the record was damaged, and cannot be read any more"
    kind = FailureKind.CONTENT if lost else FailureKind.SYSTEM
    try:
        request = JobMove(Event.FAIL, operator.by, message=message, kind=kind, lock=Lock.BREAK)
        return jobs.move(operator.session, job, request)
    except Busy as error:
        raise Stale(f"a worker acquired {job.jid} after it was read") from error


def _end_batch(operator: Operator, batch: Batch, repaired: Batch) -> Batch:
    """A batch whose submission was lost before it was split has nothing to split; any other goes its way."""
    lost = any(node.path.endswith("/submission") for node in _replaced(repaired))
    if BATCH.facts[batch.status.status].split or not lost:
        return batch
    message = "the submission in the record was damaged: submit its content again"
    request = BatchMove(Event.FAIL, operator.by, message=message, kind=FailureKind.CONTENT, lock=Lock.BREAK)
    return batches.move(operator.session, batch, request)


def _replaced(repaired: Job | Batch) -> tuple[DamagedNode, ...]:
    return repaired.history[-1].damaged or ()
