"""Batches and jobs created in ZooKeeper and moved to any state along the tables; the tree as a dict."""

import itertools
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.manifests.split import Plan, PlannedJob
from pipeline.outcome import Deposited, Done
from pipeline.records import Batch, Job, PayloadType, StatusReport, Submission, SubmissionType, Ticket
from pipeline.states import (
    BATCH,
    FAILING,
    JOB,
    BatchState,
    Bucket,
    Event,
    FailureKind,
    JobState,
    Raiser,
    Transition,
)
from zkstate.connection.session import Session
from zkstate.record import batches, creation, deletion, jobs, record
from zkstate.record.batches import BatchMove
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

WORKING = Path("/nowhere/working")
DEPOSITED = Deposited(files=2, bytes=10)
"""What every recorded job has added to storage."""

_numbers = itertools.count()


def submission(**changes: object) -> Submission:
    given = {
        "profile_name": "demo",
        "payload_url": "http://example.org/a.txt",
        "type": SubmissionType.FILE,
        **changes,
    }
    return Submission.model_validate(given)


def planned(number: int, **changes: object) -> PlannedJob:
    given = {
        "payload_url": f"http://example.org/{number}.txt",
        "payload_type": PayloadType.FILE,
        "payload_name": f"{number}.txt",
        "priority": 5,
        **changes,
    }
    return PlannedJob.model_validate(given)


def plan(count: int, **changes: object) -> Plan:
    return Plan(jobs=tuple(planned(n, **changes) for n in range(count)), sha256=f"plan-{count}")


def acquired_batch(session: Session, **changes: object) -> Batch:
    """A batch in processing, locked, with no job yet."""
    bid = batches.submit(session, submission(**changes))
    batch = batches.acquire(session, record.ticket(batches.load(session, bid)), "test")
    return batches.move(session, batch, BatchMove(Event.ACQUIRE, "test", lock=Lock.KEEP))


def create_jobs(
    session: Session, batch: Batch, given: Plan, working: Path, by: str, attempt: Attempt
) -> Batch:
    """The batch once all jobs of the plan exist."""
    return [batch, *creation.create_jobs(session, batch, given, working, by, attempt)][-1]


def split_batch(
    session: Session, count: int, working: Path = WORKING, **changes: object
) -> tuple[str, list[str]]:
    """A batch with `count` pending jobs."""
    return split_batch_of(session, {}, count, working, **changes)


def split_batch_of(
    session: Session,
    submitted: Mapping[str, object],
    count: int = 1,
    working: Path = WORKING,
    **changes: object,
) -> tuple[str, list[str]]:
    """A batch of this submission, with `count` pending jobs."""
    batch = acquired_batch(session, **submitted)
    batch = create_jobs(session, batch, plan(count, **changes), working, "test", UNATTENDED)
    batches.finish_split(session, batch)
    return batch.bid, batches.all_jobs(session, batch.bid)


def one_job(session: Session, **changes: Any) -> Job:
    return jobs.load(session, split_batch(session, 1, **changes)[1][0])


def owned_job(session: Session, owner: str, **changes: object) -> Job:
    """A pending job of a deposit by this person."""
    _, (jid,) = split_batch_of(session, {"owner": owner}, 1, WORKING, **changes)
    return jobs.load(session, jid)


def acquire(session: Session, job: Job) -> Job:
    return jobs.acquire(session, record.ticket(job), f"test {next(_numbers)}")


def apply_event(session: Session, job: Job, event: Event, kind: FailureKind = FailureKind.SYSTEM) -> Job:
    """Raise one event as a worker, an operator or scheduled work does."""
    if event is Event.CLEAN_UP:
        jobs.clean_up(session, job)
        return jobs.load(session, job.jid)
    if event is Event.DELETE:
        deletion.delete_job(session, job, "operator")
        return job
    failure = kind if event in FAILING else None
    if Raiser.WORKER in JOB.rows(job.status.status, event)[0].by:
        held = acquire(session, job)
        return jobs.move(
            session, held, JobMove(event, "worker", done=_done(job, event), message="said so", kind=failure)
        )
    return jobs.move(
        session, job, JobMove(event, "operator", message="said so", kind=failure, lock=Lock.FREE)
    )


def _done(job: Job, event: Event) -> Done:
    recorded = (job.status.status, event) == (JobState.RECORDING, Event.SUCCEED)
    return Done(deposited=DEPOSITED if recorded else None)


