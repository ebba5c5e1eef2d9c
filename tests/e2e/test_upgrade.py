"""Jobs that an earlier release left in flight are completed by this release."""

import pytest

from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from tests.e2e.test_pipeline import rows
from tests.servers.http_source import HttpSource
from tests.support import planting
from tests.support.fleet import Fleet, batch_ended, quiet
from tests.upgrade import recording
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.queue import queue
from zkstate.record import batches, jobs
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("version", recording.released())
def test_jobs_in_flight_of_an_earlier_release_are_completed(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, version: str
) -> None:
    recording.serve(source)
    recording.restore(version, session, settings, source)
    for state, event in ((JobState.HELD, Event.RELEASE), (JobState.FAILED, Event.RESUME)):
        (jid,) = queue.queued(session, state)
        jobs.move(session, jobs.load(session, jid), JobMove(event, "operator", lock=Lock.FREE))

    fleet.worker()
    fleet.beat()

    bids = session.children(paths.BATCHES)
    assert len(bids) == len(recording.NAMES) + 1
    for bid in bids:
        assert batch_ended(session, bid).status.status is BatchState.COMPLETED
        assert len(batches.all_jobs(session, bid)) == 1
    quiet(session)
    assert batches.submit(session, planting.submission()) not in bids
    assert rows(settings, "select count(*) from inv_ingests") == [(len(bids),)]
