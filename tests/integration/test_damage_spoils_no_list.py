"""One unreadable znode, whichever it is, spoils no list, no count and no scheduled work."""

import logging
from collections.abc import Callable, Iterator, Mapping

import pytest

from operations.board.board import Board
from operations.board.values import EVERYTHING, BatchSearch, JobSearch
from operations.checks.check import Scope, check
from operations.fleet.health import overview
from operations.fleet.hosts import known_hosts, waiting_hosts
from operations.fleet.measures import measure
from operations.fleet.working_storage import space_view
from operations.jobs.job_view import timeline
from operations.site import Site
from operations.verbs.callbacks import owed_page
from operations.verbs.holds import history
from operations.why.why import why
from pipeline.outcome import Service, ServiceDown, WaitKind, WaitsFor
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tasks.app import make_context
from tasks.scheduled.beat import WORK
from tests.integration.test_sweep import later
from tests.support import planting
from tests.support.boards import job_page
from tests.support.operators import ANN, downloading_job
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.errors import Corrupt
from zkstate.fleet import holds, hosts, notes, outages
from zkstate.fleet.holds import Hold
from zkstate.queue import fairness, queue
from zkstate.record import batches, journal, record
from zkstate.record.journal import JournalAction, Stamp

DAMAGE = b"\xff{"

OF_JOB = (
    paths.job_bid,
    paths.configuration,
    paths.identifiers,
    paths.job_status,
    paths.priority,
    paths.space_needed,
    paths.history,
)
OF_BATCH = (paths.submission, paths.profile_snapshot, paths.batch_status, paths.batch_history)
OF_FLEET = (
    paths.FIXITY,
    paths.CHECKS,
    paths.RECHECKS,
    paths.AUDIT,
    paths.BOARD,
    paths.SWEEP,
    paths.SPACE,
    paths.host("x.example.org"),
    paths.actions(None),
    paths.drain("worker1@here"),
)
HOST = "x.example.org"

Damage = Callable[[str], None]
Readers = Mapping[str, Callable[[], object]]


@pytest.fixture
def damage(session: Session) -> Iterator[Damage]:
    """Damages nodes, which are as before at the end, for the audit."""
    before: dict[str, bytes | None] = {}

    def overwrite(path: str) -> None:
        node = session.find(path)
        before[path] = node[0] if node else None
        session.ensure_node(path)
        session.zk.set(path, DAMAGE)

    yield overwrite
    for path, data in before.items():
        if data is not None:
            session.ensure_node(path)
            session.zk.set(path, data)
        elif session.exists(path):
            session.zk.delete(path)


@pytest.fixture
def whole(session: Session, settings: Settings) -> Job:
    """A job that is whole beside damaged ones."""
    return downloading_job(session, settings)


@pytest.fixture
def readers(session: Session, settings: Settings, whole: Job) -> Iterator[Readers]:
    context = make_context(settings)
    own = context.session()
    board = Board.open(session)
    clock = later(session)

    def shown_by_board() -> object:
        assert board.wait_filled(30)
        rows = board.jobs(EVERYTHING, JobSearch(), 100).rows
        assert whole.jid in {row.jid for row in rows}
        return (
            *board.counts(EVERYTHING).values(),
            board.batches(EVERYTHING, BatchSearch(), 100).rows,
            board.failures(EVERYTHING),
            board.collections(EVERYTHING),
            board.stops(EVERYTHING),
        )

    def listed() -> object:
        for state in (None, JobState.DOWNLOADING):
            page = job_page(session, state=state)
            assert whole.jid in {row.jid for row in page.rows}
        return job_page(session, state=JobState.FAILED)

    def measured() -> object:
        measures = measure(Site(settings, session))
        assert measures.record is not None
        return measures

    def scheduled() -> object:
        return [work(context, own, clock) for work in WORK.values()]

    yield {
        "status": lambda: overview(Site(settings, session), ANN),
        "jobs": listed,
        "board": shown_by_board,
        "metrics": measured,
        "audit": lambda: check(Site(settings, session), ANN, Scope.JOBS),
        "hosts": lambda: (known_hosts(Site(settings, session), ANN), waiting_hosts(session)),
        "callbacks": lambda: owed_page(Site(settings, session), ANN, 10),
        "space": lambda: space_view(Site(settings, session), ANN),
        "history of a collection": lambda: history(Site(settings, session), ANN, "demo"),
        "why": lambda: (
            why(Site(settings, session), ANN, whole.jid),
            why(Site(settings, session), ANN, whole.bid),
        ),
        "timeline": lambda: timeline(Site(settings, session), ANN, whole.jid),
        "turns": lambda: fairness.next_turn(session, frozenset({(whole.jid, 1)}), clock, 75),
        "scheduled work": scheduled,
    }
    board.close()
    context.drop_session()


