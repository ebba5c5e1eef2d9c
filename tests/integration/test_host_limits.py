"""The whole fleet has no more connections to a host than allowed, and leaves one alone that asks for it."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from entrypoints.render.explanation import text
from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline.attempt import UNATTENDED, CheckedAttempt
from pipeline.outcome import RateLimited, StepFailed
from pipeline.profiles.profile import Profiles
from pipeline.settings import Settings
from pipeline.sources.download import Download
from pipeline.sources.fetch import HttpFetcher
from pipeline.states import JobState
from tests.servers.http_source import HttpSource
from tests.support import planting, waits
from tests.support.operators import ANN
from zkstate import paths
from zkstate.connection import locks
from zkstate.connection.clock import ServerClock
from zkstate.connection.session import Session, connect
from zkstate.fleet import hosts
from zkstate.fleet.hosts import FleetHostLimiter
from zkstate.record import record

HOST = "x.edu"


@pytest.fixture
def other(settings: Settings, session: Session) -> Iterator[Session]:
    """Another process's session."""
    with connect(settings) as opened:
        yield opened


def test_the_fleet_never_has_more_connections_than_allowed(session: Session, other: Session) -> None:
    fleet = [FleetHostLimiter(each, lambda: 3) for each in (session, session, other, other)]
    most, now = 0, 0
    mutex = threading.Lock()

    def fetch(limiter: FleetHostLimiter) -> None:
        nonlocal most, now
        with limiter.connection(HOST, UNATTENDED):
            with mutex:
                now += 1
                most = max(most, now)
            assert len(hosts.connection_holders(session, HOST)) <= 3
            with mutex:
                now -= 1
        limiter.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fetch, fleet * 10))

    assert 1 <= most <= 3
    assert len(hosts.connection_holders(session, HOST)) == 0


def test_who_gets_no_connection_in_time_is_told_which_limit_it_waits_for(
    session: Session, other: Session
) -> None:
    first, second = FleetHostLimiter(session, lambda: 1), FleetHostLimiter(other, lambda: 1, max_wait=0.1)

    with first.connection(HOST, UNATTENDED):
        with (
            pytest.raises(
                RateLimited, match=r"all 1 connections .* to x\.edu are in use \(ARKLINE_HOST_LIMIT"
            ),
            second.connection(HOST, UNATTENDED),
        ):
            pass
        with second.connection("y.edu", UNATTENDED):
            pass
    first.close()
    with second.connection(HOST, UNATTENDED):
        assert len(hosts.connection_holders(session, HOST)) == 1
    second.close()


def test_a_connection_is_kept_from_file_to_file_and_given_back_at_the_end(session: Session) -> None:
    limiter = FleetHostLimiter(session, lambda: 4)

    for _ in range(3):
        with limiter.connection(HOST, UNATTENDED):
            assert len(hosts.connection_holders(session, HOST)) == 1
    assert len(hosts.connection_holders(session, HOST)) == 1
    limiter.close()

    assert len(hosts.connection_holders(session, HOST)) == 0


def test_a_session_that_ends_gives_its_connections_back(session: Session, settings: Settings) -> None:
    with connect(settings) as doomed:
        taken = FleetHostLimiter(doomed, lambda: 1).connection(HOST, UNATTENDED)
        taken.__enter__()
        assert len(hosts.connection_holders(session, HOST)) == 1

    with FleetHostLimiter(session, lambda: 1).connection(HOST, UNATTENDED):
        assert len(hosts.connection_holders(session, HOST)) == 1
    del taken


def test_a_host_that_asks_for_peace_has_it_from_everybody(session: Session, other: Session) -> None:
    FleetHostLimiter(session, lambda: 4).back_off(HOST, 60)
    limiter = FleetHostLimiter(other, lambda: 4)

    with (
        pytest.raises(
            RateLimited, match=r"x\.edu requested a pause: no request is sent to it for \d\d more seconds"
        ) as turn,
        limiter.connection(HOST, UNATTENDED),
    ):
        pass
    assert 50 < turn.value.wait <= 60
    with limiter.connection("y.edu", UNATTENDED):
        pass
    limiter.close()


