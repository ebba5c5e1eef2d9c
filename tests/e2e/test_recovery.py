"""Whatever process is killed, every job ends once, and the audit has no findings."""

import hashlib
import shutil
import threading

import pytest
import redis

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, Event, JobState
from tasks.broker import dispatch_job, publisher
from tasks.worker import EXIT_STALLED
from tests.e2e.collection import body_of, put_collection, submit
from tests.e2e.test_pipeline import rows
from tests.servers.http_source import HttpSource
from tests.servers.redis import Server as RedisServer
from tests.support import nightly, planting
from tests.support.fleet import Fleet, batch_ended, job_reaches, quiet
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.record import batches, jobs, record
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

pytestmark = pytest.mark.timeout(240)


def test_a_worker_killed_in_any_state_costs_nothing(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    """One job is led to each working state by real work, and its worker is killed there."""
    stuck = []
    for state in JOB.working():
        url = source.put(f"/{state}.txt", body_of(state))
        bid, (jid,) = planting.split_batch(session, 1, payload_url=url, payload_name=f"{state}.txt")
        process = fleet.start(f"stuck-{state}", "-m", "tests.support.stuck_worker", jid, state, wait=False)
        stuck.append((bid, jid, state, process))
    for _, jid, state, process in stuck:
        fleet.wait_ready(process)
        # the work of the first state is done before the lock is taken
        assert (session.exists(paths.job_lock(jid)) is None) == (state is JobState.PENDING)
        process.kill()

    fleet.worker()
    fleet.beat()

    for bid, jid, *_ in stuck:
        assert batch_ended(session, bid).status.status is BatchState.COMPLETED
        history = [entry.state for entry in jobs.load(session, jid).history]
        assert history == [*JOB.working(), JobState.COMPLETED]
    quiet(session)
    assert rows(settings, "select count(*) from inv_versions") == [(len(stuck),)]


@pytest.mark.parametrize(
    "changed",
    [pytest.param(True, marks=nightly.case, id="source changed"), pytest.param(False, id="source gone")],
)
def test_a_worker_killed_after_storing_loses_no_version_although_content_and_source_are_gone(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, changed: bool
) -> None:
    """Three faults in one job: its worker, its content in working storage, and its source."""
    url = source.put("/4.bin", b"as it was stored")
    bid, (jid,) = planting.split_batch(session, 1, payload_url=url, payload_name="4.bin")
    process = fleet.start("stuck", "-m", "tests.support.stuck_worker", jid, "processing", "after", wait=False)
    fleet.wait_ready(process)
    process.kill()
    shutil.rmtree(settings.working / bid / jid)
    if changed:
        source.change("/4.bin", body=b"other bytes, which arrive too late")
    else:
        source.change("/4.bin", status=404)
    asked = len(source.seen("/4.bin"))

    fleet.worker()
    fleet.beat()

    assert batch_ended(session, bid).status.status is BatchState.COMPLETED
    quiet(session)
    assert len(source.seen("/4.bin")) == asked
    stored = hashlib.sha512(b"as it was stored").hexdigest()
    assert rows(settings, "select digest_value from inv_files where pathname = 'producer/4.bin'") == [
        (stored,)
    ]
    assert Event.DOWNLOAD_AGAIN not in {entry.event for entry in jobs.load(session, jid).history}


def test_a_wiped_redis_loses_no_work(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, redis_server: RedisServer
) -> None:
    fleet.worker()
    fleet.beat()
    gate = threading.Event()
    bid = submit(session, settings, put_collection(source, objects=12, files=1, hold=gate))
    source.await_request("/o0/f0.txt", timeout=60)

    with redis.Redis.from_url(redis_server.url) as client:
        for key in client.scan_iter(f"{settings.broker_prefix}*"):
            client.delete(key)
    gate.set()

    assert batch_ended(session, bid, timeout=120).status.status is BatchState.COMPLETED
    quiet(session)
    assert rows(settings, "select count(*) from inv_ingests") == [(12,)]


def test_doubled_and_stale_tickets_do_nothing(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    url = source.put("/a.txt", body_of("a"))
    bid, (jid,) = planting.split_batch(session, 1, payload_url=url, payload_name="a.txt")
    ticket = record.ticket(jobs.load(session, jid))
    app = publisher(settings)
    for _ in range(5):
        assert dispatch_job(app, ticket, 5)
        assert dispatch_job(app, planting.void(ticket), 5)
    fleet.worker(concurrency=3)

    assert batch_ended(session, bid).status.status is BatchState.COMPLETED
    quiet(session)
    job = jobs.load(session, jid)
    assert [entry.state for entry in job.history] == [*JOB.working(), JobState.COMPLETED]
    assert job.status.attempt == len(JOB.working())
    assert rows(settings, "select count(*) from inv_versions") == [(1,)]


def test_a_worker_that_is_stopped_hands_its_job_back(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    first = fleet.worker("first")
    url = source.put("/slow.bin", body_of("slow", 2_000_000), piece=10_000, pause=0.1)
    bid = submit(session, settings, url, SubmissionType.FILE)
    source.await_request("/slow.bin", times=2, timeout=60)
    (jid,) = batches.all_jobs(session, bid)
    job_reaches(session, jid, JobState.DOWNLOADING)

    first.terminate()
    assert first.wait(60) == 0
    source.change("/slow.bin", pause=0)
    fleet.worker("second")
    fleet.beat()

    assert batch_ended(session, bid, timeout=120).status.status is BatchState.COMPLETED
    quiet(session)
    job = jobs.load(session, jid)
    assert JobState.FAILED not in [entry.state for entry in job.history]
    assert job.status.attempt == len(JOB.working()) + 1


def test_a_batch_whose_splitter_died_is_split_once(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    bid = batches.submit(
        session,
        planting.submission(
            payload_url=put_collection(source, objects=3, files=1),
            type=SubmissionType.BATCH_MANIFEST,
        ),
    )
    fleet.worker()
    fleet.beat()

    assert batch_ended(session, bid).status.status is BatchState.COMPLETED
    quiet(session)
    assert len(batches.all_jobs(session, bid)) == 3


def test_a_worker_that_consumes_no_messages_exits_and_its_successor_does_the_work(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.settings = settings.model_copy(update={"stalled_after": 2})
    arguments = ("-c", "1")
    stalled = fleet.start("stalled", "-m", "tests.support.stalled_worker", *arguments)
    url = source.put("/a.txt", body_of("a"))
    bids = [submit(session, settings, url, SubmissionType.FILE) for _ in range(3)]

    assert stalled.wait(60) == EXIT_STALLED
    fleet.worker()
    fleet.beat()

    for bid in bids:
        assert batch_ended(session, bid).status.status is BatchState.COMPLETED
    quiet(session)


def test_a_job_that_hangs_its_process_ends_with_a_message_and_others_complete_meanwhile(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    """The worker has two processes: one is always free, since the kernel ends the one that hangs."""
    fleet.settings = settings.model_copy(update={"max_redispatches": 2})
    arguments = ("-c", "2")
    fleet.start("hanging", "-m", "tests.support.hanging_worker", *arguments)
    fleet.beat()
    hanging = submit(session, settings, source.put("/hang.txt", body_of("hang")), SubmissionType.FILE)

    while batches.load(session, hanging).status.status is not BatchState.FAILED:
        url = source.put("/a.txt", body_of("a"))
        honest = submit(session, settings, url, SubmissionType.FILE)
        assert batch_ended(session, honest).status.status is BatchState.COMPLETED

    (jid,) = batches.all_jobs(session, hanging)
    assert jobs.load(session, jid).status.message.startswith("lost its worker 2 times while processing")


def test_a_job_that_an_operator_fails_frees_its_worker_at_once(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker(concurrency=1)
    url = source.put("/endless.bin", body_of("endless", 2_000_000), piece=1_000, pause=0.1)
    bid = submit(session, settings, url, SubmissionType.FILE)
    source.await_request("/endless.bin", times=2, timeout=60)
    (jid,) = batches.all_jobs(session, bid)
    running = job_reaches(session, jid, JobState.DOWNLOADING)

    jobs.move(
        session, jobs.load(session, jid), JobMove(Event.FAIL, "operator", message="no", lock=Lock.BREAK)
    )
    other = submit(session, settings, source.put("/a.txt", body_of("a")), SubmissionType.FILE)

    assert batch_ended(session, other, timeout=45).status.status is BatchState.COMPLETED
    quiet(session)
    assert jobs.load(session, running.jid).status.message == "no"
    batches.finish_if_ended(session, bid, "test")
