import hashlib
import threading
from datetime import UTC, datetime, timedelta

import pytest

from pipeline.attempt import UNATTENDED, CheckedAttempt, Progress
from pipeline.outcome import AttemptOver, StepFailed, Stopping
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.limits import NO_LIMIT
from pipeline.states import FailureKind
from tests.servers.http_source import HttpSource
from tests.servers.raw_answer import RawAnswer
from tests.support.fetching import (
    BODY,
    DownloadFactory,
    PartSize,
    assert_downloaded,
    impatient,
    over_after,
    sha256,
)


def test_a_broken_download_goes_on_where_it_broke(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", BODY, cut_after=1_500_000, cuts=1)

    downloaded_file = fetcher.download(a_download(url, sha256(BODY)), UNATTENDED)

    first, second = source.seen("/a")
    assert "Range" not in first.headers
    assert second.headers["Range"] == "bytes=1500000-"
    assert second.headers["If-Range"].startswith('"')
    assert downloaded_file.sha512 == hashlib.sha512(BODY).hexdigest()
    assert_downloaded(a_download)


def test_a_source_without_etag_is_resumed_by_its_date(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", BODY, cut_after=1_500_000, cuts=1, etag=None)

    fetcher.download(a_download(url, sha256(BODY)), UNATTENDED)

    assert "GMT" in source.seen("/a")[1].headers["If-Range"]
    assert_downloaded(a_download)


def test_two_contents_of_one_date_are_never_mixed_without_a_digest(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    """Neither in one attempt, nor by the attempt that finds the part of an earlier one."""
    first, other = BODY, BODY[::-1]
    hold = threading.Event()
    url = source.put("/a", first, etag=None, cut_after=3_000_001, hold=hold, hold_after=3_000_000)

    def change() -> None:
        source.await_request("/a")
        source.put("/a", other, etag=None)
        hold.set()

    changing = threading.Thread(target=change)
    changing.start()
    fetcher.download(a_download(url), UNATTENDED)
    changing.join()
    assert "Range" not in source.seen("/a")[-1].headers
    assert_downloaded(a_download, other)

    source.put("/a", first, etag=None)
    with pytest.raises(AttemptOver):
        fetcher.download(a_download(url), over_after(PartSize(a_download.part, 2_000_000)))
    source.put("/a", other, etag=None)
    fetcher.download(a_download(url), UNATTENDED)

    assert "Range" not in source.seen("/a")[-1].headers
    assert_downloaded(a_download, other)


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_a_source_that_names_no_version_is_asked_for_the_whole_again(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory, etag: str | None
) -> None:
    url = source.put("/a", BODY, cut_after=1_500_000, cuts=1, etag=etag, last_modified=None)

    fetcher.download(a_download(url), UNATTENDED)

    assert "Range" not in source.seen("/a")[1].headers
    assert_downloaded(a_download)


def test_a_source_that_ignores_ranges_is_read_from_the_start(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    fetcher.download(
        a_download(source.put("/a", BODY, cut_after=1_500_000, cuts=1, ranges=False)), UNATTENDED
    )

    assert_downloaded(a_download)


def test_progress_gives_new_tries(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    fetcher.download(a_download(source.put("/a", BODY, cut_after=600_000)), UNATTENDED)

    assert source.count("/a") == 9
    assert_downloaded(a_download)


def test_a_source_that_answers_less_than_was_asked_is_asked_for_the_rest(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    fetcher.download(
        a_download(source.put("/a", BODY, range_limit=2_000_000, cut_after=1_500_000, cuts=1)), UNATTENDED
    )

    assert_downloaded(a_download)


def test_a_source_that_always_breaks_at_the_same_place_is_given_up(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", BODY, cut_after=1000, ranges=False)

    with pytest.raises(StepFailed, match="ended early") as failure:
        fetcher.download(a_download(url), UNATTENDED)

    assert failure.value.kind is FailureKind.TRANSIENT
    assert source.count("/a") == 4  # one that got somewhere, then settings.fetch_tries that got no further
    assert not a_download.target.exists()


def test_a_file_that_changed_between_two_tries_is_fetched_whole(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    hold = threading.Event()
    url = source.put("/a", BODY, hold=hold, hold_after=1_500_000)
    other = BODY[::-1][: len(BODY) // 2]

    def change() -> None:
        source.await_request("/a")
        source.put("/a", other)
        hold.set()

    changing = threading.Thread(target=change)
    source.change("/a", cut_after=1_500_001)
    changing.start()
    fetcher.download(a_download(url), UNATTENDED)
    changing.join()

    assert_downloaded(a_download, other)


def test_a_file_that_became_shorter_than_what_is_here_is_fetched_whole(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", BODY, cut_after=3_000_000, cuts=1, etag='"same"')
    with pytest.raises(AttemptOver):
        fetcher.download(a_download(url), over_after(PartSize(a_download.part, 2_000_000)))
    source.put("/a", b"short", etag='"same"')

    fetcher.download(a_download(url), UNATTENDED)

    assert_downloaded(a_download, b"short")


def test_a_partial_download_is_continued(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", BODY)
    with pytest.raises(AttemptOver):
        fetcher.download(a_download(url), over_after(PartSize(a_download.part, 2_000_000)))
    left = a_download.part.stat().st_size
    assert 2_000_000 <= left < len(BODY)

    downloaded_file = fetcher.download(a_download(url, sha256(BODY)), UNATTENDED)

    assert source.seen("/a")[-1].headers["Range"] == f"bytes={left}-"
    assert downloaded_file.sha512 == hashlib.sha512(BODY).hexdigest()
    assert_downloaded(a_download)


def test_a_part_of_unknown_origin_is_not_gone_on_with(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    a_download.part.parent.mkdir()
    a_download.part.write_bytes(b"something else")

    fetcher.download(a_download(source.put("/a", BODY)), UNATTENDED)

    assert_downloaded(a_download)


def test_a_part_of_another_url_is_not_gone_on_with(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    with pytest.raises(AttemptOver):
        fetcher.download(
            a_download(source.put("/b", BODY[::-1])), over_after(PartSize(a_download.part, 2_000_000))
        )

    fetcher.download(a_download(source.put("/a", BODY)), UNATTENDED)

    assert_downloaded(a_download)


def test_an_attempt_that_is_over_stops_between_two_pieces(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    with pytest.raises(AttemptOver):
        fetcher.download(a_download(source.put("/a", BODY)), over_after(PartSize(a_download.part, 1_000_000)))

    assert not a_download.target.exists()


def test_an_attempt_that_is_over_does_not_wait_for_a_source(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    over = threading.Event()
    url = source.put("/a", status=503, retry_after="25")

    def end() -> None:
        source.await_request("/a")
        over.set()

    ending = threading.Thread(target=end)
    ending.start()
    began = datetime.now(UTC)

    with pytest.raises(AttemptOver):
        fetcher.download(a_download(url), over_after(over))

    ending.join()
    assert datetime.now(UTC) - began < timedelta(seconds=10)


def test_an_attempt_that_is_over_puts_nothing_in_place(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    over = threading.Event()

    def report(progress: Progress) -> None:
        if progress.bytes == len(BODY):
            over.set()

    with pytest.raises(AttemptOver):
        fetcher.download(a_download(source.put("/a", BODY)), CheckedAttempt(over_after(over).check, report))

    assert not a_download.target.exists()


def test_a_source_below_the_minimum_speed_is_a_fault_that_is_not_repeated_at_once(
    source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", BODY, piece=1, pause=0.05)

    with (
        impatient(min_speed=1000, window=0.3) as slow,
        pytest.raises(StepFailed, match="less than the minimum of 1,000"),
    ):
        slow.download(a_download(url, sha256(BODY)), UNATTENDED)

    assert source.count("/a") == 1
    assert a_download.part.stat().st_size > 0


def test_a_download_that_no_later_attempt_can_continue_is_not_handed_back_after_its_turn(
    source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", BODY, piece=200_000, pause=0.05, etag=None)

    with impatient(turn=0.2) as fetcher:
        fetcher.download(a_download(url), UNATTENDED)

    assert_downloaded(a_download)


def test_a_download_that_is_asked_to_yield_is_handed_back_once_it_can_be_continued(
    source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", BODY, piece=200_000)
    asked = CheckedAttempt(lambda: None, yields=lambda: a_download.part.stat().st_size > 1_500_000)

    with impatient() as fetcher, pytest.raises(Stopping, match="another submitter"):
        fetcher.download(a_download(url, sha256(BODY)), asked)
    with impatient() as fetcher:
        fetcher.download(a_download(url, sha256(BODY)), UNATTENDED)

    assert "Range" in source.seen("/a")[-1].headers
    assert_downloaded(a_download)


def test_a_download_longer_than_its_turn_is_handed_back_and_continued_by_range(
    source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", BODY, piece=200_000, pause=0.05)
    turns = 0
    with impatient(turn=0.4) as fetcher:
        while not a_download.target.exists():
            turns += 1
            assert turns < 30
            try:
                fetcher.limited_by(NO_LIMIT).download(a_download(url, sha256(BODY)), UNATTENDED)
            except Stopping:
                continue

    later = source.seen("/a")[1:]
    assert turns > 1
    assert later != []
    assert all("Range" in request.headers for request in later)
    assert_downloaded(a_download)


@pytest.mark.parametrize("unit", ["bytes ", "Bytes ", "bytes="])
def test_a_file_is_continued_however_the_source_writes_the_unit_of_its_range(
    unit: str, fetcher: HttpFetcher, a_download: DownloadFactory
) -> None:
    with RawAnswer() as server:
        server.answers = [b'HTTP/1.1 200 OK\r\nETag: "a"\r\nContent-Length: 10\r\n\r\nhello']
        server.answer = (
            f'HTTP/1.1 206 Rest\r\nETag: "a"\r\nContent-Range: {unit}5-9/10\r\nContent-Length: 5\r\n\r\nworld'
        ).encode()
        fetcher.download(a_download(f"{server.url}/a"), UNATTENDED)

        assert len(server.asked) == 2
    assert_downloaded(a_download, b"helloworld")


def test_a_range_that_was_not_asked_for_is_read_if_it_is_the_whole_file(
    fetcher: HttpFetcher, a_download: DownloadFactory
) -> None:
    with RawAnswer() as server:
        server.answer = b"HTTP/1.1 206 All\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\n\r\nhello"
        fetcher.download(a_download(f"{server.url}/a"), UNATTENDED)

    assert_downloaded(a_download, b"hello")


@pytest.mark.parametrize("stated", ["bytes 0-4/50", "bytes 1-5/6", "bytes 0-4/*", ""])
def test_a_range_that_was_not_asked_for_and_is_a_part_is_refused(
    stated: str, fetcher: HttpFetcher, a_download: DownloadFactory
) -> None:
    with RawAnswer() as server:
        server.answer = (
            f"HTTP/1.1 206 Part\r\nContent-Range: {stated}\r\nContent-Length: 5\r\n\r\nhello"
        ).encode()
        with pytest.raises(StepFailed, match="answered 206 Partial Content"):
            fetcher.download(a_download(f"{server.url}/a"), UNATTENDED)
