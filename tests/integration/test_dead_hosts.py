"""One attempt of the fleet probes a host and port that do not answer; the others wait, and lose no try."""

import math
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.http.urls import place_of
from pipeline.outcome import HostDown, HostGivenUp, StepFailed
from pipeline.records import Job, now
from pipeline.settings import Settings
from pipeline.sources.download import Download
from pipeline.sources.fetch import HttpFetcher
from tasks import retry
from tasks.retry import Meaning, hosts_given_up_after, meaning_of
from tests.servers.http_source import HttpSource
from tests.support.records import a_job
from zkstate import codec, paths
from zkstate.connection.session import Session, connect
from zkstate.fleet import hosts
from zkstate.fleet.hosts import BackOff, FleetHostLimiter

HOST = "127.0.0.1"
PLACE = f"{HOST}:4711"


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


def due_for_a_probe(session: Session, place: str = PLACE, unanswered: int = 1) -> None:
    """The host did not answer, and the pause is over."""
    noted(session, place, BackOff(seconds=0.001, unanswered=unanswered))
    while hosts.pause_by_own_clock(session, place).left > 0:
        time.sleep(0.001)


def noted(session: Session, place: str, back_off: BackOff) -> None:
    session.ensure_node(paths.host(place))
    session.ask(session.zk.set_async, paths.host(place), codec.encode(back_off))


def test_after_one_attempt_without_an_answer_the_others_wait_and_learn_url_and_cause(
    session: Session, fetcher: HttpFetcher, here: FleetHostLimiter, there: FleetHostLimiter, tmp_path: Path
) -> None:
    wanted = a_download(closed_port(), tmp_path)

    with pytest.raises(StepFailed, match="the connection was refused"):
        fetcher.limited_by(here).download(wanted, UNATTENDED)
    with pytest.raises(HostDown) as waiting:
        fetcher.limited_by(there).download(wanted, UNATTENDED)
    with pytest.raises(HostDown):
        fetcher.limited_by(there).size(wanted.url)

    assert meaning_of(waiting.value) is Meaning.LATER
    assert waiting.value.message.startswith(f"{wanted.url}: the connection was refused, when ")
    assert 0 < waiting.value.wait <= 5


def test_the_fleet_learns_of_a_silent_host_at_its_first_timeout(
    settings: Settings, session: Session, here: FleetHostLimiter, tmp_path: Path
) -> None:
    """... and the process is free, whatever number of tries an attempt has."""
    patient = settings.model_copy(update={"fetch_tries": 4, "read_timeout": 0.5})
    with socket.create_server((HOST, 0)) as listening, HttpFetcher(patient) as fetcher:
        place = f"{HOST}:{listening.getsockname()[1]}"

        with pytest.raises(StepFailed, match=r"\(try 1\)"):
            fetcher.limited_by(here).download(a_download(f"http://{place}/a", tmp_path), UNATTENDED)

        assert hosts.pause_by_own_clock(session, place).unanswered == 1


def test_a_pause_is_of_one_port_of_a_host(
    session: Session, fetcher: HttpFetcher, source: HttpSource, here: FleetHostLimiter, tmp_path: Path
) -> None:
    limited = fetcher.limited_by(here)
    with pytest.raises(StepFailed, match="the connection was refused"):
        limited.download(a_download(closed_port(), tmp_path), UNATTENDED)

    limited.download(a_download(source.put("/a", b"a"), tmp_path), UNATTENDED)

    assert source.count("/a") == 1


def test_the_host_that_is_paused_is_the_one_that_did_not_answer(
    session: Session, fetcher: HttpFetcher, source: HttpSource, here: FleetHostLimiter, tmp_path: Path
) -> None:
    dead = closed_port()
    url = source.put("/a", redirect=dead)

    with pytest.raises(StepFailed, match="the connection was refused"):
        fetcher.limited_by(here).download(a_download(url, tmp_path), UNATTENDED)

    assert hosts.pause_by_own_clock(session, source.place).unanswered == 0
    assert hosts.pause_by_own_clock(session, place_of(dead)).cause == "the connection was refused"


def test_a_host_that_never_answers_head_is_asked_by_get_alone(
    session: Session, fetcher: HttpFetcher, source: HttpSource, here: FleetHostLimiter
) -> None:
    urls = [source.put(f"/{number}", b"abc") for number in range(12)]

    assert [fetcher.limited_by(here).size(url) for url in urls] == [3] * 12
    assert {asked.method for asked in source.seen()} == {"GET"}


def test_a_host_that_is_silent_for_longer_than_a_job_would_try_is_given_up_with_url_and_cause(
    session: Session, settings: Settings, fetcher: HttpFetcher, tmp_path: Path
) -> None:
    url = closed_port()
    hour_ago = int((time.time() - 3600) * 1000)
    silent = BackOff(seconds=60, unanswered=9, since_ms=hour_ago, cause="timeout while connecting")
    noted(session, place_of(url), silent)

    for give_up_after, outcome in ((4000, HostDown), (3000, HostGivenUp)):
        with closing(FleetHostLimiter(session, lambda: 4, give_up_after=give_up_after)) as limiter:
            with pytest.raises(outcome) as ended:
                fetcher.limited_by(limiter).download(a_download(url, tmp_path), UNATTENDED)
            assert str(ended.value).startswith(f"{url}: timeout while connecting")

    assert isinstance(ended.value, HostGivenUp)
    assert not ended.value.is_tried_again


def test_a_job_gives_a_host_up_after_the_time_that_its_own_tries_would_last(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = settings.model_copy(update={"max_tries": 4, "backoff": 10.0})
    monkeypatch.setattr(retry, "BACKOFF_LIMIT", 30.0)
    job = a_job()

    def waiting(seconds: int) -> Job:
        since = {"last_modification_date": now() - timedelta(seconds=seconds)}
        return job.model_copy(update={"status": job.status.model_copy(update=since)})

    assert hosts_given_up_after(waiting(50), quick) == math.inf
    assert hosts_given_up_after(waiting(61), quick) == 60


def test_a_host_that_does_not_answer_is_probed_by_one_attempt(
    session: Session, here: FleetHostLimiter, there: FleetHostLimiter
) -> None:
    due_for_a_probe(session)

    with here.connection(PLACE, UNATTENDED), pytest.raises(HostDown), there.connection(PLACE, UNATTENDED):
        pass

    assert hosts.pause_by_own_clock(session, PLACE).unanswered == 2


def test_the_pauses_between_two_probes_grow_up_to_a_minute(session: Session, here: FleetHostLimiter) -> None:
    due_for_a_probe(session, unanswered=7)

    with here.connection(PLACE, UNATTENDED):
        pause = hosts.pause_by_own_clock(session, PLACE)

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
    due_for_a_probe(session, source.place)

    fetcher.limited_by(here).download(wanted, UNATTENDED)

    assert hosts.pause_by_own_clock(session, source.place).unanswered == 0
    with there.connection(source.place, UNATTENDED):
        pass


def test_a_connection_that_breaks_marks_no_host(
    session: Session, fetcher: HttpFetcher, source: HttpSource, here: FleetHostLimiter, tmp_path: Path
) -> None:
    wanted = a_download(source.put("/a", b"abc", cut_after=1, etag=None, last_modified=None), tmp_path)

    with pytest.raises(StepFailed):
        fetcher.limited_by(here).download(wanted, UNATTENDED)

    assert hosts.pause_by_own_clock(session, source.place).unanswered == 0