def test_a_short_peace_is_waited_for_and_a_shorter_one_does_not_end_a_longer(session: Session) -> None:
    limiter = FleetHostLimiter(session, lambda: 0, max_wait=30)
    limiter.back_off(HOST, 2)
    looks: list[int] = []

    with limiter.connection(HOST, CheckedAttempt(lambda: looks.append(1))):
        assert len(looks) >= 2
    limiter.back_off(HOST, 100)
    limiter.back_off(HOST, 1)
    with pytest.raises(RateLimited), limiter.connection(HOST, UNATTENDED):
        pass
    limiter.close()


def test_an_own_pause_is_observed_before_its_watch_has_fired(session: Session) -> None:
    limiter = FleetHostLimiter(session, lambda: 4)
    with limiter.connection(HOST, UNATTENDED):
        pass
    with watches_held_back(session):
        limiter.back_off(HOST, 60)

        with pytest.raises(RateLimited), limiter.connection(HOST, UNATTENDED):
            pass
    limiter.close()


@contextmanager
def watches_held_back(session: Session) -> Iterator[None]:
    """Occupy the thread that calls the session's watches, until the block ends."""
    occupied, released = threading.Event(), threading.Event()

    def hold_back(_: object) -> None:
        occupied.set()
        assert released.wait(30)

    session.ask(session.zk.exists_async, "/ids/busy", watch=hold_back)
    session.ensure_node("/ids/busy")
    try:
        assert occupied.wait(30)
        yield
    finally:
        released.set()


def test_a_pause_that_was_noted_before_the_servers_clock_was_set_back_ends_no_later(session: Session) -> None:
    FleetHostLimiter(session, lambda: 4).back_off(HOST, 60)
    written = session.get(paths.host(HOST))[1].mtime
    set_back = ServerClock(written - 30 * 60_000, time.monotonic())

    assert hosts.read_pause(session, HOST, set_back).left == 0


def test_a_peace_that_begins_between_two_files_is_kept(session: Session, other: Session) -> None:
    limiter = FleetHostLimiter(session, lambda: 4)
    with limiter.connection(HOST, UNATTENDED):
        FleetHostLimiter(other, lambda: 4).back_off(HOST, 60)

    def next_file() -> None:
        deadline = time.monotonic() + 10  # the news of it takes a moment
        while time.monotonic() < deadline:
            with limiter.connection(HOST, UNATTENDED):
                pass

    with pytest.raises(RateLimited):
        next_file()
    limiter.close()


def test_a_source_that_answers_429_is_left_alone_by_the_whole_fleet(
    session: Session, other: Session, settings: Settings, source: HttpSource, tmp_path: Path
) -> None:
    url = source.put("/a", b"a", status=429, status_times=1, retry_after="90")
    wanted = Download(url, tmp_path / "a", tmp_path / "part")
    with HttpFetcher(settings) as fetcher:
        here, there = FleetHostLimiter(session, lambda: 4), FleetHostLimiter(other, lambda: 4)

        with pytest.raises(StepFailed, match="429 Too Many Requests"):
            fetcher.limited_by(here).download(wanted, UNATTENDED)
        with pytest.raises(RateLimited, match="requested a pause"):
            fetcher.limited_by(there).download(wanted, UNATTENDED)
        here.close()
        there.close()

    assert source.count("/a") == 1


def test_a_collection_may_have_a_limit_of_its_own(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"profiles": tmp_path / "profiles"})
    settings.profiles.mkdir()
    (settings.profiles / "shy.yaml").write_text(
        "owner: ark:/99999/fk4o\ncollections: ark:/99999/fk4c\nlimits: {host_connections: 2}\n"
    )
    profiles = Profiles(settings.profiles)

    assert hosts.host_limit(7, lambda: profiles.get("shy")) == 2
    assert hosts.host_limit(7, lambda: profiles.get("unknown")) == 7


def test_a_collection_with_a_lower_limit_counts_the_connections_of_all(session: Session) -> None:
    taken = [hosts.acquire_connection(session, HOST, 100, "", threading.Event()) for _ in range(3)]
    changed = threading.Event()

    assert hosts.acquire_connection(session, HOST, 3, "", changed) is None
    for connection in filter(None, taken):
        connection.release()
    assert changed.wait(30)


