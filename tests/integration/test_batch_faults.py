"""Batches have the fence and the last try that jobs have."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from operations.jobs.batch_view import report
from operations.site import Site
from pipeline import causes
from pipeline.attempt import UNATTENDED
from pipeline.outcome import Done, Service, ServiceDown, Wait, WaitKind, system
from pipeline.records import Batch, Job, StatusReport
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind, JobState
from pipeline.steps.context import StepContext
from tasks.app import make_context
from tasks.batch import REPORT, SPLIT, counted
from tasks.outages import this_host
from tasks.run import JOBS, STEPS, Attempt, StateWork
from tasks.scheduled import beat
from tasks.worker_context import WorkerContext
from tests.integration.test_sweep import later
from tests.support import planting
from tests.support.attempts import work_on
from tests.support.operators import ANN
from tests.support.waits import RETRY
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.errors import Stale
from zkstate.fleet import outages
from zkstate.queue import recovery
from zkstate.record import batches, creation, jobs, record
from zkstate.record.batches import BatchMove

KNOWN = StatusReport(successful_jobs=("jid0000000001",))


def moved_by_zombie(event: Event, report: StatusReport | None = None) -> Callable[[Session, Batch], object]:
    return lambda session, zombie: batches.move(session, zombie, BatchMove(event, "zombie", report=report))


SPLITTING: dict[str, Callable[[Session, Batch], object]] = {
    "creates jobs": lambda session, zombie: list(
        creation.create_jobs(session, zombie, planting.plan(41), planting.WORKING, "zombie", UNATTENDED)
    ),
    "ends the split": batches.finish_split,
    "fails the split": moved_by_zombie(Event.FAIL),
    "ends the jobs": lambda session, zombie: batches.move(
        session, zombie, BatchMove(Event.SUCCEED, "zombie")
    ),
    "hands back": lambda session, zombie: record.hand_back(session, zombie, "zombie", waits_for=RETRY),
}
REPORTING: dict[str, Callable[[Session, Batch], object]] = {
    "reports success": moved_by_zombie(Event.SUCCEED, KNOWN),
    "reports failure": moved_by_zombie(Event.FAIL, KNOWN),
    "hands back": lambda session, zombie: record.hand_back(session, zombie, "zombie"),
}


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    quick = {"backoff": 1, "max_tries": 3, "max_redispatches": 2}
    opened = make_context(settings.model_copy(update=quick))
    yield opened
    opened.drop_session()


def taken_over(session: Session, zombie: Batch) -> Batch:
    """The batch in the hands of another worker, after the lock of the first was lost."""
    session.zk.delete(paths.batch_lock(zombie.bid))
    ticket = record.redispatch(session, batches.load(session, zombie.bid), lost=True)
    return batches.acquire(session, ticket, "owner")


def unchanged_by(session: Session, zombie: Batch, act: Callable[[Session, Batch], object]) -> None:
    owner = taken_over(session, zombie)
    session.ensure_node(paths.counter("job"), b"0")
    before = planting.tree(session)

    with pytest.raises(Stale):
        act(session, zombie)

    assert planting.tree(session) == before
    assert session.get(paths.batch_lock(zombie.bid))[0].endswith(b" owner")
    record.hand_back(session, owner, "owner")


@pytest.mark.parametrize("act", SPLITTING)
def test_a_splitting_worker_that_lost_its_lock_changes_nothing(session: Session, act: str) -> None:
    unchanged_by(session, planting.acquired_batch(session), SPLITTING[act])


@pytest.mark.parametrize("act", SPLITTING)
def test_a_splitting_worker_that_lost_its_lock_in_the_middle_changes_nothing(
    session: Session, act: str
) -> None:
    batch = planting.acquired_batch(session)
    plan = planting.plan(creation.CHUNK + 1)
    half = next(creation.create_jobs(session, batch, plan, planting.WORKING, "zombie", UNATTENDED))

    unchanged_by(session, half, SPLITTING[act])

    assert batches.load(session, batch.bid).status.total is None


def test_a_splitting_worker_that_lost_its_lock_does_not_begin(session: Session) -> None:
    """Nobody has the batch meanwhile, so that its version is the one that was read."""
    pending = planting.batch_in(session, BatchState.PENDING)
    zombie = batches.acquire(session, record.ticket(pending), "zombie")
    session.zk.delete(paths.batch_lock(pending.bid))

    with pytest.raises(Stale):
        batches.move(session, zombie, BatchMove(Event.ACQUIRE, "zombie", lock=record.Lock.KEEP))

    assert batches.state_of(session, pending.bid) is BatchState.PENDING


@pytest.mark.parametrize("state", [BatchState.REPORTING, BatchState.UPDATE_REPORTING])
@pytest.mark.parametrize("act", REPORTING)
def test_a_reporting_worker_that_lost_its_lock_changes_nothing(
    session: Session, act: str, state: BatchState
) -> None:
    batch = planting.batch_in(session, state)

    unchanged_by(session, batches.acquire(session, record.ticket(batch), "zombie"), REPORTING[act])


def mistaken(_: Attempt[Batch]) -> Batch | None:
    raise ValueError("a mistake in the code")


def try_until_it_ends(context: WorkerContext, session: Session, bid: str, work: StateWork[Batch]) -> int:
    """The number of tries after which the batch is in another state, or split."""
    first = batches.load(session, bid)
    for tries in range(1, 20):
        work_on(context, record.ticket(batches.load(session, bid)), work)
        now = batches.load(session, bid).status
        if (now.status, now.total) != (first.status.status, first.status.total):
            return tries
    raise AssertionError("the batch is tried for ever")


def test_an_unexpected_error_in_a_split_counts_as_a_try_and_the_last_one_fails_the_batch(
    session: Session, context: WorkerContext
) -> None:
    batch = planting.batch_in(session, BatchState.PENDING)
    work = StateWork(batches.load, partial(counted, mistaken), SPLIT.fail)

    tries = try_until_it_ends(context, session, batch.bid, work)

    after = batches.load(session, batch.bid)
    assert (tries, after.status.status) == (3, BatchState.REPORTING)
    assert after.status.message == "unexpected ValueError: a mistake in the code"
    assert (after.status.total, after.status.kind) == (0, FailureKind.TRANSIENT)


def refused(_: Attempt[Batch]) -> Batch | None:
    raise system("no such user")


@pytest.mark.parametrize("ends", ["is sent", "is refused"])
def test_a_report_that_waited_for_a_service_says_why_the_batch_failed_and_not_why_it_waited(
    session: Session, context: WorkerContext, ends: str
) -> None:
    batch = planting.batch_in(session, BatchState.PENDING)
    attempt = batches.acquire(session, record.ticket(batch), "worker")
    failure = BatchMove(Event.FAIL, "worker", "it is empty", FailureKind.CONTENT, cause=causes.OTHER())
    reporting = batches.move(session, attempt, failure)
    own = context.session()  # what it writes it does not read too late
    outages.report(own, ServiceDown(Service.MAIL, "the mail server does not answer"), this_host())

    work_on(context, record.ticket(reporting), REPORT)

    waiting = batches.load(session, batch.bid)
    assert waiting.status.status is BatchState.REPORTING
    assert waiting.status.message == "the mail server does not answer"
    outages.end(own, Service.MAIL)
    refusing = StateWork(batches.load, refused, REPORT.fail)
    work_on(context, record.ticket(waiting), REPORT if ends == "is sent" else refusing)

    failed = batches.load(session, batch.bid)
    because = {"is sent": "", "is refused": "; the report could not be sent: no such user"}[ends]
    assert (failed.status.status, failed.status.message) == (BatchState.FAILED, f"it is empty{because}")
    assert failed.status.failure_cause == causes.OTHER()
    assert report(Site(context.settings, session), ANN, batch.bid).message == "it is empty"


def test_an_unexpected_error_in_a_step_counts_as_a_try_and_the_last_one_ends_in_a_report(
    session: Session, context: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = (f"mistake {number} in the code" for number in (1, 2, 3))

    def mistaken_step(job: Job, step_context: StepContext) -> Done | Wait:
        raise ValueError(next(errors))

    monkeypatch.setitem(STEPS, JobState.PROCESSING, mistaken_step)
    job = planting.job_in(session, JobState.PROCESSING)

    for tries in (1, 2):
        work_on(context, record.ticket(jobs.load(session, job.jid)), JOBS[JobState.PROCESSING])
        waiting = jobs.load(session, job.jid).status
        assert (waiting.status, waiting.tries) == (JobState.PROCESSING, tries)
        assert waiting.message == f"unexpected ValueError: mistake {tries} in the code"
        assert waiting.waits_for is not None
        assert waiting.waits_for.kind == WaitKind.RETRY
        assert waiting.delay > 0
    work_on(context, record.ticket(jobs.load(session, job.jid)), JOBS[JobState.PROCESSING])

    failed = jobs.load(session, job.jid).status
    assert (failed.status, failed.kind) == (JobState.FAILED, FailureKind.SYSTEM)
    assert failed.message == "unexpected ValueError: mistake 3 in the code"
    batch = batches.load(session, job.bid)
    assert batch.status.status is BatchState.REPORTING
    work_on(context, record.ticket(batch), REPORT)
    reported = batches.load(session, job.bid)
    assert reported.report is not None
    assert reported.report.failed_jobs == (job.jid,)


@pytest.mark.parametrize("state", [BatchState.REPORTING, BatchState.UPDATE_REPORTING])
def test_a_report_of_a_damaged_record_fails_with_a_message_and_can_be_requested_again(
    session: Session, context: WorkerContext, state: BatchState
) -> None:
    batch = planting.batch_in(session, state)
    (jid,) = batches.all_jobs(session, batch.bid)
    whole, _ = session.get(paths.configuration(jid))
    session.zk.set(paths.configuration(jid), b"{damaged")

    tries = try_until_it_ends(context, session, batch.bid, REPORT)

    failed = batches.load(session, batch.bid)
    assert (tries, failed.status.status) == (3, BatchState.FAILED)
    assert f"the report could not be written: znode {paths.configuration(jid)}" in failed.status.message
    session.zk.set(paths.configuration(jid), whole)
    again = planting.apply_batch_event(session, failed, Event.UPDATE_REPORT)
    work_on(context, record.ticket(again), REPORT)
    assert batches.load(session, batch.bid).report is not None


def sweep(context: WorkerContext, session: Session) -> None:
    """The sweep's work on batches, a while from now."""
    most = context.settings.max_redispatches
    found = recovery.sweep_batches(session, frozenset(), later(session, 1000), beat.SWEEP, most)
    for bid in found.exhausted:
        beat.fail_exhausted_batch(context, session, bid)


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        (BatchState.PENDING, BatchState.REPORTING),
        (BatchState.REPORTING, BatchState.FAILED),
        (BatchState.UPDATE_REPORTING, BatchState.FAILED),
    ],
)
def test_a_batch_that_crashes_its_workers_fails_with_a_message(
    session: Session, context: WorkerContext, state: BatchState, ended: BatchState
) -> None:
    batch = planting.batch_in(session, state)
    for _ in range(context.settings.max_redispatches):
        record.redispatch(session, batches.load(session, batch.bid), lost=True)

    sweep(context, session)

    after = batches.load(session, batch.bid)
    assert after.status.status is ended
    assert after.status.message == f"lost its worker 2 times while {state}: see the workers' logs"
    assert after.history[-1].by == beat.SWEEP


