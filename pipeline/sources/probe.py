"""Probing a source before anything is fetched: does it answer, how large is the file, how fast is it."""

import time
from dataclasses import dataclass

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.http.urls import check_url
from pipeline.outcome import StepFailed
from pipeline.sources.fetch import HttpFetcher
from pipeline.sources.response import body_chunks, require_status, source_size
from pipeline.states import FailureKind
from pipeline.upload_url import is_upload

SAMPLE_BYTES = 8 << 20
"""Bytes of a file that are read at most to measure the speed of its source."""

SAMPLE_SECONDS = 3.0
"""Seconds that reading them may take."""

SAMPLE_WITHIN = 30.0
"""Seconds that the request and the sample may take together."""


@dataclass(frozen=True)
class ProbeResult:
    """The result for one URL: the size of the file if the source reports it, or why a download would fail."""

    url: str
    seconds: float
    size: int | None = None
    failure: str = ""
    transient: bool = False
    """The failure may pass: a download would be retried."""


@dataclass(frozen=True)
class Sample:
    """Bytes that arrived, and the seconds taken, on one connection."""

    bytes: int
    seconds: float


def probe(fetcher: HttpFetcher, url: str, attempt: Attempt = UNATTENDED) -> ProbeResult:
    """Whether the source answers one request, and the size that it says the file has."""
    start = time.monotonic()
    size: int | None = None
    failure, transient = "", False
    try:
        check_url(url)
        if is_upload(url):
            return ProbeResult(url, time.monotonic() - start, fetcher.size(url, attempt))
        size = source_size(url, lambda headers: fetcher.request(url, attempt, headers))
    except StepFailed as failed:
        failure, transient = failed.message, failed.kind is FailureKind.TRANSIENT
    return ProbeResult(url, time.monotonic() - start, size, failure, transient)


def sample(fetcher: HttpFetcher, url: str, attempt: Attempt = UNATTENDED) -> Sample | None:
    """How fast the beginning of a file arrives; None if it does not, or comes from no host."""
    if is_upload(url):
        return None
    try:
        with fetcher.request(url, attempt, within=SAMPLE_WITHIN) as response:
            require_status(response, url, 200)
            start = time.monotonic()
            size, seconds = 0, 0.0
            for chunk in body_chunks(response, url):
                size += len(chunk)
                seconds = time.monotonic() - start
                if size >= SAMPLE_BYTES or seconds >= SAMPLE_SECONDS:
                    break
    except StepFailed:
        return None
    return Sample(size, seconds) if size and seconds > 0 else None
