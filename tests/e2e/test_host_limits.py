"""A job that waits for a limit of its source's host is handed back, and not counted as tried."""

import pytest

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from tests.e2e.collection import submit
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, batch_ended, job_reaches, quiet, wait_for
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet.hosts import FleetHostLimiter
from zkstate.record import batches, jobs

PEACE = 25.0
"""Seconds; more than a worker waits."""


@pytest.mark.timeout(240)
def test_a_job_that_waits_for_a_rate_limit_is_not_counted_as_tried(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    settings = settings.model_copy(update={"max_tries": 1})
    fleet.settings = settings
    fleet.worker()
    fleet.beat()
    FleetHostLimiter(session, lambda: 4).back_off(source.place, PEACE)
    bid = submit(session, settings, source.put("/a.txt", b"a"), SubmissionType.FILE)
    wait_for(
        session,
        paths.batch_status(bid),
        lambda: bool(batches.all_jobs(session, bid)),
        60,
        lambda: "no job was made",
    )
    (jid,) = batches.all_jobs(session, bid)
    job_reaches(session, jid, JobState.ESTIMATING)

    wait_for(
        session,
        paths.job_status(jid),
        lambda: jobs.load(session, jid).status.delay > 0,
        30,
        lambda: str(jobs.load(session, jid).status),
    )
    waiting = jobs.load(session, jid).status
    assert (waiting.tries, waiting.status) == (0, JobState.ESTIMATING)
    assert "requested a pause" in waiting.message

    assert batch_ended(session, bid).status.status is BatchState.COMPLETED
    quiet(session)
    assert len(source.seen("/a.txt")) == 2  # its size, and its bytes
