"""Jobs that wait for dead or busy hosts take no place and no process, and delay no other batch."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState
from tests.e2e.collection import manifest, put_collection, submit
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, batch_ended
from tests.support.manifests import MANIFEST
from tests.support.nightly import often
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.queue import queue
from zkstate.record import batches, jobs

pytestmark = pytest.mark.timeout(600)

JOBS = often(20, 60)
"""Of each host that does not answer or is busy."""

PLACES = 8

PROMPT = 60.0
"""Seconds that a small batch may take beside them, on a busy machine."""


@pytest.fixture
def dead() -> Iterator[str]:
    """The URL of a host that takes no connection, and refuses none: every attempt ends by a timeout."""
    with ExitStack() as clients:
        listening = clients.enter_context(socket.create_server(("127.0.0.2", 0), backlog=0))
        while True:
            client = clients.enter_context(socket.socket())
            client.settimeout(0.2)
            try:
                client.connect(listening.getsockname())
            except TimeoutError:
                break
        yield f"http://127.0.0.2:{listening.getsockname()[1]}"


@pytest.fixture
def busy(source: HttpSource) -> str:
    """The URL of a host that asks everybody to come back in ten minutes."""
    for number in range(JOBS):
        source.put(f"/{number}.txt", b"x", status=503, retry_after="600")
    return source.url("").replace("127.0.0.1", "localhost")


def submit_files_of(session: Session, settings: Settings, source: HttpSource, name: str, host: str) -> str:
    rows = [f"{host}/{number}.txt | | | | | {number}.txt | | | | |" for number in range(JOBS)]
    url = source.put(f"/{name}.checkm", manifest(f"{MANIFEST}mrt-single-file-batch-manifest", rows))
    return submit(session, settings, url, SubmissionType.SINGLE_FILE_BATCH_MANIFEST)


def await_waiting(session: Session, count: int) -> None:
    """Wait until so many jobs wait at once."""

    def listed() -> int:
        return len(session.children(paths.WAITING))

    deadline = time.monotonic() + 300
    while listed() < count:
        assert time.monotonic() < deadline, f"{listed()} jobs wait"
        time.sleep(0.5)


def test_jobs_of_a_dead_and_of_a_busy_host_delay_no_batch_of_another_host(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, dead: str, busy: str
) -> None:
    shipped = Settings()
    tries = {name: getattr(shipped, name) for name in ("backoff", "max_tries", "fetch_tries", "host_limit")}
    settings = settings.model_copy(update={"in_flight": PLACES, **tries})
    fleet.settings = settings
    fleet.worker(concurrency=3)
    fleet.worker("control", 1, queues="control")
    fleet.beat()
    waiting = (
        submit_files_of(session, settings, source, "dead", dead),
        submit_files_of(session, settings, source, "busy", busy),
    )
    await_waiting(session, 3 * JOBS // 2)  # of 2 * JOBS, since some are tried again just now

    began = time.monotonic()
    other = submit(session, settings, put_collection(source, 4))
    ended = batch_ended(session, other, timeout=PROMPT)

    assert time.monotonic() - began < PROMPT
    assert ended.status.status is BatchState.COMPLETED
    assert queue.places_taken(session) < PLACES
    members = [jobs.load(session, jid) for bid in waiting for jid in batches.all_jobs(session, bid)]
    assert len(members) == 2 * JOBS
    assert {job.status.kind for job in members} == {None}
