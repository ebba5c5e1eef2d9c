import errno
import os
import re
import resource
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.file_system import host_lacks
from pipeline.http.service import retry_after
from pipeline.http.session import REDIRECTS
from pipeline.outcome import Later, Service, ServiceDown, StepFailed, WaitKind
from pipeline.sources.fetch import HttpFetcher
from pipeline.states import FailureKind
from tests.servers.http_source import HttpSource
from tests.servers.raw_answer import RawAnswer
from tests.support.fetching import BODY, DownloadFactory, assert_downloaded, impatient, sha256


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
def test_a_refusal_names_the_url_and_is_not_tried_again(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory, status: int
) -> None:
    url = source.put("/a", status=status)

    with pytest.raises(StepFailed, match=f"{url}: the source answered {status}") as failure:
        fetcher.download(a_download(url), UNATTENDED)

    assert failure.value.kind is FailureKind.CONTENT
    assert source.count("/a") == 1


@pytest.mark.parametrize("status", [408, 500, 502, 504])
def test_a_passing_refusal_is_tried_again(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory, status: int
) -> None:
    fetcher.download(a_download(source.put("/a", BODY, status=status, status_times=2)), UNATTENDED)

    assert_downloaded(a_download)


def test_a_refusal_that_does_not_pass_is_transient(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", status=502)

    with pytest.raises(StepFailed, match="502 Bad Gateway") as failure:
        fetcher.download(a_download(url), UNATTENDED)

    assert failure.value.kind is FailureKind.TRANSIENT
    assert source.count("/a") == 3


@pytest.mark.parametrize("status", [429, 503])
def test_a_source_that_asks_for_little_time_is_given_it(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory, status: int
) -> None:
    asked = datetime.now(UTC)
    fetcher.download(
        a_download(source.put("/a", BODY, status=status, status_times=1, retry_after="1")), UNATTENDED
    )

    assert datetime.now(UTC) - asked >= timedelta(seconds=1)
    assert_downloaded(a_download)


def test_a_source_that_asks_for_much_time_sends_the_job_back_with_it(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", status=429, retry_after="600")

    with pytest.raises(StepFailed) as failure:
        fetcher.download(a_download(url), UNATTENDED)

    assert (failure.value.kind, failure.value.retry_after) == (FailureKind.TRANSIENT, 600)
    assert source.count("/a") == 1


def test_retry_after_may_be_a_date() -> None:
    assert (
        50 < (retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)) or 0) <= 60
    )


@pytest.mark.parametrize("value", [None, "", "soon"])
def test_a_retry_after_that_says_nothing_is_none(value: str | None) -> None:
    assert retry_after(value) is None


def test_a_connection_that_is_refused_is_transient(fetcher: HttpFetcher, a_download: DownloadFactory) -> None:
    with HttpSource() as gone:
        url = gone.url("/a")

    with pytest.raises(StepFailed, match="connection was refused") as failure:
        fetcher.download(a_download(url), UNATTENDED)

    assert failure.value.kind is FailureKind.TRANSIENT


def test_a_lack_of_descriptors_is_the_fault_of_the_workers_host_and_not_of_the_source(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    wanted = a_download(source.put("/a", BODY))
    wanted.part.parent.mkdir(parents=True)
    assert fetcher.size("http://127.0.0.1:9/a") is None  # the fetcher has read its files
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))  # one descriptor, which the part takes
    try:
        with pytest.raises(ServiceDown, match="lacks descriptors") as fault:
            fetcher.download(wanted, UNATTENDED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert (fault.value.service, fault.value.of_host) == (Service.WORKER_HOST, True)
    assert source.count() == 0


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN])
def test_a_lack_of_the_workers_host_is_an_outage_of_it(code: int) -> None:
    with pytest.raises(ServiceDown) as outage, host_lacks():
        raise OSError(code, os.strerror(code))

    assert outage.value.service is Service.WORKER_HOST


def test_a_source_that_falls_silent_is_transient(source: HttpSource, a_download: DownloadFactory) -> None:
    hold = threading.Event()
    url = source.put("/a", BODY, hold=hold)

    with (
        impatient(read_timeout=0.2) as fetcher,
        pytest.raises(StepFailed, match="timeout while waiting for bytes") as failure,
    ):
        fetcher.download(a_download(url), UNATTENDED)

    hold.set()
    assert failure.value.kind is FailureKind.TRANSIENT


