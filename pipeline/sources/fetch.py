"""Content sources: sizes, small documents and downloads over HTTP(S)."""

import random
import threading
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, TypeVar

import requests

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.fixity import OF_RECORD, Digest, DigestMismatch
from pipeline.http.address import session_for
from pipeline.http.retry import TransientError
from pipeline.outcome import RateLimited, StepFailed, content, transient
from pipeline.settings import Settings
from pipeline.sources.host_limits import HostLimiter, NoLimit
from pipeline.sources.part import Part, arriving, origin
from pipeline.sources.response import (
    ask,
    back_off_requested,
    expect,
    length,
    pieces,
    refuse_packed,
)
from pipeline.urls import host_of, redact_url

FIRST_PAUSE = 0.5
"""Seconds before the second try of a request; doubles with each further one, and varies by up to a half."""

LONGEST_PAUSE = 30.0
"""Seconds that a file waits for its source while the job keeps its worker; asked to wait longer, the job
goes back and another takes its place."""

DOCUMENT_TIME = 600.0
"""Seconds that a small document may take, however slowly its bytes drip."""

DIVIDE = "divide it, or ask the operator for a higher limit"

GLANCE = 0.2
"""Seconds between two looks at whether the attempt is over, while waiting."""

T = TypeVar("T")


@dataclass(frozen=True)
class Download:
    """One file to fetch. `target` appears whole or not at all; unfinished bytes stay in `part`."""

    url: str
    target: Path
    part: Path
    digest: Digest | None = None
    size: int | None = None
    limit: int | None = None
    """Bytes that are taken at most, whatever the source sends."""


@dataclass(frozen=True)
class Downloaded:
    """A file that arrived whole: its size and its digest of record (sha512), computed while it streamed."""

    path: Path
    size: int
    sha512: str


class Fetcher(Protocol):
    """Errors are StepFailed: `content` when the depositor must act, `transient` when time may heal it."""

    def size(self, url: str, attempt: Attempt = UNATTENDED) -> int | None:
        """Bytes at `url`, by HEAD or the headers of a GET; None if the source does not say.

        It fails in no other way than by NotYet, if it is not its turn to ask that host.
        """

    def read(self, url: str, limit: int, attempt: Attempt = UNATTENDED) -> bytes:
        """A small document, at most `limit` bytes."""

    def download(self, wanted: Download, attempt: Attempt) -> Downloaded:
        """Fetch one file with retries and Range resume; digest and size are checked before it appears."""


