import gzip
import hashlib
import threading
import time
from pathlib import Path

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.http.transfer import Headers, Response
from pipeline.outcome import StepFailed
from pipeline.sources.download import Download
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.limits import HostLimiter
from pipeline.sources.response import offered_name
from pipeline.states import FailureKind
from tests.servers.http_source import HttpSource
from tests.servers.raw_answer import RawAnswer
from tests.support.fetching import BODY, DownloadFactory, assert_downloaded, sha256


@pytest.mark.parametrize("ranges", [True, False])
def test_the_size_is_asked_by_get_and_for_one_byte(
    fetcher: HttpFetcher, source: HttpSource, ranges: bool
) -> None:
    assert fetcher.size(source.put("/a", BODY, ranges=ranges)) == len(BODY)
    assert [(asked.method, asked.headers["Range"]) for asked in source.seen()] == [("GET", "bytes=0-0")]


def test_the_size_of_an_empty_file_is_0(fetcher: HttpFetcher, source: HttpSource) -> None:
    assert fetcher.size(source.put("/a", b"")) == 0


def test_a_source_that_refuses_a_range_is_asked_for_the_whole(fetcher: HttpFetcher) -> None:
    with RawAnswer() as server:
        server.answers = [
            b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 4711\r\n\r\n",
        ]
        assert fetcher.size(f"{server.url}/a") == 4711


def test_sizes_of_small_files_are_asked_on_one_connection(fetcher: HttpFetcher, source: HttpSource) -> None:
    urls = [source.put(f"/{number}", BODY) for number in range(5)]

    assert [fetcher.size(url) for url in urls] == [len(BODY)] * 5
    assert len(source.peers) == 1


def test_the_size_is_that_of_what_a_redirect_leads_to(fetcher: HttpFetcher, source: HttpSource) -> None:
    source.put("/there", BODY)

    assert fetcher.size(source.put("/here", redirect="/there")) == len(BODY)


def test_a_size_that_is_not_told_is_unknown(fetcher: HttpFetcher, source: HttpSource) -> None:
    assert fetcher.size(source.put("/a", BODY, framing="chunked", ranges=False)) is None


@pytest.mark.parametrize("status", [404, 500, 503])
def test_a_source_that_fails_has_an_unknown_size(
    fetcher: HttpFetcher, source: HttpSource, status: int
) -> None:
    assert fetcher.size(source.put("/a", status=status)) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/a",
        "ftp://example.org/a",
        "http://10.0.0.1/a",
        "::",
        "http://sources.example.org:99999/a",
    ],
)
def test_a_size_that_cannot_be_asked_is_unknown(fetcher: HttpFetcher, url: str) -> None:
    assert fetcher.size(url) is None


# --- read


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_a_document_is_read_whole(fetcher: HttpFetcher, source: HttpSource, framing: str) -> None:
    assert fetcher.read(source.put("/m", b"#%checkm\n", framing=framing), 100) == b"#%checkm\n"


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_document_over_the_limit_is_refused_with_both_sizes(
    fetcher: HttpFetcher, source: HttpSource, framing: str
) -> None:
    url = source.put("/m", b"x" * 1001, framing=framing)

    with pytest.raises(StepFailed, match=r"1,00\d bytes( or more)?, but the limit is 1,000") as failure:
        fetcher.read(url, 1000)

    assert failure.value.kind is FailureKind.CONTENT


def test_a_document_is_asked_for_again_after_a_passing_fault(
    fetcher: HttpFetcher, source: HttpSource
) -> None:
    assert fetcher.read(source.put("/m", b"whole", cut_after=2, cuts=2), 100) == b"whole"


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_a_file_arrives_with_its_digest_of_record(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory, framing: str
) -> None:
    url = source.put("/a", BODY, framing=framing)

    downloaded_file = fetcher.download(a_download(url, sha256(BODY), len(BODY)), UNATTENDED)

    assert downloaded_file.size == len(BODY)
    assert downloaded_file.sha512 == hashlib.sha512(BODY).hexdigest()
    assert_downloaded(a_download)


