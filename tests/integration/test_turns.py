"""Requests for sizes and manifests observe the limits of a host too; `why` names the holders."""

from collections.abc import Iterator

import pytest
from celery.exceptions import Retry

from entrypoints.render.explanation import text
from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline.attempt import UNATTENDED
from pipeline.outcome import RateLimited, WaitKind
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.states import BatchState, JobState
from tasks.app import make_context
from tasks.worker_context import WorkerContext
from tests.servers.http_source import HttpSource
from tests.support import planting
from tests.support.operators import ANN
from zkstate.connection.session import Session
from zkstate.fleet import hosts
from zkstate.fleet.hosts import FleetHostLimiter
from zkstate.record import batches, record


@pytest.fixture
def fetcher(settings: Settings) -> Iterator[HttpFetcher]:
    with HttpFetcher(settings) as opened:
        yield opened


@pytest.fixture
def context(settings: Settings) -> Iterator[WorkerContext]:
    opened = make_context(settings)
    yield opened
    opened.drop_session()
    opened.clients().inventory.database.close()


def one_connection(session: Session, who: str) -> FleetHostLimiter:
    return FleetHostLimiter(session, lambda: 1, who, max_wait=0.1)


def test_a_size_request_takes_a_connection(
    session: Session, fetcher: HttpFetcher, source: HttpSource
) -> None:
    url = source.put("/a", b"abc")
    first, second = one_connection(session, "jid1"), one_connection(session, "jid2")

    assert fetcher.limited_by(first).size(url) == 3
    assert hosts.connection_holders(session, source.place) == ("jid1",)
    with pytest.raises(RateLimited, match="all 1 connections"):
        fetcher.limited_by(second).size(url)
    first.close()
    assert fetcher.limited_by(second).size(url) == 3
    second.close()


def test_no_size_is_requested_from_a_host_that_is_backing_off(
    session: Session, fetcher: HttpFetcher, source: HttpSource
) -> None:
    url = source.put("/a", b"abc")
    limiter = one_connection(session, "jid1")
    limiter.back_off(source.place, 60)

    with pytest.raises(RateLimited, match="requested a pause"):
        fetcher.limited_by(limiter).size(url)
    assert source.count() == 0
    limiter.close()


def test_a_back_off_in_answer_to_a_size_request_is_kept_and_not_waited_for(
    session: Session, fetcher: HttpFetcher, source: HttpSource
) -> None:
    urls = [source.put(path, b"abc", status=429, retry_after="60") for path in ("/a", "/b")]
    limiter = one_connection(session, "jid1")
    polite = fetcher.limited_by(limiter)

    assert [polite.size(url) for url in urls] == [None, None]
    assert source.count() == 1
    assert 50 < hosts.pause_by_own_clock(session, source.place).left <= 60
    limiter.close()


def test_a_batch_that_waits_for_a_rate_limit_is_not_counted_as_tried(
    session: Session, settings: Settings, context: WorkerContext, source: HttpSource
) -> None:
    url = source.put("/batch.checkm", b"")
    FleetHostLimiter(session, lambda: 1).back_off(source.place, 60)
    given = planting.submission(payload_url=url, type=SubmissionType.BATCH_MANIFEST)
    bid = batches.submit(session, given)
    ticket = record.ticket(batches.load(session, bid))

    with pytest.raises(Retry, match="requested a pause"):
        context.app.tasks["batch.split"](ticket.model_dump())

    status = batches.load(session, bid).status
    assert (status.status, status.tries) == (BatchState.PROCESSING, 0)
    assert status.waits_for
    assert (status.waits_for.kind, status.waits_for.name) == (WaitKind.HOST, source.place)
    assert 50 < status.delay <= 60
    found = why(Site(settings, session), ANN, bid)
    assert (found.reason, found.waits_for) == (Reason.HOST_BACKING_OFF, source.place)
    assert source.count() == 0


def test_why_says_who_has_the_connections_that_a_worker_waits_for(
    session: Session, settings: Settings
) -> None:
    settings = settings.model_copy(update={"host_limit": 1})
    job = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING))
    other, own = one_connection(session, "jid0000000099"), one_connection(session, job.jid)

    with other.connection("example.org:80", UNATTENDED):
        waiting = why(Site(settings, session), ANN, job.jid)
    other.close()
    with own.connection("example.org:80", UNATTENDED):
        working = why(Site(settings, session), ANN, job.jid)
    own.close()

    assert (waiting.reason, waiting.waits_for) == (Reason.WAITING_FOR_HOST, "example.org:80")
    assert (waiting.limit, waiting.taken, waiting.users) == (1, 1, {"jid0000000099": 1})
    assert waiting.holder.startswith("test ")
    assert working.reason is Reason.BEING_WORKED_ON


def test_why_says_that_a_worker_waits_for_a_host_that_asked_not_to_be_contacted(
    session: Session, settings: Settings
) -> None:
    job = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING))
    FleetHostLimiter(session, lambda: 1).back_off("example.org:80", 90)

    found = why(Site(settings, session), ANN, job.jid)
    assert (found.reason, found.waits_for) == (Reason.HOST_BACKING_OFF, "example.org:80")
    assert (
        "example.org:80 asked clients to slow down (Retry-After); the next request is sent in 1 minute."
        in text(found)
    )


def test_why_says_that_the_worker_of_a_batch_waits_for_a_host(session: Session, settings: Settings) -> None:
    batch = planting.acquired_batch(session)
    FleetHostLimiter(session, lambda: 1).back_off("example.org:80", 90)

    found = why(Site(settings, session), ANN, batch.bid)

    assert (found.reason, found.waits_for) == (Reason.HOST_BACKING_OFF, "example.org:80")
