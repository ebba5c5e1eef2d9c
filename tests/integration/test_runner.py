"""The runner of tickets: what each kind of exception does to the record, its lock and the session."""

from collections.abc import Iterator

import pytest
from structlog.typing import EventDict

from pipeline import codes
from pipeline.outcome import (
    OBJECT_WAIT,
    AttemptOver,
    RateLimited,
    Service,
    ServiceDown,
    StepFailed,
    Stopping,
    WaitKind,
    content,
    of_object,
    transient,
)
from pipeline.records import Batch, Job, Ticket, trace_id
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind
from pipeline.working_storage.capacity import SPACE_WAIT, no_room
from tasks.app import make_context
from tasks.logs import log
from tasks.retry import BACKOFF_LIMIT, MEANINGS, Meaning, meaning_of
from tasks.run import Attempt, StateWork
from tasks.worker_context import WorkerContext
from tests.support import planting
from tests.support.attempts import work_on
from tests.support.fleet import wait_for
from tests.support.log_entries import log_entries
from zkstate import paths
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session
from zkstate.errors import Busy, Corrupt, Missing, Stale, TooBig, Unreachable, Unwritable
from zkstate.fleet.outages import FIRST_PROBE
from zkstate.record import batches, jobs, record
from zkstate.record.batches import BatchMove
from zkstate.record.record import Lock

HANDED_BACK: dict[Exception, tuple[int, float, WaitKind | None]] = {
    Stopping("the worker is stopping"): (0, 0, None),
    RateLimited("all connections are in use", 7): (0, 7, WaitKind.HOST),
    of_object("ark:/1/x", "another job works on it"): (0, OBJECT_WAIT, WaitKind.OBJECT),
    no_room("no space left"): (0, SPACE_WAIT, WaitKind.SPACE),
    ServiceDown(Service.INVENTORY, "the inventory does not answer"): (0, FIRST_PROBE, WaitKind.SERVICE),
    transient("503", retry_after=9): (1, 9, WaitKind.RETRY),
    Corrupt("znode /x is unreadable"): (0, BACKOFF_LIMIT, WaitKind.REPAIR),
}
"""Exception -> tries and delay afterwards, and what the record waits for."""

LEAVING = (
    Stale("changed"),
    Busy("busy"),
    Missing("gone"),
    AttemptOver("lost"),
    Unreachable("no answer"),
    ValueError("a mistake"),
)
"""Exceptions after which the lock may belong to another attempt."""


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    quick = settings.model_copy(update={"backoff": 1, "max_tries": 3})
    opened = make_context(quick)
    yield opened
    opened.drop_session()


@pytest.fixture
def worker_log() -> Iterator[list[EventDict]]:
    with log_entries() as entries:
        yield entries


@pytest.fixture
def ticket(session: Session) -> Ticket:
    return record.ticket(planting.batch_in(session, BatchState.REPORTING))


def raising(error: BaseException) -> StateWork[Batch]:
    def do(_: Attempt[Batch]) -> Batch | None:
        raise error

    return StateWork(batches.load, do, _fail)


def _fail(attempt: Attempt[Batch], failure: StepFailed) -> Batch:
    request = BatchMove(Event.FAIL, "worker", message=failure.message, kind=failure.kind)
    return batches.move(attempt.session, attempt.record, request)


def locked_by(session: Session, bid: str) -> bool:
    return session.exists(paths.batch_lock(bid)) is not None


@pytest.mark.parametrize("error", HANDED_BACK, ids=lambda error: type(error).__name__)
def test_a_record_is_handed_back_with_what_the_exception_asks_for(
    session: Session, context: WorkerContext, ticket: Ticket, error: Exception
) -> None:
    used = context.session()

    assert work_on(context, ticket, raising(error)) is None

    status = batches.load(session, ticket.id).status
    waits_for = status.waits_for.kind if status.waits_for else None
    assert (status.tries, status.delay, waits_for) == HANDED_BACK[error]
    assert (status.status, status.epoch, status.message) == (ticket.state, ticket.epoch + 1, str(error))
    assert not locked_by(session, ticket.id)
    assert context.session() is used


@pytest.mark.parametrize("error", LEAVING, ids=lambda error: type(error).__name__)
def test_an_attempt_that_may_have_lost_its_lock_leaves_the_record_and_drops_its_session(
    session: Session, context: WorkerContext, ticket: Ticket, error: Exception
) -> None:
    used = context.session()

    assert work_on(context, ticket, raising(error)) is None

    lock = paths.batch_lock(ticket.id)
    wait_for(session, lock, lambda: session.exists(lock) is None, 10, lambda: "the lock is still there")
    assert batches.load(session, ticket.id).status.epoch == ticket.epoch
    assert context.session() is not used


def test_a_fault_that_is_not_transient_fails_the_record(
    session: Session, context: WorkerContext, ticket: Ticket
) -> None:
    work_on(context, ticket, raising(content("damaged")))

    failed = batches.load(session, ticket.id)
    assert (failed.status.status, failed.status.message) == (BatchState.FAILED, "damaged")
    assert failed.history[-1].kind is FailureKind.CONTENT


