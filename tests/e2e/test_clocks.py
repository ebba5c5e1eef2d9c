"""A host whose clock is wrong neither loses, nor hurries, nor delays a job."""

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.records import SubmissionType, now
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from tests.e2e.collection import body_of, submit
from tests.servers import zookeeper
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, batch_ended, job_reaches, quiet, wait_for
from tests.support.fleet import fleet as running_fleet
from tests.support.requirements import unavailable
from tools.chaos.clocks import BACK, Clock, clocks_of
from zkstate import paths
from zkstate.care.audit import audit
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session, connect
from zkstate.record import batches, jobs

FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


@pytest.mark.skipif(sys.platform != "linux", reason="clocks are set back by LD_PRELOAD")
def test_a_fleet_whose_clocks_are_an_hour_late_retries_and_recovers_in_time(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    if FAKETIME is None:
        unavailable("libfaketime is needed to set a clock back: apt-get install libfaketime")
    late = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "-1h", "DONT_FAKE_MONOTONIC": "1"}
    fleet.extra = late
    fleet.worker("late")
    fleet.extra = {}
    fleet.beat()
    url = source.put("/a.txt", body_of("a"), status=503, status_times=6)
    bid = submit(session, settings, url, SubmissionType.FILE)

    batch = batch_ended(session, bid)
    quiet(session)

    assert batch.status.status is BatchState.COMPLETED, batch.status.message
    (jid,) = batches.all_jobs(session, bid)
    history = jobs.load(session, jid).history
    assert (now() - history[-1].at).total_seconds() > 3000
    assert [entry.state for entry in history].count(JobState.DOWNLOADING) > 1


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    clocks = clocks_of(tmp_path / "clocks", 1)
    if not clocks:
        unavailable("libfaketime is needed to set a clock back: apt-get install libfaketime")
    return clocks[0]


@pytest.fixture
def server(clock: Clock, tmp_path: Path) -> Iterator[zookeeper.Server]:
    """A ZooKeeper server with a clock of its own."""
    commands = zookeeper.prepare(tmp_path / "zookeeper", 1, tick=500)
    server = zookeeper.Server(
        {
            port: replace(command, environment={**command.environment, **clock.environment})
            for port, command in commands.items()
        }
    )
    try:
        server.start()
        yield server
    finally:
        server.stop()


def seconds_ahead(session: Session) -> float:
    """Seconds by which ZooKeeper's clock differs from this machine's."""
    with single_flight(session, "clock") as clock:
        assert clock is not None
        return clock.read_ms / 1000 - time.time()


@pytest.mark.timeout(240)
def test_a_zookeeper_whose_clock_is_set_back_by_half_an_hour_delays_neither_recovery_nor_retries(
    server: zookeeper.Server, clock: Clock, settings: Settings, source: HttpSource
) -> None:
    own = settings.model_copy(update={"zk_hosts": server.hosts})
    gate = threading.Event()
    with connect(own) as session, running_fleet(own) as fleet:
        first = fleet.worker("first", wait=False)
        fleet.beat(wait=False)
        for process in fleet.running:
            fleet.wait_ready(process)
        lost = source.put("/lost.bin", body_of("lost", 200_000), hold=gate, hold_after=100)
        refused = source.put("/refused.bin", body_of("refused"), status=503, status_times=4)
        submitted = [submit(session, own, url, SubmissionType.FILE) for url in (lost, refused)]
        source.await_request("/lost.bin", times=2, timeout=60)
        (jid,) = batches.all_jobs(session, submitted[0])
        job_reaches(session, jid, JobState.DOWNLOADING)
        second = fleet.worker("second")

        clock.set(BACK)
        wait_for(session, paths.SWEEP, lambda: seconds_ahead(session) < BACK / 2, 30, lambda: "no jump")
        first.kill()
        gate.set()

        began = time.monotonic()
        for bid in submitted:
            batch = batch_ended(session, bid, timeout=100)
            assert batch.status.status is BatchState.COMPLETED, batch.status.message
        quiet(session)
        assert time.monotonic() - began < -BACK / 10
        assert second.running
        assert seconds_ahead(session) < BACK / 2
        assert [str(finding) for finding in audit(session)] == []
