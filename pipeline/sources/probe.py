"""A look at a source before anything is fetched from it: does it answer, how large is it, how fast."""

import time
from dataclasses import dataclass
from typing import Self

from pipeline.http.address import session_for
from pipeline.http.retry import TransientError
from pipeline.outcome import StepFailed
from pipeline.settings import Settings
from pipeline.sources.response import ask, expect, length, pieces
from pipeline.urls import check_url, redact_url

SAMPLE_BYTES = 8 << 20
"""Bytes of a file that are read at most to tell how fast its source is."""

SAMPLE_SECONDS = 3.0
"""Seconds that reading them may take."""


@dataclass(frozen=True)
class ProbeResult:
    """What one URL answered: its size if it told one, or why it would not be had."""

    url: str
    seconds: float
    size: int | None = None
    failure: str = ""
    passing: bool = False
    """The failure may pass: fetching would try again."""


@dataclass(frozen=True)
class Sample:
    """So many bytes arrived in so many seconds, on one connection."""

    bytes: int
    seconds: float


class Prober:
    """Asks each URL once and keeps nothing."""

    def __init__(self, settings: Settings) -> None:
        self._session = session_for(settings)
        self._timeouts = (settings.connect_timeout, settings.read_timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def probe(self, url: str) -> ProbeResult:
        """Ask by HEAD, and by GET where HEAD is refused or tells no size."""
        began = time.monotonic()
        try:
            check_url(url)
            size = self._size(url)
        except StepFailed as failure:
            return ProbeResult(url, time.monotonic() - began, failure=failure.message)
        except TransientError as fault:
            told = f"{redact_url(url)}: {fault}"
            return ProbeResult(url, time.monotonic() - began, failure=told, passing=True)
        return ProbeResult(url, time.monotonic() - began, size)

    def _size(self, url: str) -> int | None:
        with ask(self._session, "HEAD", url, self._timeouts) as response:
            if response.status_code == 200 and (size := length(response)) is not None:
                return size
        with ask(self._session, "GET", url, self._timeouts) as response:
            expect(response, url, 200)
            return length(response)

    def sample(self, url: str) -> Sample | None:
        """How fast the beginning of a file arrives; None if it does not."""
        try:
            with ask(self._session, "GET", url, self._timeouts) as response:
                expect(response, url, 200)
                began = time.monotonic()
                count, spent = 0, 0.0
                for piece in pieces(response):
                    count += len(piece)
                    spent = time.monotonic() - began
                    if count >= SAMPLE_BYTES or spent >= SAMPLE_SECONDS:
                        break
        except (TransientError, StepFailed):
            return None
        return Sample(count, spent) if count and spent > 0 else None