def test_what_the_record_cannot_keep_fails_at_once(
    session: Session, context: WorkerContext, ticket: Ticket
) -> None:
    work_on(context, ticket, raising(TooBig("a transaction of 2,000,000 bytes")))

    failed = batches.load(session, ticket.id)
    assert (failed.status.status, failed.status.tries) == (BatchState.FAILED, 0)
    assert failed.history[-1].kind is FailureKind.CONTENT


def test_what_the_servers_refuse_for_its_size_fails_at_once_and_is_no_fault_of_the_content(
    session: Session, context: WorkerContext, ticket: Ticket
) -> None:
    work_on(
        context,
        ticket,
        raising(Unwritable("start every server with -Djute.maxbuffer=1048575", code=codes.SERVER_LIMIT)),
    )

    failed = batches.load(session, ticket.id)
    assert (failed.status.status, failed.status.tries) == (BatchState.FAILED, 0)
    assert "jute.maxbuffer" in failed.status.message
    assert failed.history[-1].kind is FailureKind.SYSTEM


def test_a_transient_fault_that_lasts_fails_the_record(
    session: Session, context: WorkerContext, ticket: Ticket
) -> None:
    for _ in range(3):
        work_on(context, record.ticket(batches.load(session, ticket.id)), raising(transient("503")))

    ended = batches.load(session, ticket.id)
    assert ended.status.status is BatchState.FAILED
    assert [entry.event for entry in ended.history[-3:]] == [None, None, Event.FAIL]


def test_a_worker_that_is_told_to_exit_hands_its_record_back_first(
    session: Session, context: WorkerContext, ticket: Ticket
) -> None:
    with pytest.raises(SystemExit):
        work_on(context, ticket, raising(SystemExit(0)))

    assert batches.load(session, ticket.id).status.epoch == ticket.epoch + 1
    assert not locked_by(session, ticket.id)


def test_a_void_ticket_keeps_the_session(session: Session, context: WorkerContext, ticket: Ticket) -> None:
    used = context.session()

    assert work_on(context, planting.void(ticket), raising(ValueError("is never run"))) is None

    assert context.session() is used
    assert batches.load(session, ticket.id).status.epoch == ticket.epoch


def test_the_most_specific_class_decides() -> None:
    assert meaning_of(Stopping("")) is Meaning.STOPPING
    assert meaning_of(AttemptOver("")) is Meaning.SUPERSEDED
    assert meaning_of(KeyError("")) is Meaning.UNEXPECTED
    assert set(MEANINGS.values()) | {Meaning.UNEXPECTED} == set(Meaning)


def test_an_attempt_never_uses_the_version_of_the_next_owner(
    session: Session, context: WorkerContext, ticket: Ticket
) -> None:
    """A batch is split for minutes: whoever takes it over meanwhile keeps it."""
    own = context.session()
    taken = batches.acquire(own, ticket, "zombie")
    zombie = Attempt(context, own, AttemptGuard(own), taken, raising(Stale()))
    session.zk.delete(paths.batch_lock(ticket.id))
    fresh = record.redispatch(session, batches.load(session, ticket.id), lost=True)
    owner = batches.acquire(session, fresh, "owner")

    with pytest.raises(Stale):
        zombie.hand_back("the zombie wakes up")

    assert batches.load(session, ticket.id).version == owner.version
    assert locked_by(session, ticket.id)
    record.hand_back(session, owner, "owner")


def test_a_batch_that_is_split_hands_back_the_version_after_its_last_jobs(
    session: Session, context: WorkerContext
) -> None:
    bid = batches.submit(session, planting.submission())
    first = record.ticket(batches.load(session, bid))

    def do(attempt: Attempt[Batch]) -> Batch | None:
        start = BatchMove(Event.ACQUIRE, "worker", lock=Lock.KEEP)
        attempt.record = batches.move(attempt.session, attempt.record, start)
        raise Stopping("the worker is stopping")

    work_on(context, first, StateWork(batches.load, do, _fail))

    batch = batches.load(session, bid)
    assert (batch.status.status, batch.status.message) == (BatchState.PROCESSING, "the worker is stopping")
    assert not locked_by(session, bid)


@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:4318/v1/traces"])
def test_the_log_lines_of_a_job_have_the_id_of_its_trace_where_traces_are_sent(
    session: Session,
    settings: Settings,
    worker_log: list[EventDict],
    endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ARKLINE_OTLP_ENDPOINT", endpoint)
    context = make_context(settings)
    job = planting.one_job(session)

    def do(attempt: Attempt[Job]) -> Job | None:
        log().info("a step")
        attempt.hand_back("the worker is stopping")
        return None

    work_on(context, record.ticket(job), StateWork(jobs.load, do, lambda attempt, _: attempt.record))

    context.drop_session()
    [line] = [line for line in worker_log if line["event"] == "a step"]
    assert (line["jid"], line["state"]) == (job.jid, "pending")
    assert line.get("trace_id") == (f"{trace_id(job):032x}" if endpoint else None)
