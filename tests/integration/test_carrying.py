"""A process carries its job onward: one lock, one transaction for each state, and no message."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from celeryconfig import QUEUES
from pipeline.outcome import Done, Service, ServiceDown
from pipeline.records import Job, Ticket
from pipeline.settings import Settings
from pipeline.states import JOB, Event, JobState, Queue
from pipeline.steps import process
from pipeline.steps.context import StepContext
from pipeline.working_storage.workspace import folder_of
from tasks.app import make_context
from tasks.broker import dispatch_job
from tasks.interruption import CHECK_INTERVAL, EXIT_OVERDUE, GRACE, RELEASE_TIME
from tasks.outages import begin_outage
from tasks.run import STEPS
from tasks.worker_context import Stop, WorkerContext
from tests.integration.test_sweep import sweep_after
from tests.servers.http_source import HttpSource
from tests.support import cli, planting
from tests.support.attempts import work_onward
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.errors import Stale
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.queue import queue, recovery
from zkstate.record import batches, jobs, record
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

STATES = len(JOB.working())

NOTED = (
    '{"check":"word","event":"","stage":"downloaded","settings":"","version":"","content":""}\n'
    '{"sha512":"","at":"2026-11-29T03:00:00Z"}\n'
)

SOON = CHECK_INTERVAL + GRACE + RELEASE_TIME + 20
"""Seconds: those of the product, and some for a busy machine."""


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    opened = make_context(settings)
    for name in QUEUES:
        opened.serve(name)
    yield opened
    opened.drop_session()
    opened.clients().inventory.database.close()


def planted(session: Session, source: HttpSource, priority: int = 5) -> Ticket:
    url = source.put("/a.txt", b"content")
    planting.one_job(session, payload_url=url, priority=priority)
    (fed,) = queue.feed(session, 10).tickets
    return fed


def stops_before(state: JobState, session: Session, ticket: Ticket) -> None:
    job = jobs.load(session, ticket.id)
    assert job.status.status is state
    assert session.exists(paths.job_lock(job.jid)) is None


def test_one_ticket_takes_a_job_from_the_queue_to_its_end(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = planted(session, source)

    assert work_onward(context, ticket) == (None, STATES - 1)

    job = jobs.load(session, ticket.id)
    assert job.status.status is JobState.COMPLETED, job.status.message
    assert [entry.state for entry in job.history] == [*JOB.working(), JobState.COMPLETED]
    assert job.status.attempt == STATES
    assert session.exists(paths.job_lock(job.jid)) is None


def test_a_job_begins_with_one_transaction_that_takes_the_lock_and_leaves_the_first_state(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = planted(session, source)
    before = jobs.load(session, ticket.id).version

    work_onward(context, ticket)

    assert jobs.load(session, ticket.id).version == before + STATES  # one for each state


def test_a_job_that_another_process_works_on_does_not_begin(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = planted(session, source)
    lock = paths.job_lock(ticket.id)
    session.ask(session.zk.create_async, lock, b"", ephemeral=True)
    before = jobs.load(session, ticket.id)

    assert work_onward(context, ticket) == (None, 0)

    assert jobs.load(session, ticket.id) == before
    session.ask(session.zk.delete_async, lock)


def test_a_job_whose_collection_is_on_hold_is_held_under_its_lock(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = planted(session, source)
    holds.place(session, Hold(by="ann"), "demo")

    assert work_onward(context, ticket) == (None, 0)

    stops_before(JobState.HELD, session, ticket)


def test_a_state_of_another_workers_queue_gets_a_ticket(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    context.serve(Queue.DOWNLOAD, served=False)
    ticket = planted(session, source)

    following, carried = work_onward(context, ticket)

    assert following == record.ticket(jobs.load(session, ticket.id))
    assert carried == 2
    stops_before(JobState.DOWNLOADING, session, ticket)


@pytest.mark.parametrize("served", [True, False])
def test_what_checks_noted_is_left_as_0_3_0_reads_it_where_a_job_is_not_carried_to_its_recording(
    session: Session,
    context: WorkerContext,
    source: HttpSource,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    served: bool,
) -> None:
    def work(job: Job, step: StepContext) -> Done:
        (folder_of(job, settings.working) / "checks.ab12.jsonl").write_text(NOTED)
        context.serve(Queue.IO, served=served)
        return process.work(job, step)

    monkeypatch.setitem(STEPS, JobState.PROCESSING, work)
    following, _ = work_onward(context, planted(session, source))

    assert (following is None) is served
    files = settings.working.rglob("word.ab12.jsonl")
    assert [path.read_text() for path in files] == ([] if served else [NOTED])


def test_a_stopping_worker_begins_no_further_state(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    context.ask_to_stop(Stop.ONWARD)
    ticket = planted(session, source)

    following, carried = work_onward(context, ticket)

    assert (following and following.state, carried) == (JobState.ESTIMATING, 0)
    stops_before(JobState.ESTIMATING, session, ticket)


def test_no_state_is_begun_without_a_message_during_an_outage(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = planted(session, source)
    begin_outage(session, ServiceDown(Service.INVENTORY, "the inventory does not answer"))

    following, carried = work_onward(context, ticket)

    assert (following and following.state, carried) == (JobState.ESTIMATING, 0)


def test_a_more_urgent_message_goes_before_a_long_state(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = planted(session, source, priority=50)
    urgent = planting.one_job(session)
    dispatch_job(context.app, record.ticket(urgent), urgent.status.priority)

    following, carried = work_onward(context, ticket)

    assert (following and following.state, carried) == (JobState.DOWNLOADING, 2)


def test_a_message_as_urgent_as_the_job_does_not_stop_it(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = planted(session, source, priority=50)
    other = planting.one_job(session)
    dispatch_job(context.app, record.ticket(other), 50)

    assert work_onward(context, ticket) == (None, STATES - 1)


def test_a_job_that_has_to_wait_is_handed_back_with_its_lock(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = planted(session, source)
    source.put("/a.txt", b"content", status=503)

    assert work_onward(context, ticket)[0] is None

    status = jobs.load(session, ticket.id).status
    assert (status.status, status.tries) == (JobState.DOWNLOADING, 1)
    stops_before(JobState.DOWNLOADING, session, ticket)


BETWEEN: dict[str, Callable[[Session, Job], object]] = {
    "the lock is removed": lambda session, job: session.zk.delete(paths.job_lock(job.jid)),
    "an operator fails the job": lambda session, job: jobs.move(
        session, job, JobMove(Event.FAIL, "ann", lock=Lock.BREAK)
    ),
}


@pytest.mark.parametrize("change", BETWEEN.values(), ids=BETWEEN)
def test_a_process_that_lost_its_job_cannot_carry_the_job_onward(
    session: Session, change: Callable[[Session, Job], object]
) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING))
    change(session, held)
    before = planting.tree(session)

    with pytest.raises(Stale):
        jobs.move(session, held, JobMove(Event.SUCCEED, "zombie", lock=Lock.CARRY))

    assert planting.tree(session) == before


def test_the_next_attempt_is_counted_with_the_move(session: Session) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.ESTIMATING))

    carried = jobs.move(session, held, JobMove(Event.SUCCEED, "w", done=Done(), lock=Lock.CARRY))

    assert carried == jobs.load(session, held.jid)
    assert (carried.status.attempt, carried.status.epoch) == (
        held.status.attempt + 1,
        held.status.epoch + 1,
    )
    assert session.exists(paths.job_lock(held.jid)) is not None
    record.hand_back(session, carried, "w")


def test_a_batch_ends_with_its_last_job_carried(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = planted(session, source)

    work_onward(context, ticket)

    bid = jobs.load(session, ticket.id).bid
    assert batches.load(session, bid).status.status.value == "reporting"


WAITS = """
import socket, sys