def test_why_says_for_which_turn_a_job_waits(session: Session, settings: Settings) -> None:
    job = planting.job_in(session, JobState.DOWNLOADING)
    held = planting.acquire(session, job)
    message = "x.edu requested a pause"
    record.hand_back(session, held, "worker", message=message, delay=90, waits_for=waits.HOST)

    found = why(Site(settings, session), ANN, job.jid)

    assert found.reason is Reason.WAITING_FOR_HOST
    assert "Nothing failed: x.edu requested a pause. The next request is sent in 1 minute." in text(found)


def clock_in(session: Session, seconds: float) -> ServerClock:
    """ZooKeeper's clock so many seconds from now."""
    with locks.single_flight(session, "clock-of-the-test") as clock:
        assert clock is not None
        return ServerClock(clock.read_ms + int(seconds * 1000), clock.at)


def test_the_nodes_of_hosts_that_nobody_uses_vanish(session: Session, other: Session) -> None:
    limiter = FleetHostLimiter(session, lambda: 1)
    for number in range(50):
        with limiter.connection(f"h{number}.edu", UNATTENDED):
            pass
    limiter.close()
    busy = FleetHostLimiter(other, lambda: 1)
    busy.back_off("paused.edu", 60)

    with busy.connection("busy.edu", UNATTENDED):
        assert hosts.remove_unused(session, clock_in(session, 0)) == 50
        assert sorted(session.children(paths.HOSTS)) == ["busy.edu", "paused.edu"]
    busy.close()
    assert hosts.remove_unused(session, clock_in(session, 2 * 3600)) == 2

    assert session.children(paths.HOSTS) == []
    with limiter.connection("h1.edu", UNATTENDED):
        assert session.children(paths.HOSTS) == ["h1.edu"]
    limiter.close()


def test_a_back_off_is_written_for_a_host_whose_node_is_being_removed(
    session: Session, other: Session
) -> None:
    with ThreadPoolExecutor(1) as pool:
        stop = threading.Event()

        def remove() -> None:
            while not stop.is_set():
                hosts.remove_unused(other, clock_in(other, 0))

        removing = pool.submit(remove)
        for number in range(30):
            hosts.begin_pause(session, f"h{number}.edu", 60)
        stop.set()
        removing.result()

    assert len(session.children(paths.HOSTS)) == 30


def test_a_redirected_request_waits_for_the_pause_of_the_host_to_which_it_leads(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    """One resolver in front of several hosts: no request goes to the one that asked for a pause."""
    there = source.put("/there", b"content").replace("127.0.0.1", "127.1")
    url = source.put("/here", redirect=there)
    limiter = FleetHostLimiter(session, lambda: 4, max_wait=0.1)
    limiter.back_off(f"127.1:{source.port}", 60)

    with HttpFetcher(settings) as fetcher:
        with pytest.raises(RateLimited, match=r"127\.1:\d+ requested a pause"):
            fetcher.limited_by(limiter).read(url, 100)
        limiter.close()

    assert (source.count("/here"), source.count("/there")) == (1, 0)


def test_the_pause_behind_a_redirect_is_read_once_for_many_files(
    session: Session, settings: Settings, source: HttpSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = source.put("/there", b"content").replace("127.0.0.1", "127.1")
    url = source.put("/here", redirect=there)
    limiter = FleetHostLimiter(session, lambda: 4)
    reads: list[str] = []
    read = hosts.watched_pause

    def counted(session: Session, host: str, *given: Any) -> tuple[hosts.Pause, threading.Event]:
        reads.append(host)
        return read(session, host, *given)

    monkeypatch.setattr(hosts, "watched_pause", counted)
    with HttpFetcher(settings) as process:
        fetcher = process.limited_by(limiter)
        assert {fetcher.read(url, 100) for _ in range(5)} == {b"content"}
    limiter.close()

    assert sorted(reads) == [source.place, f"127.1:{source.port}"]
