"""A service that takes requests and answers nothing: an operator's verb and a stop end what waits for it."""

import os
import signal
from pathlib import Path

import pytest

from operations.site import Site
from operations.verbs.verbs import act
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from tests.e2e.collection import body_of, submit
from tests.servers import redis as redis_servers
from tests.servers.hostile_source import HostileSource
from tests.servers.http_source import HttpSource
from tests.servers.proxy import Proxy
from tests.support import nightly
from tests.support.fleet import batch_ended, wait_for
from tests.support.fleet import fleet as running_fleet
from tests.support.operators import ANN
from tests.support.polling import eventually
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.record import batches, jobs

pytestmark = pytest.mark.timeout(300)

SOON = 15.0
"""Seconds: 5, and some for a busy machine; the clients' own timeouts are 30 and 60."""


@pytest.mark.parametrize(
    "service",
    [pytest.param("ARKLINE_EZID_URL", marks=nightly.case), "ARKLINE_STORAGE_SERVICE_URL"],
)
def test_fail_ends_a_request_to_a_service_that_answers_nothing(
    session: Session, settings: Settings, source: HttpSource, service: str
) -> None:
    with HostileSource("no-answer", pause=60.0) as silent:
        changed = settings.model_copy(update={"ezid_user": "user", "ezid_password": "password"})
        with running_fleet(changed) as fleet:
            fleet.extra[service] = silent.url.rpartition("/")[0]
            fleet.worker(concurrency=1)
            fleet.beat()
            bid = submit(session, changed, source.put("/a.txt", body_of("a")), SubmissionType.FILE)
            silent.await_request(timeout=60)

            (jid,) = batches.all_jobs(session, bid)
            assert jobs.load(session, jid).status.status is JobState.PROCESSING
            act(Site(changed, session), ANN, jid, Event.FAIL)

            silent.await_left(1, SOON)
            assert batch_ended(session, bid).status.status is BatchState.FAILED
            unlocked(session, jid)


def test_a_stop_ends_a_request_to_a_service_that_answers_nothing(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    with HostileSource("no-answer", pause=60.0) as silent:
        changed = settings.model_copy(update={"stop_grace": Settings().stop_grace})
        with running_fleet(changed) as fleet:
            fleet.extra["ARKLINE_STORAGE_SERVICE_URL"] = silent.url.rpartition("/")[0]
            worker = fleet.worker(concurrency=1)
            fleet.beat()
            bid = submit(session, changed, source.put("/a.txt", body_of("a")), SubmissionType.FILE)
            silent.await_request(timeout=60)

            os.kill(worker.pid, signal.SIGTERM)

            silent.await_left(1, SOON)
            (jid,) = batches.all_jobs(session, bid)
            unlocked(session, jid)
            handed_back = jobs.load(session, jid).status
            assert (handed_back.status, handed_back.tries) == (JobState.PROCESSING, 0)


ENDED = 90.0
"""Seconds; every supervisor of `deploy` gives a worker 120."""


def test_a_stop_ends_a_worker_while_redis_answers_nothing(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    with (
        redis_servers.running(tmp_path) as redis,
        Proxy(redis.port) as between,
        HostileSource("no-answer", pause=60.0) as silent,
    ):
        grace = Settings().stop_grace
        changed = settings.model_copy(
            update={"broker_url": f"redis://{between.hosts}/0", "stop_grace": grace}
        )
        with running_fleet(changed) as fleet:
            worker = fleet.worker(concurrency=1)
            beat = fleet.beat()
            bid = submit(session, changed, silent.url, SubmissionType.FILE)
            silent.await_request(timeout=60)
            between.swallow_after(b"worker.heartbeat")
            assert between.swallowed.wait(30)

            for process in (worker, beat):
                os.kill(process.pid, signal.SIGTERM)

            (jid,) = batches.all_jobs(session, bid)
            unlocked(session, jid)
            assert jobs.load(session, jid).status.tries == 0
            eventually(lambda: not (worker.running or beat.running), ENDED)


def unlocked(session: Session, jid: str) -> None:
    """Return once nobody works on the job."""
    lock = paths.job_lock(jid)
    wait_for(session, lock, lambda: session.exists(lock) is None, SOON, lambda: "the job is still locked")
