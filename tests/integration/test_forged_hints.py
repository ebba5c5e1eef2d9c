"""A ticket that anybody may write has its task start work that the record has for it now, or do nothing."""

from collections.abc import Iterator

import pytest

from pipeline.outcome import WaitKind, WaitsFor
from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import BATCH, JOB, JobState
from tasks.app import make_context
from tasks.broker import read_queues
from tasks.worker_context import WorkerContext
from tests.support import planting
from zkstate.connection.session import Session
from zkstate.record import jobs, record

TASKS = {task.name for task in (*JOB.tasks(), *BATCH.tasks())}
STATES = [str(state) for state in (*JOB.states(), *BATCH.states())]


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    opened = make_context(settings)
    opened.session()  # the first one gives the record its id
    yield opened
    opened.drop_session()


@pytest.mark.parametrize("state", JOB.states())
def test_a_ticket_that_the_record_did_not_give_out_changes_nothing(
    session: Session, settings: Settings, context: WorkerContext, state: JobState
) -> None:
    job = planting.job_in(session, state)
    epoch, working = job.status.epoch, state in JOB.working()
    forged = [
        *(Ticket(id=job.jid, state=state, epoch=other) for other in (epoch - 1, epoch + 1, 10**30)),
        *(Ticket(id=job.jid, state=other, epoch=epoch) for other in STATES if other != state or not working),
        *(Ticket(id=name, state=state, epoch=epoch) for name in ("jid9999999999", job.bid)),
        Ticket(id=job.jid, state="no state of this release", epoch=epoch),
    ]
    before = planting.tree(session)

    for task in TASKS:
        for ticket in forged:
            context.app.tasks[task](ticket.model_dump())

    assert planting.tree(session) == before
    assert read_queues(settings).tickets == set()


@pytest.mark.parametrize("state", [state for state in JOB.states() if state is not JobState.FAILED])
def test_a_callback_of_a_failure_that_did_not_happen_changes_nothing(
    session: Session, context: WorkerContext, state: JobState
) -> None:
    job = planting.job_in(session, state)
    before = planting.tree(session)

    for name in (job.jid, "jid9999999999"):
        for epoch in (job.status.epoch, job.status.epoch + 1):
            context.app.tasks["callback.failed"](name, epoch)

    assert planting.tree(session) == before


@pytest.mark.parametrize("wait", [*WaitKind, None])
def test_a_ticket_of_a_job_that_waits_changes_nothing(
    session: Session, context: WorkerContext, wait: WaitKind | None
) -> None:
    """Each try would count, and the last one fails the job."""
    held = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING))
    waits_for = None if wait is None else WaitsFor(kind=wait, name="x")
    waiting = record.hand_back(session, held, "w", delay=60, waits_for=waits_for)
    before = planting.tree(session)

    context.app.tasks["job.downloading"](record.ticket(waiting).model_dump())

    assert planting.tree(session) == before


def test_a_ticket_of_a_job_that_was_not_fed_starts_the_work_that_is_due(
    session: Session, context: WorkerContext
) -> None:
    job = planting.one_job(session)

    following = context.app.tasks["job.pending"](record.ticket(job).model_dump())

    begun = jobs.load(session, job.jid)
    assert begun.status.status is JobState.ESTIMATING
    assert following == JobState.ESTIMATING
