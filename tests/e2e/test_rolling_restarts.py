"""Rolling restarts during one long download: it completes, and no try and no lost worker is counted."""

import threading

import pytest

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, JobState
from pipeline.working_storage.workspace import Workspace
from tests.e2e.collection import body_of, submit
from tests.servers.http_source import HttpSource
from tests.support.downloading import size_of
from tests.support.fleet import Fleet, batch_ended, job_reaches, quiet
from tests.support.nightly import often
from tests.support.polling import eventually
from zkstate.connection.session import Session
from zkstate.record import batches, jobs

pytestmark = pytest.mark.timeout(600)

RESTARTS = often(3, 10)

SIZE = 4_000_000

AT_ONCE = 3_000_000
"""Bytes that the first request gets; from so many on, a later attempt continues by Range."""

BUFFERED = 100_000
"""More bytes than the download keeps in memory before they are in its file."""


def test_rolling_restarts_during_a_long_download_count_no_try_and_it_completes(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.settings = settings.model_copy(update={"stop_grace": Settings().stop_grace, "max_redispatches": 3})
    fleet.beat(wait=False)
    worker = fleet.worker("worker-0")
    gate = threading.Event()
    body = body_of("long", SIZE)
    url = source.put("/long.bin", body, hold=gate, hold_after=AT_ONCE, piece=1_000, pause=0)
    bid = submit(session, settings, url, SubmissionType.FILE)
    source.await_request("/long.bin", times=2, timeout=60)
    (jid,) = batches.all_jobs(session, bid)
    job = job_reaches(session, jid, JobState.DOWNLOADING)
    folder = Workspace.of(job, settings.working).folder
    eventually(lambda: size_of(folder) >= AT_ONCE - BUFFERED)
    source.change("/long.bin", hold=None, pause=0.3)  # 3 kB per second: the rest would take minutes

    for number in range(1, RESTARTS + 1):
        successor = fleet.worker(f"worker-{number}", wait=False)
        fleet.wait_ready(successor)
        requests = source.count("/long.bin")
        if number == RESTARTS:
            source.change("/long.bin", pause=0)
        worker.terminate()
        source.await_request("/long.bin", times=requests + 1, timeout=60)
        status = jobs.load(session, jid).status
        assert (status.tries, status.redispatches) == (0, 0)
        worker = successor

    assert batch_ended(session, bid, timeout=120).status.status is BatchState.COMPLETED
    quiet(session)
    gate.set()
    job = jobs.load(session, jid)
    assert [entry.state for entry in job.history] == [*JOB.working(), JobState.COMPLETED]
    assert job.status.attempt == len(JOB.working()) + RESTARTS
    _, _, *later = source.seen("/long.bin")
    assert len(later) == RESTARTS
    assert all("Range" in request.headers for request in later)
