"""A transaction whose answer is lost has happened exactly once; a lost session is noticed and fenced."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from kazoo.client import KazooClient

from pipeline.attempt import UNATTENDED, CheckedAttempt
from pipeline.outcome import AttemptOver
from pipeline.records import Batch, Identifiers
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tests.servers.proxy import Proxy
from tests.servers.zookeeper import Server
from tests.support import planting
from zkstate import paths
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session, connect
from zkstate.connection.transaction import settle
from zkstate.errors import Contended, Stale
from zkstate.fleet import holds
from zkstate.queue import listings
from zkstate.queue.job_record import ZooKeeperJobRecord
from zkstate.record import batches, creation, deletion, jobs, journal, record
from zkstate.record.jobs import JobMove

T = TypeVar("T")


def without_answer(
    proxy: Proxy, said: bytes, act: Callable[[], T], meanwhile: Callable[[], object] = lambda: None
) -> T:
    """Run `act`; the answer to the request that says `said` is lost, and the connection with it."""
    proxy.swallow_after(said)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(act)
        assert proxy.swallowed.wait(30)
        meanwhile()
        proxy.cut()
        return running.result(timeout=30)


def test_an_acquire_whose_answer_was_lost_happened_once(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    job = planting.one_job(session)

    held = without_answer(zookeeper_proxy, b"/lock", lambda: planting.acquire(shaky, job))

    kept = jobs.load(session, job.jid)
    assert held == kept
    assert kept.status.attempt == 1
    record.hand_back(shaky, kept, "test")


def test_a_move_whose_answer_was_lost_happened_once(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    held = planting.acquire(shaky, planting.job_in(session, JobState.DOWNLOADING))

    moved = without_answer(
        zookeeper_proxy,
        b"/jobs/states/processing/",
        lambda: jobs.move(shaky, held, JobMove(Event.SUCCEED, "test")),
    )

    kept = jobs.load(session, held.jid)
    assert moved == kept
    assert kept.status.status is JobState.PROCESSING
    assert [entry.state for entry in kept.history].count(JobState.PROCESSING) == 1


@pytest.mark.parametrize("chunk", range(5))
def test_jobs_whose_creation_was_not_confirmed_are_created_once(
    session: Session, shaky: Session, zookeeper_proxy: Proxy, chunk: int
) -> None:
    batch = planting.acquired_batch(shaky)
    plan = planting.plan(5 * creation.CHUNK)

    made = without_answer(
        zookeeper_proxy,
        paths.configuration(f"jid{chunk * creation.CHUNK + 1:010d}").encode(),
        lambda: planting.create_jobs(shaky, batch, plan, planting.WORKING, "test", UNATTENDED),
    )

    assert made == batches.load(session, batch.bid)
    assert batches.all_jobs(session, batch.bid) == [f"jid{n:010d}" for n in range(1, len(plan.jobs) + 1)]
    batches.finish_split(shaky, made)


def test_a_submission_whose_answer_was_lost_is_stored_once(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    submission = planting.submission()

    bid = without_answer(zookeeper_proxy, b"/submission", lambda: batches.submit(shaky, submission))

    assert session.children(paths.BATCHES) == [bid]


def test_a_write_whose_answer_was_lost_happened_once_although_the_next_server_is_behind(
    session: Session, shaky: Session, zookeeper_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has not applied the write yet says so, unless it was told to wait for the leader."""
    failed = planting.job_in(session, JobState.FAILED)
    with monkeypatch.context() as patch:
        patch.setattr(shaky, "find", lambda _: None)
        bid = without_answer(
            zookeeper_proxy, b"/submission", lambda: batches.submit(shaky, planting.submission())
        )
        assert session.children(paths.BATCHES) == [failed.bid, bid]

        patch.setattr(shaky, "exists", lambda _: session.exists(paths.JOBS))
        without_answer(
            zookeeper_proxy, b"/batch-deleted/", lambda: deletion.delete_job(shaky, failed, "operator")
        )
        assert listings.all_jobs(session) == []