from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import JobState, Queue
from tasks.app import make_context
from tasks.run import STEPS
from tests.support.attempts import work_onward


def wait_for_an_answer(_job, _context):
    silent, other_end = socket.socketpair()
    print("begun", flush=True)
    silent.recv(1)


STEPS[JobState(sys.argv[1])] = wait_for_an_answer
context = make_context(Settings())
for queue in Queue:
    context.serve(queue.value)
work_onward(context, Ticket.model_validate_json(sys.argv[2]))
"""


@pytest.mark.parametrize("state", [JobState.PROCESSING, JobState.NOTIFY])
def test_fail_ends_a_carried_attempt_whatever_it_waits_for(
    session: Session, settings: Settings, source: HttpSource, state: JobState
) -> None:
    ticket = planted(session, source)
    argv = [sys.executable, "-c", WAITS, state.value, ticket.model_dump_json()]

    with subprocess.Popen(argv, env=cli.variables(settings), stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert b"begun\n" in worker.stdout  # after lines of the log
        jobs.move(session, jobs.load(session, ticket.id), JobMove(Event.FAIL, "ann", lock=Lock.BREAK))
        failed_at = time.monotonic()

        assert worker.wait() == EXIT_OVERDUE
        assert time.monotonic() - failed_at < SOON
    stops_before(JobState.FAILED, session, ticket)


def test_a_mistake_in_a_carried_attempt_counts_as_a_try(
    session: Session, context: WorkerContext, source: HttpSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken_step(_job: Job, _context: StepContext) -> Done:
        raise ValueError("a mistake in the code")

    monkeypatch.setitem(STEPS, JobState.RECORDING, mistaken_step)
    ticket = planted(session, source)

    assert work_onward(context, ticket)[0] is None

    status = jobs.load(session, ticket.id).status
    assert (status.status, status.tries, status.redispatches) == (JobState.RECORDING, 1, 0)
    assert status.message == "unexpected ValueError: a mistake in the code"
    assert status.delay > 0
    stops_before(JobState.RECORDING, session, ticket)


def test_a_carried_job_that_loses_its_process_again_and_again_is_dispatched_less_often(
    session: Session, settings: Settings
) -> None:
    carried = jobs.move(
        session,
        planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING)),
        JobMove(Event.SUCCEED, "w", done=Done(), lock=Lock.CARRY),
    )
    for lost in range(3):
        session.zk.delete(paths.job_lock(carried.jid))  # as at the end of the session of a process that died
        waits = recovery.GRACE * 2**lost
        assert sweep_after(session, carried.jid, waits - 1) == []
        (ticket,) = sweep_after(session, carried.jid, waits + 2)
        assert jobs.load(session, carried.jid).status.redispatches == lost + 1
        jobs.acquire(session, ticket, "w")
    session.zk.delete(paths.job_lock(carried.jid))