def test_endless_redirects_are_the_depositors(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    with pytest.raises(StepFailed, match=f"more than {REDIRECTS} times") as failure:
        fetcher.download(a_download(source.put("/a", redirect="/a")), UNATTENDED)

    assert failure.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize(
    "headers", [(("X-Long", "x" * 70_000),), tuple((f"X-{number}", "x") for number in range(120))]
)
def test_headers_that_are_too_large_are_the_depositors(
    fetcher: HttpFetcher,
    source: HttpSource,
    a_download: DownloadFactory,
    headers: tuple[tuple[str, str], ...],
) -> None:
    with pytest.raises(StepFailed, match="headers that are too large") as failure:
        fetcher.download(a_download(source.put("/a", BODY, headers=headers)), UNATTENDED)

    assert failure.value.kind is FailureKind.CONTENT
    assert source.count("/a") == 1


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "it states no number, or two, as its length",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "its body is coded for the transfer",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
            "its body is not in chunks",
        ),
        (b"HTTP/1.1 200 OK\r\nno header\r\n\r\n", "a line is no header"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "it says 'SSH-2.0-OpenSSH_9.6'; check host and port"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "write https:// instead of http://"),
        (
            b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html>"
            b"The plain HTTP request was sent to HTTPS port",
            "write https:// instead of http://",
        ),
        (
            b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
            "write https:// instead of http://",
        ),
    ],
)
def test_an_answer_that_no_second_request_would_change_is_refused_at_once_with_its_cause(
    fetcher: HttpFetcher, a_download: DownloadFactory, answer: bytes, cause: str
) -> None:
    with RawAnswer() as server:
        server.answer = answer
        with pytest.raises(StepFailed, match=re.escape(cause)) as refusal:
            fetcher.download(a_download(f"{server.url}/a"), UNATTENDED)

    assert refusal.value.kind is FailureKind.CONTENT
    assert refusal.value.message.startswith(f"{server.url}/a: ")
    assert len(server.asked) == 1


def test_chunks_count_where_a_length_is_stated_too(fetcher: HttpFetcher, a_download: DownloadFactory) -> None:
    with RawAnswer() as server:
        server.answer = (
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\nhello\r\n0\r\n\r\n"
        )
        fetcher.download(a_download(f"{server.url}/a", sha256(b"hello")), UNATTENDED)

    assert_downloaded(a_download, b"hello")


def test_https_to_a_port_that_speaks_http_is_refused_at_once_in_words(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", BODY).replace("http:", "https:")

    with pytest.raises(StepFailed, match=r"this port does not speak https: .* write http://") as refusal:
        fetcher.download(a_download(url), UNATTENDED)

    assert refusal.value.kind is FailureKind.CONTENT


def test_another_size_than_declared_fails_before_the_bytes_are_fetched(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    hold = threading.Event()  # never set: the body would not come
    url = source.put("/a", BODY, hold=hold)

    with pytest.raises(StepFailed, match=r"has 5,120,000 bytes, but 7 were declared") as failure:
        fetcher.download(a_download(url, size=7), UNATTENDED)

    hold.set()
    assert failure.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize("size", [7, 6_000_000])
def test_another_size_than_declared_fails_though_the_source_does_not_tell_it(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory, size: int
) -> None:
    with pytest.raises(StepFailed, match=f"{size:,} were declared") as failure:
        fetcher.download(a_download(source.put("/a", BODY, framing="chunked"), size=size), UNATTENDED)

    assert failure.value.kind is FailureKind.CONTENT
    assert not a_download.target.exists()


def test_a_body_shorter_than_its_stated_length_is_never_taken_for_whole(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    with pytest.raises(StepFailed) as failure:
        fetcher.download(a_download(source.put("/a", BODY, stated_length=len(BODY) + 1)), UNATTENDED)

    assert failure.value.kind is FailureKind.TRANSIENT
    assert not a_download.target.exists()


def test_a_wrong_digest_is_fetched_once_more_and_then_refused_with_both_values(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    declared = sha256(b"other")

    with pytest.raises(StepFailed) as failure:
        fetcher.download(a_download(source.put("/a", BODY), declared), UNATTENDED)

    message = failure.value.message
    assert failure.value.kind is FailureKind.CONTENT
    assert all(word in message for word in ("a.bin", "sha256", declared.value, sha256(BODY).value))
    assert source.count("/a") == 2
    assert not a_download.target.exists()
    assert not a_download.part.exists()


def test_bytes_damaged_on_the_way_are_fetched_again(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", BODY)
    damaged = b"\0" * len(BODY)
    source.put("/a", damaged, hold=(first := threading.Event()))

    def repair() -> None:
        source.await_request("/a")
        source.put("/a", BODY)
        first.set()

    repairing = threading.Thread(target=repair)
    repairing.start()
    fetcher.download(a_download(url, sha256(BODY)), UNATTENDED)
    repairing.join()

    assert source.count("/a") == 2
    assert_downloaded(a_download)


def test_full_working_storage_is_waited_for_and_leaves_no_part(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    a_download.part.parent.mkdir()
    a_download.part.symlink_to("/dev/full")

    with pytest.raises(Later, match="working storage is full") as failure:
        fetcher.download(a_download(source.put("/a", BODY)), UNATTENDED)

    assert failure.value.kind is WaitKind.SPACE
    assert not a_download.part.is_symlink()