def test_a_number_whose_answer_was_lost_is_assigned_again_and_leaves_a_gap(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    first = batches.next_number(session)

    second = without_answer(zookeeper_proxy, b"/ids/batch", lambda: batches.next_number(shaky))

    assert second == first + 2


def test_a_node_whose_creation_was_not_confirmed_exists(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    without_answer(zookeeper_proxy, b"/ids/new", lambda: shaky.ensure_node("/ids/new", b"7"))

    assert session.get("/ids/new")[0] == b"7"


def test_a_hold_whose_removal_was_not_confirmed_is_removed(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    holds.place(session, holds.Hold(by="me"))

    without_answer(zookeeper_proxy, b"unpause", lambda: holds.end(shaky, journal.Stamp()))

    assert holds.paused(session) is None


def test_an_ark_whose_minting_was_not_confirmed_is_the_only_one(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    held = planting.acquire(shaky, planting.one_job(session))
    job_record = ZooKeeperJobRecord(shaky, UNATTENDED)

    ark = without_answer(
        zookeeper_proxy,
        b"ark:/99999/",
        lambda: job_record.mint(held, "99999_fk4", lambda last: (last + 1, f"ark:/99999/fk4{last + 1}")),
    )

    assert ark == "ark:/99999/fk41"
    assert job_record.identifiers(held).primary_id == ark
    assert job_record.mint(held, "99999_fk4", lambda last: (last + 1, f"ark:/99999/fk4{last + 1}")) == ark
    record.hand_back(shaky, held, "test")


def test_an_interrupted_split_continues_where_it_stopped(session: Session) -> None:
    batch = planting.acquired_batch(session)
    plan = planting.plan(1000)
    steps = iter([None, None])

    def check() -> None:
        if next(steps, "over") == "over":
            raise AttemptOver("killed")

    with pytest.raises(AttemptOver):
        planting.create_jobs(session, batch, plan, planting.WORKING, "test", CheckedAttempt(check))
    halfway = batches.load(session, batch.bid)
    assert halfway.status.created == (1 + creation.WINDOW) * creation.CHUNK

    whole = planting.create_jobs(session, halfway, plan, planting.WORKING, "test", UNATTENDED)

    assert len(batches.all_jobs(session, batch.bid)) == 1000
    batches.finish_split(session, whole)


def test_two_splits_at_once_create_each_job_once(session: Session) -> None:
    batch = planting.acquired_batch(session)
    plan = planting.plan(200)

    def split() -> bool:
        try:
            planting.create_jobs(session, batch, plan, planting.WORKING, "test", UNATTENDED)
        except Stale:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        won = sum(pool.map(lambda _: split(), range(4)))

    assert won == 1
    assert len(batches.all_jobs(session, batch.bid)) == 200
    batches.finish_split(session, batches.load(session, batch.bid))


def test_two_batches_that_are_split_at_once_have_each_job_once(session: Session) -> None:
    split = [planting.acquired_batch(session) for _ in range(3)]
    count = 10 * creation.CHUNK

    def create(batch: Batch) -> Batch:
        return planting.create_jobs(
            session, batch, planting.plan(count), planting.WORKING, "test", UNATTENDED
        )

    with ThreadPoolExecutor(len(split)) as pool:
        made = list(pool.map(create, split))

    assert made == [batches.load(session, batch.bid) for batch in split]
    members = [batches.all_jobs(session, batch.bid) for batch in split]
    assert [len(jids) for jids in members] == [count] * len(split)
    assert len({jid for jids in members for jid in jids}) == count * len(split)
    assert listings.recorded(session) == count * len(split)
    for batch in made:
        batches.finish_split(session, batch)


def test_a_chunk_in_flight_is_refused_after_one_that_was_refused_although_all_versions_fit(
    session: Session,
) -> None:
    batch = planting.acquired_batch(session)
    other = planting.acquired_batch(session)
    plan = planting.plan(3 * creation.CHUNK)
    batch = next(creation.create_jobs(session, batch, plan, planting.WORKING, "test", UNATTENDED))
    # two other writers leave the versions that the first chunk would leave
    owner = record.write(session, batch, batch.status.model_copy(update={"op": "other"}), ())
    ahead = creation.sent(session, batch, plan, planting.WORKING, "test")
    _, first = next(ahead)
    one = planting.plan(1)
    other = planting.create_jobs(session, other, one, planting.WORKING, "test", UNATTENDED)
    before = planting.tree(session)
    _, second = next(ahead)

    with pytest.raises(Stale):
        settle(session, first)
    with pytest.raises(Contended):
        settle(session, second)
    assert planting.tree(session) == before
    batches.finish_split(session, owner)
    batches.finish_split(session, other)


def expire(session: Session, hosts: str) -> None:
    """End the session on the server, as an expiry does; the client opens a new one by itself."""
    lost = threading.Event()
    session.zk.add_listener(lambda state: lost.set() if state == "LOST" else None)
    end(session, hosts)
    assert lost.wait(30)


def end(session: Session, hosts: str) -> None:
    thief = KazooClient(hosts, client_id=session.zk.client_id)
    thief.start()
    thief.stop()
    thief.close()


def test_a_zombie_whose_session_expired_is_stopped_and_fenced(
    settings: Settings, session: Session, zookeeper: Server
) -> None:
    with connect(settings) as doomed:
        guard = AttemptGuard(doomed)
        held = planting.acquire(doomed, planting.job_in(session, JobState.DOWNLOADING))
        guard.check()

        expire(doomed, zookeeper.hosts)

        with pytest.raises(AttemptOver, match="session was lost"):
            guard.check()
        with pytest.raises(Stale):
            jobs.move(doomed, held, JobMove(Event.SUCCEED, "zombie"))
        successor = jobs.acquire(session, record.ticket(held), "successor")
        with pytest.raises(Stale):
            jobs.move(doomed, held, JobMove(Event.SUCCEED, "zombie"))
        with pytest.raises(AttemptOver):
            ZooKeeperJobRecord(doomed, UNATTENDED).write_identifiers(held, Identifiers(primary_id="x"))
        jobs.move(session, successor, JobMove(Event.SUCCEED, "successor"))

    assert jobs.load(session, held.jid).status.status is JobState.PROCESSING


def test_a_session_that_ends_while_the_leader_is_asked_stores_nothing(
    session: Session, shaky: Session, zookeeper_proxy: Proxy, zookeeper: Server
) -> None:
    guard = AttemptGuard(shaky)
    held = planting.acquire(shaky, planting.job_in(session, JobState.PROCESSING))

    def fence() -> None:
        ZooKeeperJobRecord(shaky, guard).fence(held)

    with pytest.raises(AttemptOver, match="session was lost"):
        without_answer(zookeeper_proxy, b"/status", fence, lambda: end(shaky, zookeeper.hosts))


def test_a_guard_keeps_failing_after_the_connection_comes_back(
    shaky: Session, settings: Settings, zookeeper_proxy: Proxy
) -> None:
    guard = AttemptGuard(shaky)
    zookeeper_proxy.refuse()
    away = threading.Event()

    while not away.wait(0.1):
        try:
            guard.check()
        except AttemptOver:
            away.set()
    zookeeper_proxy.accept()
    shaky.get(paths.BATCHES)

    with pytest.raises(AttemptOver):
        guard.check()
