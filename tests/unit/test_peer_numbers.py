"""Numbers, dates and URLs that a peer sends are finite and bounded before they are kept."""

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operations.deposits.submission import checked
from pipeline.attempt import UNATTENDED
from pipeline.errors import UsageRefused
from pipeline.fixity import LARGEST_FILE
from pipeline.http.service import http_date, retry_after
from pipeline.http.transfer import Headers, Response
from pipeline.http.urls import url_problem
from pipeline.outcome import LONGEST_RETRY_AFTER, StepFailed
from pipeline.sources.download import VALIDATOR_LENGTH, origin_of
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.response import content_length
from pipeline.states import FailureKind
from tests.servers.http_source import HttpSource
from tests.support.fetching import BODY, DownloadFactory

DATE = "Sun, 22 Nov 2026 10:00:00 "
STRANGE = (
    "9" * 400,
    "0" * 400 + "7",
    "1e400",
    "inf",
    "nan",
    "-1",
    "²",
    "٣",
    DATE + "+" + "9" * 30,
    DATE + "-9999",
    "Sun, 22 Nov 99999999999999999999 10:00:00 GMT",
    "Fri, 31 Dec 9999 23:59:59 -0100",
    "Mon, 01 Jan 0001 00:00:00 +2359",
    "Sun, 22 Nov 2026 " + "9" * 5000 + ":00:00 GMT",
    ",",
    "\x1b[2J",
)
VALUES = st.one_of(
    st.sampled_from(STRANGE),
    st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=60),
    st.from_regex(r"[A-Z][a-z]{2}, [0-9]{1,30} [A-Z][a-z]{2} [0-9]{1,30} [0-9:]{1,30} [+-]?[0-9A-Z]{1,30}"),
    st.integers().map(str),
)


def an_answer(**headers: str) -> Response:
    pairs = ((name.replace("_", "-"), value) for name, value in headers.items())
    status = 206 if "Content_Range" in headers else 200
    return Response(status, Headers(pairs), "http://example.org/a")


@given(VALUES)
def test_a_wait_that_a_server_asks_for_is_finite(value: str) -> None:
    seconds = retry_after(value)

    assert seconds is None or 0 <= seconds <= LONGEST_RETRY_AFTER


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("9" * 400, LONGEST_RETRY_AFTER),
        ("0" * 400 + "7", 7),
        ("Fri, 31 Dec 2100 23:59:59 GMT", LONGEST_RETRY_AFTER),
        ("Fri, 01 Jan 1999 00:00:00 GMT", 0),
        ("²", None),
        ("inf", None),
        ("nan", None),
        (DATE + "+" + "9" * 30, None),
    ],
)
def test_a_wait_without_sense_is_cut_or_ignored(value: str, seconds: float | None) -> None:
    assert retry_after(value) == seconds


@given(VALUES)
def test_a_date_is_a_moment_or_none(value: str) -> None:
    when = http_date(value)

    assert when is None or when.utcoffset() == timedelta(0)


@given(VALUES, VALUES, VALUES, VALUES)
def test_what_is_kept_of_the_headers_of_a_file_is_bounded(
    length: str, etag: str, modified: str, date: str
) -> None:
    for headers in ({"Content_Length": length}, {"Content_Range": f"bytes 0-1/{length}"}):
        answer = an_answer(ETag=f'"{etag}', Last_Modified=modified, Date=date, **headers)
        with suppress(StepFailed):
            origin = origin_of("http://example.org/a", answer)
            assert origin.total is None or 0 <= origin.total <= LARGEST_FILE
            assert len(origin.validator) <= VALIDATOR_LENGTH
            assert origin.validator.isprintable()


@pytest.mark.parametrize("stated", ["9" * 5000, "9" * 20, str(LARGEST_FILE + 1)])
def test_a_length_that_no_file_has_is_the_depositors(stated: str) -> None:
    with pytest.raises(StepFailed, match="which no file has: have the source corrected") as failure:
        content_length(an_answer(Content_Length=stated))

    assert failure.value.kind is FailureKind.CONTENT
    assert len(failure.value.message) < 200


@pytest.mark.parametrize("length", ["9" * 5000, "9" * 20, str(1 << 63)])
def test_a_file_whose_length_is_senseless_is_refused_and_its_size_is_unknown(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory, length: str
) -> None:
    url = source.put("/a", BODY, framing="close", headers=(("Content-Length", length),))

    assert fetcher.size(url) is None
    with pytest.raises(StepFailed, match="as its length"):
        fetcher.download(a_download(url), UNATTENDED)


@pytest.mark.parametrize("host", ["..", ".", "a..b", "-" * 64 + ".org", ".".join(["a" * 60] * 5)])
def test_a_host_that_cannot_exist_is_refused_before_a_request(
    fetcher: HttpFetcher, a_download: DownloadFactory, host: str
) -> None:
    with pytest.raises(StepFailed, match="names a host that cannot exist") as failure:
        fetcher.download(a_download(f"http://{host}/x"), UNATTENDED)

    assert failure.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize("url", ["http://example.org./x", "http://[::1]/x", "http://localhost/x"])
def test_a_host_that_may_exist_is_accepted(url: str) -> None:
    assert url_problem(url) is None


@pytest.mark.parametrize(
    "target",
    ["http://../x", "http://[", "http://[::1", "http://a:99999/", "http://a:x/", "http://" + "a" * 300],
)
def test_a_redirect_to_what_is_no_url_is_the_depositors(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory, target: str
) -> None:
    with pytest.raises(StepFailed) as failure:
        fetcher.download(a_download(source.put("/a", redirect=target)), UNATTENDED)

    assert failure.value.kind is FailureKind.CONTENT
    assert source.count("/a") == 1


def test_a_reason_phrase_is_shown_without_escapes_and_cut(
    fetcher: HttpFetcher, source: HttpSource, a_download: DownloadFactory
) -> None:
    url = source.put("/a", status=499, reason="\x1b[31m" + "x" * 5000)

    with pytest.raises(StepFailed, match=r"answered 499 '\\u001b\[31mx+\.\.\.'") as failure:
        fetcher.download(a_download(url), UNATTENDED)

    assert failure.value.message.isprintable()
    assert len(failure.value.message) < 400


@pytest.mark.parametrize("size", [LARGEST_FILE + 1, 10**400])
def test_a_deposit_whose_declared_size_no_file_has_is_refused(size: int) -> None:
    values = {"profile_name": "demo", "payload_url": "https://example.org/a", "type": "file", "size": size}

    with pytest.raises(UsageRefused, match="size: no file has"):
        checked(values)
    assert checked({**values, "size": LARGEST_FILE}).size == LARGEST_FILE