def faults(readers: Readers) -> dict[str, str]:
    """Reader -> what it raised."""
    raised = {}
    for name, read in readers.items():
        try:
            read()
        except Exception as error:  # noqa: BLE001 - the caller raises the exception
            raised[name] = f"{type(error).__name__}: {error}"
    return raised


def test_damaged_jobs_and_batches_spoil_no_list(
    session: Session, settings: Settings, readers: Readers, damage: Damage
) -> None:
    """A node of each kind, each of another job or batch."""
    for state in (JobState.DOWNLOADING, JobState.FAILED):
        for node in OF_JOB:
            damage(node(planting.job_in(session, state).jid))
    for node in OF_BATCH:
        damage(node(planting.one_job(session).bid))
    damage(paths.reservation(downloading_job(session, settings).jid))

    assert faults(readers) == {}


def test_a_damaged_job_that_waits_spoils_no_scheduled_work(
    session: Session, readers: Readers, damage: Damage
) -> None:
    waiting = planting.job_in(session, JobState.PROCESSING)
    locked = record.acquire(session, waiting, record.ticket(waiting), "test")
    record.hand_back(session, locked, "test", delay=600, waits_for=WaitsFor(kind=WaitKind.RETRY))
    session.ensure_node(paths.waiting("jid9999999999"))
    damage(paths.job_status(waiting.jid))

    assert faults(readers) == {}

    assert session.children(paths.WAITING) == [waiting.jid]


def test_damaged_nodes_of_the_fleet_spoil_no_list(readers: Readers, damage: Damage) -> None:
    for path in OF_FLEET:
        damage(path)

    assert faults(readers) == {}


@pytest.mark.parametrize("data", [DAMAGE, b"", b"a/b"])
@pytest.mark.parametrize("state", [JobState.DOWNLOADING, JobState.PENDING])
def test_a_job_that_names_no_batch_keeps_no_job_of_two_collections_from_starting(
    session: Session, damage: Damage, state: JobState, data: bytes
) -> None:
    broken = planting.job_in(session, state)
    _, (whole,) = planting.split_batch_of(session, {"profile_name": "other"})
    damage(paths.job_bid(broken.jid))
    session.zk.set(paths.job_bid(broken.jid), data)

    assert whole in {ticket.id for ticket in queue.feed(session, 10).tickets}


def test_a_damaged_key_of_a_submission_keeps_no_batch_from_being_removed(
    session: Session, settings: Settings, damage: Damage
) -> None:
    for key in ("once", "again"):
        bid = batches.submit(session, planting.submission(idempotency_key=key))
        held = planting.apply_batch_event(session, batches.load(session, bid), Event.HOLD)
        planting.apply_batch_event(session, held, Event.DELETE)
    damage(paths.submission_key("once"))
    context = make_context(settings)

    WORK["clean_up_batches"](context, session, later(session))

    assert session.children(paths.BATCHES) == []
    context.drop_session()


