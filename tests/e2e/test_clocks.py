"""A host whose clock is wrong neither loses, nor hurries, nor delays a job."""

import sys
from pathlib import Path

import pytest

from pipeline.records import SubmissionType, now
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from tests.e2e.collection import body_of, submit
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, batch_ended, quiet
from tests.support.requirements import unavailable
from zkstate import batches, jobs
from zkstate.session import Session

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
    url = source.put("/a.txt", body_of("a"), status=503, status_times=3)
    bid = submit(session, settings, url, SubmissionType.FILE)

    batch = batch_ended(session, bid, timeout=60)
    quiet(session)

    assert batch.status.status is BatchState.COMPLETED, batch.status.message
    (jid,) = batches.all_jobs(session, bid)
    history = jobs.load(session, jid).history
    assert (now() - history[-1].at).total_seconds() > 3000
    assert [entry.state for entry in history].count(JobState.DOWNLOADING) > 1