def test_a_batch_whose_split_ends_before_the_sweep_fails_it_is_left_to_its_jobs(
    session: Session, context: WorkerContext
) -> None:
    bid, _ = planting.split_batch(session, 1)
    for _ in range(context.settings.max_redispatches):
        record.redispatch(session, batches.load(session, bid), lost=True)

    before = batches.load(session, bid)

    beat.fail_exhausted_batch(context, session, bid)

    assert batches.load(session, bid) == before


def test_a_half_split_batch_that_crashes_its_workers_keeps_its_jobs_and_is_reported_after_them(
    session: Session, context: WorkerContext
) -> None:
    batch = planting.acquired_batch(session)
    plan = planting.plan(creation.CHUNK + 1)
    next(creation.create_jobs(session, batch, plan, planting.WORKING, "worker", UNATTENDED))
    session.zk.delete(paths.batch_lock(batch.bid))
    for _ in range(context.settings.max_redispatches):
        record.redispatch(session, batches.load(session, batch.bid), lost=True)

    sweep(context, session)

    after = batches.load(session, batch.bid)
    assert (after.status.status, after.status.total) == (BatchState.PROCESSING, creation.CHUNK)
    assert after.status.kind is FailureKind.SYSTEM
    for jid in batches.all_jobs(session, batch.bid):
        last = planting.apply_event(session, jobs.load(session, jid), Event.FAIL)
    assert batches.finish_if_ended(session, last.bid, "worker") is not None
