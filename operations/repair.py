"""Repair of a job or a batch whose znodes cannot be read: their bytes are kept aside, and the job fails."""

from operations.operator import Operator, VerbResult, retry_stale
from pipeline.records import Batch, DamagedNode, Job
from pipeline.states import BATCH, JOB, Event, FailureKind, Raiser
from zkstate import batches, jobs, quarantine
from zkstate.batches import BatchMove
from zkstate.errors import Busy, Stale
from zkstate.jobs import JobMove
from zkstate.record import Lock

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
