"""One attempt of the fleet probes a source host that does not answer; the others fail their try at once."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.outcome import HostDown, StepFailed
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.transfer import Download
from pipeline.states import FailureKind
from tests.servers.http_source import HttpSource
from zkstate import codec, host_back_off, paths
from zkstate.host_back_off import BackOff
from zkstate.hosts import FleetHostLimiter
from zkstate.session import Session, connect

HOST = "127.0.0.1"


@pytest.fixture
def fetcher(settings: Settings) -> Iterator[HttpFetcher]:
    with HttpFetcher(settings.model_copy(update={"fetch_tries": 1})) as opened:
        yield opened


@pytest.fixture
def here(session: Session) -> Iterator[FleetHostLimiter]:
    limiter = FleetHostLimiter(session, lambda: 4)
    yield limiter
    limiter.close()


@pytest.fixture
def there(settings: Settings) -> Iterator[FleetHostLimiter]:
    """Another process's."""
    with connect(settings) as other:
        limiter = FleetHostLimiter(other, lambda: 4)
        yield limiter
        limiter.close()


def closed_port() -> str:
    """The URL of a port where nobody listens."""
    with socket.create_server((HOST, 0)) as listening:
        return f"http://{HOST}:{listening.getsockname()[1]}/a"


def a_download(url: str, folder: Path) -> Download:
    return Download(url, folder / "a", folder / "part")


def due_for_a_probe(session: Session, unanswered: int = 1) -> None:
    """The host did not answer, and the pause is over."""
    session.ensure_node(paths.host(HOST))
    data = codec.encode(BackOff(seconds=0.001, unanswered=unanswered))
    session.ask(session.zk.set_async, paths.host(HOST), data)
    while host_back_off.pause_by_own_clock(session, HOST).left > 0:
        time.sleep(0.001)


def test_after_one_attempt_without_an_answer_the_others_send_no_request(
    session: Session, fetcher: HttpFetcher, here: FleetHostLimiter, there: FleetHostLimiter, tmp_path: Path
) -> None:
    wanted = a_download(closed_port(), tmp_path)

    with pytest.raises(StepFailed, match="the connection was refused"):
        fetcher.limited_by(here).download(wanted, UNATTENDED)
    with pytest.raises(HostDown, match=r"127\.0\.0\.1 does not answer") as failure:
        fetcher.limited_by(there).download(wanted, UNATTENDED)
    with pytest.raises(HostDown):
        fetcher.limited_by(there).size(wanted.url)

    assert failure.value.kind is FailureKind.TRANSIENT
    assert 0 < (failure.value.retry_after or 0) <= 5


def test_a_host_that_does_not_answer_is_probed_by_one_attempt(
    session: Session, here: FleetHostLimiter, there: FleetHostLimiter
) -> None:
    due_for_a_probe(session)

    with here.connection(HOST, UNATTENDED), pytest.raises(HostDown), there.connection(HOST, UNATTENDED):
        pass

    assert host_back_off.pause_by_own_clock(session, HOST).unanswered == 2


def test_the_pauses_between_two_probes_grow_up_to_a_minute(session: Session, here: FleetHostLimiter) -> None:
    due_for_a_probe(session, unanswered=7)

    with here.connection(HOST, UNATTENDED):
        pause = host_back_off.pause_by_own_clock(session, HOST)

    assert 50 < pause.left <= 60


def test_an_answer_to_the_probe_ends_the_pause_for_everybody(
    session: Session,
    fetcher: HttpFetcher,
    source: HttpSource,
    here: FleetHostLimiter,
    there: FleetHostLimiter,
    tmp_path: Path,
) -> None:
    wanted = a_download(source.put("/a", b"a"), tmp_path)
    due_for_a_probe(session)

    fetcher.limited_by(here).download(wanted, UNATTENDED)

    assert host_back_off.pause_by_own_clock(session, HOST).unanswered == 0
    with there.connection(HOST, UNATTENDED):
        pass


def test_a_connection_that_breaks_marks_no_host(
    session: Session, fetcher: HttpFetcher, source: HttpSource, here: FleetHostLimiter, tmp_path: Path
) -> None:
    wanted = a_download(source.put("/a", b"abc", cut_after=1, etag=None, last_modified=None), tmp_path)

    with pytest.raises(StepFailed):
        fetcher.limited_by(here).download(wanted, UNATTENDED)

    assert host_back_off.pause_by_own_clock(session, HOST).unanswered == 0