def test_a_damaged_key_of_a_submission_is_named_to_who_uses_it(session: Session, damage: Damage) -> None:
    keyed = planting.submission(idempotency_key="once")
    batches.submit(session, keyed)
    damage(paths.submission_key("once"))

    with pytest.raises(Corrupt, match="submit under a new idempotency key"):
        batches.submit(session, keyed)
    with pytest.raises(Corrupt, match="submit under a new idempotency key"):
        batches.under_key(session, "once", "")
    assert session.children(paths.BATCHES) == ["bid0000000001"]


def test_an_unreadable_hold_holds_until_somebody_ends_it(session: Session, damage: Damage) -> None:
    for collection in (None, "demo"):
        assert holds.place(session, Hold(by="ann"), collection)
        damage(paths.hold(collection))

    pause = holds.paused(session)
    assert pause is not None
    assert paths.hold(None) in pause.reason
    assert set(holds.held_collections(session)) == {"demo"}
    assert holds.place(session, Hold(by="ann"), worker="worker1@here")
    damage(paths.drain("worker1@here"))
    assert set(holds.drained(session)) == {"worker1@here"}
    assert holds.is_drained(session, "worker1@here")
    assert holds.end(session, Stamp(by="ann"), worker="worker1@here")
    assert holds.end(session, Stamp(by="ann"))
    assert holds.end(session, Stamp(by="ann"), "demo")
    assert holds.paused(session) is None


def test_an_unreadable_outage_is_over_and_another_may_begin(session: Session, damage: Damage) -> None:
    fault = ServiceDown(Service.STORAGE, "the disk is gone")
    outages.report(session, fault, "here")
    session.remembered.clear()
    (name,) = outages.known(session)
    damage(paths.outage(name))
    session.remembered.clear()

    assert outages.known(session) == {}
    assert outages.report(session, fault, "here")
    session.remembered.clear()
    assert outages.known(session)[name].outage.message == "the disk is gone"


class _Writer(logging.Handler):
    """Another process, which writes the node once this one has found it unreadable, before it is removed."""

    def __init__(self, write: Callable[[], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, _: logging.LogRecord) -> None:
        self._write()


def test_an_outage_that_is_readable_again_before_its_removal_is_kept(
    session: Session, damage: Damage
) -> None:
    outages.report(session, ServiceDown(Service.STORAGE, "the disk is gone"), "here")
    session.remembered.clear()
    (name,) = outages.known(session)
    path = paths.outage(name)
    sound, _ = session.zk.get(path)
    damage(path)
    session.remembered.clear()
    logger, writer = logging.getLogger("arkline.record"), _Writer(lambda: session.zk.set(path, sound))
    logger.addHandler(writer)
    try:
        known = outages.known(session)
    finally:
        logger.removeHandler(writer)

    assert session.zk.get(path)[0] == sound
    assert known[name].outage.message == "the disk is gone"


def test_an_unreadable_journal_keeps_no_operator_from_acting(session: Session, damage: Damage) -> None:
    damage(paths.actions(None))

    assert holds.place(session, Hold(by="ann", reason="a test"))

    (entry,) = journal.read(session, paths.actions(None))
    assert (entry.action, entry.by) == (JournalAction.PAUSE, "ann")
    assert holds.end(session, Stamp(by="ann"))


def test_an_unreadable_pause_of_a_host_is_over_and_replaced(session: Session, damage: Damage) -> None:
    hosts.begin_pause(session, HOST, 60)
    damage(paths.host(HOST))

    assert hosts.read_pause(session, HOST, later(session, 0)).left == 0
    hosts.begin_pause(session, HOST, 60)
    assert hosts.read_pause(session, HOST, later(session, 0)).left > 30
    session.zk.delete(paths.host(HOST))


def test_an_unreadable_state_of_the_fixity_schedule_is_a_problem_until_the_next_run(
    session: Session, damage: Damage
) -> None:
    damage(paths.FIXITY)

    assert paths.FIXITY in notes.fixity(session).problem
    notes.note_fixity(session, notes.FixityStatus(objects=3))
    assert notes.fixity(session).objects == 3