def test_an_empty_file_arrives(fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory) -> None:
    assert fetcher.download(a_download(source.put("/a", b""), sha256(b""), 0), UNATTENDED).size == 0
    assert_downloaded(a_download, b"")


def test_bytes_are_asked_for_unpacked(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    fetcher.download(a_download(source.put("/a", BODY)), UNATTENDED)

    assert source.seen("/a")[0].headers["Accept-Encoding"] == "identity"


def test_a_file_sent_packed_is_refused_unless_its_digest_is_declared(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a.txt", BODY, headers=(("Content-Encoding", "gzip"),))

    with pytest.raises(StepFailed, match="Content-Encoding: 'gzip'"):
        fetcher.download(a_download(url), UNATTENDED)

    fetcher.download(a_download(url, sha256(BODY)), UNATTENDED)
    assert_downloaded(a_download)


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("declared", ["digest", "size", "both"])
def test_a_packed_answer_is_named_where_digest_or_size_of_the_file_were_declared(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory, framing: str, declared: str
) -> None:
    packed, coding = gzip.compress(BODY), (("Content-Encoding", "GZip"),)
    url = source.put("/a.txt", packed, headers=coding, framing=framing)
    digest = sha256(BODY) if declared != "size" else None
    size = {"digest": None, "size": 10, "both": len(BODY)}[declared]

    with pytest.raises(StepFailed, match="Content-Encoding: 'gzip'") as refusal:
        fetcher.download(a_download(url, digest, size), UNATTENDED)

    assert refusal.value.kind is FailureKind.CONTENT
    assert source.count("/a.txt") == 1
    assert not a_download.target.exists()


@pytest.mark.parametrize("coding", ["identity", "UTF-8", "binary", "none", "aws-chunked"])
def test_a_word_that_names_no_coding_is_no_coding(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory, coding: str
) -> None:
    url = source.put("/a.txt", BODY, headers=(("Content-Encoding", coding),))
    fetcher.download(a_download(url), UNATTENDED)

    assert_downloaded(a_download)


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        ("attachment; filename=a.zip", "a.zip"),
        ('inline;FileName = "a b;c.zip" ; size=1', "a b;c.zip"),
        ("attachment; filename=\"no.zip\"; filename*=UTF-8''%e2%82%ac%20rates.zip", "\u20ac rates.zip"),
        ("attachment; filename*=iso-8859-1'en'%A3.zip", "\u00a3.zip"),
        ("attachment; filename*=UTF-8''%ff.zip; filename=a.zip", "a.zip"),
        ("attachment; filename*=utf-16''%00a; filename=a.zip", "a.zip"),
        ('attachment; filename="\\"a\\".zip"', '"a".zip'),
        ('attachment; filename="C:\\\\Files\\\\a.zip"', "a.zip"),
        ('attachment; filename="../../etc/a.zip"', "a.zip"),
        ('attachment; filename="caf\u00c3\u00a9.zip"', "caf\u00e9.zip"),
        ('attachment; filename="caf\u00e9.zip"', "caf\u00e9.zip"),
        ('attachment; filename=" a\u0085.zip "', "a.zip"),
        ('attachment; filename="%20a.zip"', "%20a.zip"),
        ('filename="a.zip"', "a.zip"),
        ('attachment; filename=".."', ""),
        ('attachment; filename="a/"', ""),
        (f"attachment; filename={'a' * 256}", ""),
        ('attachment; filename="a.zip', "a.zip"),
        ("attachment; filename*=utf8''caf%C3%A9.zip", "caf\u00e9.zip"),
        ("attachment; filename*=UTF-8'caf%C3%A9.zip", "caf\u00e9.zip"),
        ("attachment; filename*=windows-1252''%80.zip", "\u20ac.zip"),
        ("attachment; filename*=UTF-8''1.00%E2%80%AFPM.png", "1.00\u202fPM.png"),
        ("attachment; filename*=UTF-8''%E6%9D%B1%E3%80%80%E4%BA%AC.pdf", "\u6771\u3000\u4eac.pdf"),
        ("attachment; filename*=UTF-8''%D9%85%E2%80%8C%D8%AE.pdf", "\u0645\u200c\u062e.pdf"),
        ("attachment; filename*=UTF-8''a%E2%80%AEb.pdf", "ab.pdf"),
        ('attachment; filename="=?UTF-8?B?Y2Fmw6kucGRm?="', "caf\u00e9.pdf"),
        ('attachment; filename="=?utf-8?Q?caf=C3=A9.pdf?="', "caf\u00e9.pdf"),
        ('attachment; filename="=?no-charset?Q?a?="', "=?no-charset?Q?a?="),
        ("attachment", ""),
        ("", ""),
    ],
)
def test_the_name_of_content_disposition_is_read_and_cleaned(stated: str, name: str) -> None:
    response = Response(200, Headers([("Content-Disposition", stated)]), "http://example.org/4711")

    assert offered_name(response) == name


