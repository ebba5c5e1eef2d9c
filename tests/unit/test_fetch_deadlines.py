"""Sources that send piece after piece and never end, in each part of an answer: no request waits for them."""

import socket
import threading
import time
from pathlib import Path

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.sources.fetch import HttpFetcher, probe
from pipeline.sources.limits import TooSlow
from pipeline.states import FailureKind
from tests.servers.hostile_source import BEFORE_THE_BODY, IN_THE_BODY, VARIANTS, HostileSource
from tests.servers.http_source import HttpSource
from tests.support.fetching import DownloadFactory, impatient, over_after

SILENT = 60.0
"""Seconds between two pieces: no byte arrives during the test."""

LEFT = 6
"""Seconds: two, and some for a busy machine. Nothing else ends a request before ten."""


def hasty(**overrides: float) -> HttpFetcher:
    return impatient(headers=0.4, window=0.4, **overrides)


@pytest.mark.parametrize("variant", BEFORE_THE_BODY)
def test_headers_that_never_end_are_given_up_after_their_time(
    a_download: DownloadFactory, variant: str
) -> None:
    with (
        HostileSource(variant, pause=0.05) as source,
        hasty() as fetcher,
        pytest.raises(TooSlow, match=r"has not answered within 0 seconds, redirects included") as fault,
    ):
        fetcher.download(a_download(source.url), UNATTENDED)
    assert fault.value.kind is FailureKind.TRANSIENT
    source.await_left(1)


@pytest.mark.parametrize("variant", IN_THE_BODY)
def test_a_body_whose_framing_drips_is_below_the_minimum_speed(
    a_download: DownloadFactory, variant: str
) -> None:
    with (
        HostileSource(variant, pause=0.05) as source,
        impatient(window=0.4) as fetcher,
        pytest.raises(TooSlow, match="ARKLINE_MIN_SPEED"),
    ):
        fetcher.download(a_download(source.url), UNATTENDED)
    source.await_left(1)


@pytest.mark.parametrize("variant", ["endless-body-without-length", "endless-chunk-size", "endless-trailers"])
def test_an_answer_ends_after_its_time_however_fast_it_arrives(
    a_download: DownloadFactory, variant: str
) -> None:
    with (
        HostileSource(variant, pause=0.05) as source,
        impatient(min_speed=0, answer=0.4) as fetcher,
        pytest.raises(TooSlow, match="has not ended within 0 seconds"),
    ):
        fetcher.download(a_download(source.url), UNATTENDED)


@pytest.mark.parametrize("pause", [0.05, SILENT])
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_attempt_that_is_over_leaves_a_source_within_two_seconds(
    a_download: DownloadFactory, variant: str, pause: float
) -> None:
    over = threading.Event()

    def end() -> None:
        source.await_request()
        ended.append(time.monotonic())
        over.set()

    ended: list[float] = []
    with HostileSource(variant, pause) as source, impatient() as fetcher:
        ending = threading.Thread(target=end)
        ending.start()
        with pytest.raises(AttemptOver):
            fetcher.download(a_download(source.url), over_after(over))
        ending.join()

        assert time.monotonic() - ended[0] < LEFT


@pytest.mark.parametrize("variant", ["endless-header", "endless-body", "endless-trailer"])
def test_a_document_that_never_ends_is_given_up(variant: str) -> None:
    with HostileSource(variant, pause=0.05) as source, hasty() as fetcher, pytest.raises(TooSlow):
        fetcher.read(source.url, 1_000_000)


@pytest.mark.parametrize("variant", BEFORE_THE_BODY)
def test_a_size_is_unknown_if_the_headers_never_end(variant: str) -> None:
    with HostileSource(variant, pause=0.05) as source, hasty() as fetcher:
        assert fetcher.size(source.url) is None
        assert probe(fetcher, source.url).transient


def test_all_redirects_of_a_request_share_its_time(source: HttpSource, a_download: DownloadFactory) -> None:
    for number in range(8):
        source.put(f"/{number}", redirect=f"/{number + 1}", delay=0.3)

    with impatient(headers=2) as fetcher, pytest.raises(TooSlow, match="redirects included"):
        fetcher.download(a_download(source.url("/0")), UNATTENDED)

    assert 1 < source.count() < 8


def test_a_pause_of_the_reader_is_no_slow_source(source: HttpSource, tmp_path: Path) -> None:
    """Between two responses no window of the minimum speed is measured."""
    with impatient(min_speed=1_000_000, window=0.1) as fetcher:
        for number in range(2):
            name = f"/{number}"
            fetcher.download(DownloadFactory(tmp_path / str(number))(source.put(name, b"a" * 10)), UNATTENDED)
            threading.Event().wait(0.2)


def test_a_host_that_takes_no_connection_is_left_within_two_seconds(a_download: DownloadFactory) -> None:
    """The queue of a listener that accepts nothing is full: the next connection is not answered."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        threading.Timer(0.5, over.set).start()
        began = time.monotonic()
        with impatient() as fetcher, pytest.raises((AttemptOver, StepFailed)) as raised:
            fetcher.download(a_download(f"http://127.0.0.1:{address[1]}/a"), over_after(over))
        for filler in fillers:
            filler.close()

    assert isinstance(raised.value, AttemptOver)
    assert time.monotonic() - began < LEFT
