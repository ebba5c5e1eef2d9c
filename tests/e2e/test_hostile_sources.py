"""Sources that send a byte per 25 seconds, at the shipped settings: they delay nobody else."""

from contextlib import ExitStack

import pytest

from operations.site import Site
from operations.verbs.bulk import cancel
from operations.verbs.verbs import act
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from tests.e2e.collection import submit
from tests.servers.hostile_source import HostileSource
from tests.support import planting
from tests.support.fleet import Fleet, batch_ended, wait_for
from tests.support.operators import ANN
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.record import batches, jobs
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

pytestmark = pytest.mark.timeout(300)

PAUSE = 25.0
"""Seconds between two bytes."""

SOON = 15.0
"""Seconds in which `fail`, `cancel` and SIGTERM end a request: 5, and some for a busy machine."""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """As they are shipped."""
    shipped = ("backoff", "max_tries", "fetch_tries", "stop_grace")
    return settings.model_copy(update={name: getattr(Settings(), name) for name in shipped})


def test_sources_that_send_a_byte_per_25_seconds_delay_nobody_else_and_end_when_an_operator_says_so(
    session: Session, settings: Settings, fleet: Fleet
) -> None:
    """They hold every process for jobs and for splits; reports and the sweep go their way."""
    site = Site(settings, session)
    worker = fleet.worker(concurrency=4, wait=False)
    split = fleet.worker("split", 2, queues="split", wait=False)
    fleet.worker("control", 2, queues="control", wait=False)
    fleet.beat(wait=False)
    for process in fleet.running:
        fleet.wait_ready(process)
    with ExitStack() as servers:

        def hostile(variant: str, kind: SubmissionType) -> tuple[HostileSource, str]:
            source = servers.enter_context(HostileSource(variant, PAUSE))
            return source, submit(session, settings, source.url, kind)

        payloads = ("endless-header", "no-handshake", "endless-body", "endless-chunk-size")
        held = [hostile(variant, SubmissionType.FILE) for variant in payloads]
        for (source, _), requests in zip(held, (1, 1, 2, 2), strict=True):
            source.await_request(requests, timeout=60)
        manifests = [hostile("endless-body", SubmissionType.BATCH_MANIFEST) for _ in range(2)]
        for source, _ in manifests:
            source.await_request(timeout=60)

        sweeps = _version(session)
        bid, (jid,) = planting.split_batch(session, 1, payload_url=held[0][0].url, payload_name="a")
        no = JobMove(Event.FAIL, "operator", message="no", lock=Lock.BREAK)
        jobs.move(session, jobs.load(session, jid), no)
        batches.finish_if_ended(session, bid, "test")

        assert batch_ended(session, bid).status.status is BatchState.FAILED
        wait_for(session, paths.SWEEP, lambda: _version(session) > sweeps + 1, 30, lambda: "no sweep")

        (failed,) = batches.all_jobs(session, held[0][1])
        act(site, ANN, failed, Event.FAIL)
        held[0][0].await_left(held[0][0].arrived, SOON)
        cancel(site, ANN, held[2][1])
        held[2][0].await_left(held[2][0].arrived, SOON)
        cancel(site, ANN, manifests[0][1])
        manifests[0][0].await_left(manifests[0][0].arrived, SOON)
        worker.terminate()
        split.terminate()
        for source, _ in (held[1], held[3], manifests[1]):
            source.await_left(source.arrived, SOON)

        for _, bid in (held[1], held[3], manifests[1]):
            wait_for(
                session,
                _lock(session, bid),
                lambda bid=bid: _is_handed_back(session, bid),  # type: ignore[misc]
                2 * SOON,
                lambda bid=bid: str(batches.load(session, bid)),  # type: ignore[misc]
            )
            cancel(site, ANN, bid)
        for _, bid in (*held, *manifests):
            assert batch_ended(session, bid).status.status is BatchState.FAILED


def _version(session: Session) -> int:
    """Grows with every sweep."""
    stat = session.exists(paths.SWEEP)
    assert stat is not None
    return int(stat.version)


def _is_handed_back(session: Session, bid: str) -> bool:
    """True once no attempt has the job of the batch, or the unsplit batch."""
    members = batches.all_jobs(session, bid)
    status = jobs.load(session, members[0]).status if members else batches.load(session, bid).status
    # in provisioning if the time for the headers of its size ended just before the stop
    states = (JobState.ESTIMATING, JobState.PROVISIONING, JobState.DOWNLOADING, BatchState.PROCESSING)
    assert status.status in states
    return session.exists(_lock(session, bid)) is None


def _lock(session: Session, bid: str) -> str:
    """The lock of the attempt that has the job of the batch, or the unsplit batch."""
    members = batches.all_jobs(session, bid)
    return paths.job_lock(members[0]) if members else paths.batch_lock(bid)