def test_a_name_of_many_unended_encoded_words_is_read_in_little_time() -> None:
    stated = f"attachment; filename={'=?a?q? ' * 8_000}"
    began = time.perf_counter()

    assert offered_name(Response(200, Headers([("Content-Disposition", stated)]), "http://x.org/a")) == ""
    assert time.perf_counter() - began < 1


NAMED_TGZ = ("Content-Disposition", "attachment; filename=a.tgz")


@pytest.mark.parametrize(
    ("path", "redirected", "headers"),
    [("/a.tar.gz", "", ()), ("/4711", "", (NAMED_TGZ,)), ("/a.tar.gz", "/4711", ())],
)
def test_a_file_that_is_packed_in_itself_is_kept_as_it_is(
    path: str,
    redirected: str,
    headers: tuple[tuple[str, str], ...],
    fetcher: HttpFetcher,
    source: HttpSource,
    a_download: DownloadFactory,
) -> None:
    url = source.put(path, BODY, headers=(("Content-Encoding", "x-gzip"), *headers))
    fetcher.download(a_download(source.put(redirected, redirect=url) if redirected else url), UNATTENDED)

    assert_downloaded(a_download)


def test_several_threads_share_a_fetcher(fetcher: HttpFetcher, source: HttpSource, tmp_path: Path) -> None:
    bodies = {f"/{number}": bytes([number]) * 100_000 for number in range(16)}
    threads = [
        threading.Thread(
            target=fetcher.download,
            args=(
                Download(source.put(path, body), tmp_path / path[1:], tmp_path / f"{path[1:]}.part"),
                UNATTENDED,
            ),
        )
        for path, body in bodies.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all((tmp_path / path[1:]).read_bytes() == body for path, body in bodies.items())


class NotedPauses(HostLimiter):
    """The hosts that asked for a pause."""

    def __init__(self) -> None:
        self.hosts: list[str] = []

    def back_off(self, host: str, seconds: float, cause: str = "") -> None:
        assert (seconds, cause) == (1, "503 Service Unavailable, Retry-After 1 s")
        self.hosts.append(host)


def test_a_pause_behind_a_redirect_is_of_the_host_that_answered(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    """A resolver names the host that has the content; other hosts behind it are not to wait."""
    busy = source.put("/there", BODY, status=503, retry_after="1")
    resolver = source.put("/here", redirect=busy.replace("127.0.0.1", "127.1"))
    noted = NotedPauses()
    limited = fetcher.limited_by(noted)

    with pytest.raises(StepFailed, match="503") as failure:
        limited.download(a_download(resolver), UNATTENDED)
    assert limited.size(resolver) is None

    assert failure.value.retry_after == 1
    assert set(noted.hosts) == {f"127.1:{source.port}"}