class HttpFetcher:
    """The Fetcher of http and https sources; one serves all threads of a process."""

    def __init__(self, settings: Settings, first_pause: float = FIRST_PAUSE) -> None:
        self._session: requests.Session = session_for(settings)
        self._timeouts = (settings.connect_timeout, settings.read_timeout)
        self._tries = settings.fetch_tries
        self._first_pause = first_pause
        self._courtesy: HostLimiter = NoLimit()
        self._silent: set[str] = set()
        """Hosts that answered a question for a size with a wish for peace."""

    def limited_by(self, limiter: HostLimiter) -> "HttpFetcher":
        """The same fetcher for one attempt, which takes its turn with others at every request."""
        fetcher = copy(self)
        fetcher._courtesy = limiter
        fetcher._silent = set()
        return fetcher

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def size(self, url: str, attempt: Attempt = UNATTENDED) -> int | None:
        host = host_of(url)
        for method in ("HEAD", "GET"):  # some sources refuse HEAD, or answer it without a length
            if not host or host in self._silent:
                return None
            try:
                with (
                    self._courtesy.connection(host, attempt),
                    ask(self._session, method, url, self._timeouts) as response,
                ):
                    if response.status_code == 200 and (size := length(response)) is not None:
                        return size
                    asked = back_off_requested(response)
            except RateLimited:
                if host in self._silent:
                    return None
                raise
            except (TransientError, StepFailed):
                return None  # not knowing is an answer here; the download will say what is wrong
            if asked:
                # asking again after the peace would go on for ever with a host that answers so every time
                self._silent.add(host)
                self._courtesy.back_off(host, asked)
        return None

    def read(self, url: str, limit: int, attempt: Attempt = UNATTENDED) -> bytes:
        return self._patiently(url, lambda: self._read_once(url, limit), lambda: 0, attempt)

    def _read_once(self, url: str, limit: int) -> bytes:
        deadline = time.monotonic() + DOCUMENT_TIME
        with ask(self._session, "GET", url, self._timeouts) as response:
            expect(response, url, 200)
            refuse_packed(response, url)
            if (size := length(response)) is not None and size > limit:
                raise content(
                    f"{redact_url(url)} has {size:,} bytes, but at most {limit:,} are taken; {DIVIDE}"
                )
            document = bytearray()
            for piece in pieces(response):
                document += piece
                if len(document) > limit:
                    raise content(
                        f"{redact_url(url)} has more than {len(document) - 1:,} bytes, "
                        f"but at most {limit:,} are taken; {DIVIDE}"
                    )
                if time.monotonic() > deadline:
                    raise TransientError(f"only {len(document):,} bytes in {DOCUMENT_TIME:.0f} seconds")
            return bytes(document)

    def download(self, wanted: Download, attempt: Attempt) -> Downloaded:
        algorithms = {OF_RECORD, wanted.digest.algorithm if wanted.digest else OF_RECORD}
        with arriving(wanted.part, algorithms) as part:
            part.continue_from(wanted.url, attempt)
            for last in (False, True):
                self._patiently(
                    wanted.url, lambda: self._stream(wanted, part, attempt), lambda: part.size, attempt
                )
                try:
                    _verify(wanted, part)
                    break
                except DigestMismatch as error:
                    part.restart()  # the way may have damaged the bytes: once more, from the beginning
                    if last:
                        part.discard()
                        raise content(str(error)) from error
            attempt.check()
            part.publish(wanted.target)
            return Downloaded(wanted.target, part.size, part.digests.value())

    def _stream(self, wanted: Download, part: Part, attempt: Attempt) -> None:
        """Add to the part what one answer of the source brings; TransientError if that is not all."""
        if part.whole:
            return
        rest = part.origin.validator if part.origin and part.size else ""
        if not rest:
            part.restart()
        ranged = {"Range": f"bytes={part.size}-", "If-Range": rest} if rest else {}
        with ask(self._session, "GET", wanted.url, self._timeouts, ranged) as response:
            if rest and response.status_code == 416:
                part.restart()
                raise TransientError("the source no longer offers the rest of the file")
            expect(response, wanted.url, *((200, 206) if rest else (200,)))
            _begin(wanted, part, response)
            for piece in pieces(response):
                attempt.check()
                part.append(piece)
                if wanted.size is not None and part.size > wanted.size:
                    raise content(_size_differs(wanted, f"more than {wanted.size:,}"))
                _refuse_too_large(wanted, part.size)
        if part.origin and part.origin.total not in (None, part.size):
            raise TransientError(f"the source ended after {part.size:,} of {part.origin.total:,} bytes")

    def _patiently(
        self,
        url: str,
        request: Callable[[], T],
        reached: Callable[[], int],
        attempt: Attempt,
    ) -> T:
        """The answer of `request`, tried until there are settings.fetch_tries that got no further."""
        best, tries = reached(), 0
        while True:
            attempt.check()
            try:
                with self._courtesy.connection(host_of(url), attempt):
                    return request()
            except TransientError as fault:
                further = reached() > best
                best, tries = max(best, reached()), 0 if further else tries + 1
                asked = fault.retry_after
                if asked:
                    self._courtesy.back_off(host_of(url), asked)
                if tries >= self._tries or (asked or 0) > LONGEST_PAUSE:
                    raise transient(f"{redact_url(url)}: {fault} (try {tries})", asked) from fault
                own = min(LONGEST_PAUSE, self._first_pause * 2 ** max(0, tries - 1)) * random.uniform(0.5, 1)  # noqa: S311 - spreads requests, guards nothing
            _pause(max(own, asked or 0), attempt)


def _begin(wanted: Download, part: Part, response: requests.Response) -> None:
    """Make the part ready for the body of this answer: go on with it, or start over."""
    offered = origin(wanted.url, response)
    if response.status_code == 206:
        start = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
        if part.origin is None or start.strip() != str(part.size) or not part.origin.same(offered):
            part.restart()
            raise TransientError("the file changed while it was fetched")
        part.origin = part.origin.model_copy(update={"total": part.origin.total or offered.total})
        return
    if not wanted.digest and not wanted.size:
        refuse_packed(response, wanted.url)
    if None not in (wanted.size, offered.total) and offered.total != wanted.size:
        raise content(_size_differs(wanted, f"{offered.total:,}"))
    _refuse_too_large(wanted, offered.total or 0)
    part.restart()
    part.origin = offered


def _verify(wanted: Download, part: Part) -> None:
    name = f"{wanted.target.name} ({redact_url(wanted.url)})"
    if wanted.size is not None and part.size != wanted.size:
        raise DigestMismatch(_size_differs(wanted, f"{part.size:,}"))
    if wanted.digest is not None:
        part.digests.check(wanted.digest, name)


def _refuse_too_large(wanted: Download, size: int) -> None:
    if wanted.limit is not None and size > wanted.limit:
        raise content(
            f"{wanted.target.name} ({redact_url(wanted.url)}) has more than the {wanted.limit:,} bytes "
            "that are taken"
        )


def _size_differs(wanted: Download, found: str) -> str:
    return (
        f"{wanted.target.name} ({redact_url(wanted.url)}): the source has {found} bytes, "
        f"but {wanted.size:,} were declared"
    )


def _pause(seconds: float, attempt: Attempt) -> None:
    """Wait, checking the attempt meanwhile."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        attempt.check()
        threading.Event().wait(min(GLANCE, left))
