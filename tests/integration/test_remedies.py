"""Every cause that `why` can name: its advice is followed literally, and the job or batch moves on.

Where nothing has to be done, it moves on by itself.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from operations.reasons import Reason
from pipeline.states import BatchState, Event, JobState
from pipeline.working_storage import mount
from tests.servers import redis as redis_servers
from tests.servers import zookeeper as zookeeper_servers
from tests.servers.http_source import HttpSource
from tests.support import planting, remedy_ended, remedy_storage, remedy_waiting
from tests.support.fleet import batch_ended, fleet
from tests.support.remedy_waiting import PROCESSES
from tests.support.remedy_world import World, quick_settings
from zkstate.care.audit import audit
from zkstate.connection.session import connect
from zkstate.record import jobs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]  # one case restarts the fleet twice

CASES = {**remedy_waiting.CASES, **remedy_ended.CASES, **remedy_storage.CASES}


@pytest.fixture(scope="module")
def running(
    zookeeper: zookeeper_servers.Server,
    redis_server: redis_servers.Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """One worker and one beat for all cases; every case leaves them as it found them."""
    home = tmp_path_factory.mktemp("remedies")
    settings = quick_settings(zookeeper, redis_server, home, in_flight=2, backoff=4)
    with HttpSource() as source, connect(settings) as session, fleet(settings) as started:
        started.worker("w1", concurrency=PROCESSES)
        started.beat()
        yield World(session, settings, started, source, redis_server)
        assert [str(finding) for finding in audit(session)] == []


@pytest.fixture
def world(running: World) -> Iterator[World]:
    yield running
    running.end_case()


@pytest.mark.parametrize("reason", Reason)
def test_the_advice_of_why_works(world: World, reason: Reason) -> None:
    CASES[reason](world)


def test_every_reason_has_a_case() -> None:
    assert set(CASES) == set(Reason)


def test_the_advice_of_why_works_after_working_storage_was_lost(world: World) -> None:
    with world.without_beat(leader=True):
        job = world.planted()
        for event in (Event.ACQUIRE, Event.SUCCEED, Event.SUCCEED, Event.SUCCEED, Event.FAIL):
            job = planting.apply_event(world.session, job, event)
        mount.mark(world.settings.working)
        assert not Path(job.configuration.working_dir).exists()
    assert batch_ended(world.session, job.bid).status.status is BatchState.FAILED

    found = world.remedied(job.jid, Reason.FAILED_SYSTEM)

    assert (found.resumes_in, found.content_gone) == (JobState.PROCESSING, True)
    world.job_completes(job.jid)
    world.follow(found.afterwards)
    world.completed(job.bid)
    events = [entry.event for entry in jobs.load(world.session, job.jid).history]
    assert events.count(Event.DOWNLOAD_AGAIN) == 1