def complete(session: Session, job: Job) -> Job:
    """Move a failed or working job to completion."""
    while job.status.status is not JobState.COMPLETED:
        possible = JOB.events(job.status.status)
        onward = (Event.RESUME, Event.ACQUIRE, Event.SUCCEED, Event.APPROVE)
        event = next(each for each in onward if each in possible)
        job = apply_event(session, job, event)
    return job


def way_to(state: JobState, last: JobState | None) -> tuple[Transition[JobState], ...]:
    """The shortest legal path from pending to `state` with `last` as the last success."""
    start: tuple[JobState, JobState | None] = (JobState.PENDING, None)
    ways: dict[tuple[JobState, JobState | None], tuple[Transition[JobState], ...]] = {start: ()}
    ahead = deque([start])
    while ahead:
        here = ahead.popleft()
        for row in JOB.table:
            if row.source is not here[0] or row.event in (Event.RESUME, Event.CLEAN_UP):
                continue
            if (row.event, row.target) == (Event.FAIL, JobState.COMPLETED):
                continue  # only an operator's move, which names its target
            after = row.source if row.event is Event.SUCCEED else here[1]
            if row.event is Event.APPROVE:
                after = JOB.before(JobState.FAILED, Event.RESUME, row.target)
            if (row.target, after) not in ways:
                ways[row.target, after] = (*ways[here], row)
                ahead.append((row.target, after))
    return next(way for (s, la), way in ways.items() if s is state and la is last)


def any_way_to(state: JobState) -> tuple[Transition[JobState], ...]:
    for last in (None, *JOB.working()):
        try:
            return way_to(state, last)
        except StopIteration:
            continue
    raise AssertionError(f"no way leads to {state}")


def job_in(session: Session, state: JobState, last: JobState | str | None = "any", **changes: object) -> Job:
    way = any_way_to(state) if last == "any" else way_to(state, last)  # type: ignore[arg-type]
    job = one_job(session, **changes)
    for row in way:
        job = apply_event(session, job, row.event)
    return job


def batch_in(session: Session, state: BatchState) -> Batch:
    """A batch moved to `state` along the table, with one job if the state has any."""
    if state is BatchState.PENDING:
        return batches.load(session, batches.submit(session, submission()))
    if state is BatchState.HELD:
        return apply_batch_event(session, batch_in(session, BatchState.PENDING), Event.HOLD)
    if state is BatchState.PROCESSING:
        return batches.load(session, split_batch(session, 1)[0])
    if state is BatchState.REPORTING:
        batch = batch_in(session, BatchState.PROCESSING)
        job = jobs.load(session, batches.all_jobs(session, batch.bid)[0])
        apply_event(session, job, Event.FAIL)
        finished = batches.finish_if_ended(session, batch.bid, "test")
        assert finished is not None
        return finished
    if state is BatchState.DELETED:
        return apply_batch_event(session, batch_in(session, BatchState.FAILED), Event.DELETE)
    row = next(r for r in BATCH.table if r.target is state)
    return apply_batch_event(session, batch_in(session, row.source), row.event)


def apply_batch_event(session: Session, batch: Batch, event: Event) -> Batch:
    rows = BATCH.rows(batch.status.status, event)
    by_worker = bool(rows) and Raiser.WORKER in rows[0].by
    told = event in (Event.SUCCEED, Event.FAIL) and batch.status.status is not BatchState.PROCESSING
    report = StatusReport(failed_jobs=(), successful_jobs=()) if told else None
    if told and event is Event.SUCCEED:
        for jid in batches.jobs_in(session, batch.bid, Bucket.FAILED):
            complete(session, jobs.load(session, jid))
    if by_worker:
        batch = batches.acquire(session, record.ticket(batch), "test")
        lock = Lock.KEEP if event is Event.ACQUIRE else Lock.MINE
        return batches.move(session, batch, BatchMove(event, "test", report=report, lock=lock))
    return batches.move(session, batch, BatchMove(event, "test", lock=Lock.FREE))


def tree(session: Session, path: str = "/") -> dict[str, bytes]:
    """Everything below `path`: path -> data."""
    found = {} if path == "/" else {path: session.get(path)[0]}
    for name in sorted(session.zk.get_children(path)):
        found |= tree(session, f"{path.rstrip('/')}/{name}")
    return found


def void(ticket: Ticket) -> Ticket:
    """The same ticket in an earlier epoch."""
    return ticket.model_copy(update={"epoch": ticket.epoch - 1})
