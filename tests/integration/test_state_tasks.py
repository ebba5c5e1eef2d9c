"""Each state of a job is a run of its own Celery task, where one process carries the job, too."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from celery.app.trace import build_tracer, trace_ok_t
from celery.signals import task_failure, task_postrun, task_prerun, task_retry, task_success

from celeryconfig import QUEUES
from pipeline.outcome import Done, content
from pipeline.records import Job, Ticket
from pipeline.settings import Settings
from pipeline.states import JOB, Event, JobState
from pipeline.steps.context import StepContext
from tasks.app import make_context
from tasks.broker import task_id
from tasks.run import STEPS
from tasks.worker_context import WorkerContext
from tests.servers.http_source import HttpSource
from tests.support import planting
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.queue import queue
from zkstate.record import jobs

TASKS = [JOB.task(state).name for state in JOB.working()]


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    """As in a process of a worker's pool: Celery gives each task a tracer."""
    opened = make_context(settings)
    for name in QUEUES:
        opened.serve(name)
    for name, task in opened.app.tasks.items():
        task.__trace__ = build_tracer(name, task, opened.app.loader, "worker@test", app=opened.app)
    yield opened
    opened.drop_session()
    opened.clients().inventory.database.close()


@contextmanager
def heard(context: WorkerContext) -> Iterator[list[tuple[str, str, str]]]:
    """What a site's handlers of Celery's signals hear: signal, task, and what was said of its end."""
    heard: list[tuple[str, str, str]] = []

    def note(signal: str, said: str = "") -> Any:
        def handler(sender: Any, **facts: Any) -> None:
            heard.append((signal, sender.name, str(facts.get(said, ""))))

        return handler

    signals = [
        (task_prerun, note("prerun", "task_id")),
        (task_success, note("success")),
        (task_failure, note("failure", "exception")),
        (task_retry, note("retry", "reason")),
        (task_postrun, note("postrun", "state")),
    ]
    with ExitStack() as connected:
        for signal, handler in signals:
            signal.connect(handler, weak=False)
            connected.callback(signal.disconnect, handler)
        yield heard


def fed(session: Session, url: str) -> Ticket:
    planting.one_job(session, payload_url=url)
    (ticket,) = queue.feed(session, 10).tickets
    return Ticket(id=ticket.id, state=ticket.state, epoch=ticket.epoch)


def receive(context: WorkerContext, ticket: Ticket) -> Any:
    """What Celery does with a message in a process of the pool."""
    uuid, name = task_id(ticket), JOB.task(JobState(ticket.state)).name
    request: dict[str, Any] = {
        "id": uuid,
        "task": name,
        "root_id": uuid,
        "parent_id": None,
        "hostname": "worker@test",
        "delivery_info": {},
        "is_eager": False,
        "chain": [],
    }
    return context.app.tasks[name].__trace__(uuid, [ticket.model_dump()], {}, request)


def test_each_carried_state_begins_and_ends_its_own_task_before_the_next_begins(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = fed(session, source.put("/a.txt", b"content"))

    with heard(context) as signals:
        receive(context, ticket)

    history = jobs.load(session, ticket.id).history
    assert history[-1].state is JobState.COMPLETED
    ids = [
        task_id(Ticket(id=ticket.id, state=entry.state, epoch=ticket.epoch + number))
        for number, entry in enumerate(history[:-1])
    ]
    assert signals == [
        said
        for name, uuid in zip(TASKS, ids, strict=True)
        for said in (("prerun", name, uuid), ("success", name, ""), ("postrun", name, "SUCCESS"))
    ]


def test_a_step_that_fails_is_a_failed_task_with_its_reason(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = fed(session, source.url("/missing.txt"))

    with heard(context) as signals:
        receive(context, ticket)

    failed = jobs.load(session, ticket.id)
    assert failed.status.status is JobState.FAILED
    name = JOB.task(JobState(failed.history[-2].state)).name
    assert signals[-2:] == [("failure", name, failed.status.message), ("postrun", name, "FAILURE")]


@pytest.mark.parametrize("state", [state for state in JOB.working() if Event.FAIL in JOB.events(state)])
def test_a_failure_in_any_state_is_the_failure_of_that_states_task(
    session: Session,
    context: WorkerContext,
    source: HttpSource,
    monkeypatch: pytest.MonkeyPatch,
    state: JobState,
) -> None:
    def fail(job: Job, context: StepContext) -> Done:
        raise content("the depositor has to act")

    monkeypatch.setitem(STEPS, state, fail)
    ticket = fed(session, source.put("/a.txt", b"content"))

    with heard(context) as signals:
        receive(context, ticket)

    history = jobs.load(session, ticket.id).history
    assert [entry.state for entry in history] == [*JOB.working()[: len(history) - 1], JobState.FAILED]
    ends = [(name, said) for signal, name, said in signals if signal == "postrun"]
    done = TASKS[: len(history) - 2]
    assert ends == [*((name, "SUCCESS") for name in done), (JOB.task(state).name, "FAILURE")]


def test_a_job_that_is_held_is_a_task_whose_result_says_so(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = fed(session, source.put("/a.txt", b"content"))
    holds.place(session, Hold(by="ann"), "demo")

    with heard(context) as signals:
        outcome = receive(context, ticket)

    assert outcome.retstr == "'held'"
    assert [name for _, name, _ in signals] == ["job.pending"] * 3


def test_a_job_that_is_handed_back_is_a_task_to_be_retried_with_the_cause(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = fed(session, source.put("/a.txt", b"content", status=500))

    with heard(context) as signals:
        receive(context, ticket)

    waits = jobs.load(session, ticket.id)
    assert waits.status.waits_for is not None
    name = JOB.task(waits.status.status).name
    assert signals[-2:] == [("retry", name, waits.status.message), ("postrun", name, "RETRY")]


def test_a_void_message_is_a_task_that_did_nothing(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = fed(session, source.put("/a.txt", b"content"))
    void = ticket.model_copy(update={"epoch": ticket.epoch - 1})

    with heard(context) as signals:
        outcome = receive(context, void)

    assert (outcome.info, outcome.retstr) == (None, "None")
    assert [signal for signal, *_ in signals] == ["prerun", "success", "postrun"]
    assert session.exists(paths.job_lock(ticket.id)) is None


def test_a_task_that_ends_before_its_work_began_leaves_its_job_to_the_sweep(
    session: Session, context: WorkerContext, source: HttpSource
) -> None:
    ticket = fed(session, source.put("/a.txt", b"content"))
    context.app.tasks["job.estimating"].__trace__ = lambda *_: trace_ok_t(None, None, 0.0, "None")

    receive(context, ticket)

    assert jobs.load(session, ticket.id).status.status is JobState.ESTIMATING
    assert session.exists(paths.job_lock(ticket.id)) is None
