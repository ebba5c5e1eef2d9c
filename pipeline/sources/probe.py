"""Probing a source before anything is fetched: does it answer, how large is the file, how fast is it."""

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

import requests

from pipeline.http.address import session_for
from pipeline.http.retry import TransientError
from pipeline.outcome import StepFailed
from pipeline.settings import Settings
from pipeline.sources.response import body_chunks, request, require_status, source_size
from pipeline.urls import check_url, redact_url

SAMPLE_BYTES = 8 << 20
"""Bytes of a file that are read at most to measure the speed of its source."""

SAMPLE_SECONDS = 3.0
"""Seconds that reading them may take."""


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


class Prober:
    """Requests each URL once and saves nothing."""

    def __init__(self, settings: Settings) -> None:
        self._session = session_for(settings)
        self._timeouts = (settings.connect_timeout, settings.read_timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def probe(self, url: str) -> ProbeResult:
        """Whether the source answers, and the size that it says the file has."""
        start = time.monotonic()
        size: int | None = None
        failure, transient = "", False
        try:
            check_url(url)
            size = source_size(url, lambda method: self._request(method, url))
        except StepFailed as failed:
            failure = failed.message
        except TransientError as fault:
            failure, transient = f"{redact_url(url)}: {fault}", True
        return ProbeResult(url, time.monotonic() - start, size, failure, transient)

    def sample(self, url: str) -> Sample | None:
        """How fast the beginning of a file arrives; None if it does not."""
        try:
            with self._request("GET", url) as response:
                require_status(response, url, 200)
                start = time.monotonic()
                size, seconds = 0, 0.0
                for chunk in body_chunks(response):
                    size += len(chunk)
                    seconds = time.monotonic() - start
                    if size >= SAMPLE_BYTES or seconds >= SAMPLE_SECONDS:
                        break
        except (TransientError, StepFailed):
            return None
        return Sample(size, seconds) if size and seconds > 0 else None

    def _request(self, method: str, url: str) -> AbstractContextManager[requests.Response]:
        return request(self._session, method, url, self._timeouts)
