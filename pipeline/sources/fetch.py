"""Content sources: sizes, small documents and downloads over HTTP(S)."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, TypeVar

import requests

from pipeline.attempt import UNATTENDED, Attempt, Progress
from pipeline.fixity import OF_RECORD, Digest, DigestMismatch
from pipeline.http.address import session_for
from pipeline.http.retry import TransientError
from pipeline.outcome import RateLimited, StepFailed, content, transient
from pipeline.settings import Settings
from pipeline.sources.host_limits import NO_LIMIT, HostLimiter
from pipeline.sources.part import Part, open_part, origin_of
from pipeline.sources.response import (
    body_chunks,
    content_length,
    refuse_encoded,
    request,
    require_status,
    source_size,
)
from pipeline.urls import host_of, redact_url

FIRST_PAUSE = 0.5
"""Seconds before the second try of a request; doubles with each further one, and varies by up to a half."""

LONGEST_PAUSE = 30.0
"""Seconds that a file waits for its source while the job keeps its worker. If the source requests a
longer pause, the job is handed back and another job gets the worker."""

DOCUMENT_TIME = 600.0
"""Seconds that a small document may take, however slowly its bytes arrive."""

DIVIDE = "divide it, or ask the operator for a higher limit"

POLL_INTERVAL = 0.2
"""Seconds between two checks of the attempt, while waiting."""

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
    """Bytes accepted at most, whatever the source sends."""

    @property
    def label(self) -> str:
        """The file as a message names it."""
        return f"{self.target.name} ({redact_url(self.url)})"


@dataclass(frozen=True)
class Downloaded:
    """A file that arrived whole: its size and its digest of record (sha512), computed while it streamed."""

    path: Path
    size: int
    sha512: str


class Fetcher(Protocol):
    """Errors: RateLimited; StepFailed, `content` if the depositor must act, `transient` if it may pass."""

    def size(self, url: str, attempt: Attempt = UNATTENDED) -> int | None:
        """Bytes at `url`, by HEAD or the headers of a GET; None if the source does not say.

        Raises nothing but RateLimited: the download reports what is wrong.
        """

    def read(self, url: str, limit: int, attempt: Attempt = UNATTENDED) -> bytes:
        """A small document, at most `limit` bytes."""

    def download(self, file: Download, attempt: Attempt) -> Downloaded:
        """Fetch one file with retries and Range resume; digest and size are checked before it appears."""


class HttpFetcher:
    """The Fetcher of http and https sources; all threads of a process may use one."""

    def __init__(
        self,
        settings: Settings,
        first_pause: float = FIRST_PAUSE,
        limiter: HostLimiter = NO_LIMIT,
        session: requests.Session | None = None,
    ) -> None:
        self._settings = settings
        self._first_pause = first_pause
        self._limiter = limiter
        self._session = session or session_for(settings)
        self._busy_hosts: set[str] = set()
        """Hosts that requested a pause instead of returning a size: their sizes are not requested again."""

    def limited_by(self, limiter: HostLimiter) -> "HttpFetcher":
        """A fetcher for one attempt, on the same connections, that keeps to the fleet's limits per host."""
        return HttpFetcher(self._settings, self._first_pause, limiter, self._session)

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def size(self, url: str, attempt: Attempt = UNATTENDED) -> int | None:
        host = host_of(url)
        if not host or host in self._busy_hosts:
            return None
        try:
            return source_size(url, lambda method: self._request(method, url, attempt))
        except RateLimited:
            if host not in self._busy_hosts:
                raise
        except TransientError as fault:
            if fault.retry_after:
                self._busy_hosts.add(host)
                self._limiter.back_off(host, fault.retry_after)
        except StepFailed:
            pass  # the download will meet the same and report it
        return None

    def read(self, url: str, limit: int, attempt: Attempt = UNATTENDED) -> bytes:
        return self._retry(url, lambda: self._read_once(url, limit, attempt), attempt)

    def _read_once(self, url: str, limit: int, attempt: Attempt) -> bytes:
        deadline = time.monotonic() + DOCUMENT_TIME
        with self._request("GET", url, attempt) as response:
            require_status(response, url, 200)
            refuse_encoded(response, url)
            if (size := content_length(response)) is not None and size > limit:
                raise content(f"{redact_url(url)} has {size:,} bytes, but the limit is {limit:,}; {DIVIDE}")
            document = bytearray()
            for chunk in body_chunks(response):
                document += chunk
                if len(document) > limit:
                    size_so_far = f"{len(document):,} bytes or more"
                    raise content(
                        f"{redact_url(url)} has {size_so_far}, but the limit is {limit:,}; {DIVIDE}"
                    )
                if time.monotonic() > deadline:
                    raise TransientError(f"only {len(document):,} bytes in {DOCUMENT_TIME:.0f} seconds")
            return bytes(document)

    def download(self, file: Download, attempt: Attempt) -> Downloaded:
        algorithms = {OF_RECORD, file.digest.algorithm if file.digest else OF_RECORD}
        with open_part(file.part, algorithms) as part:
            part.continue_from(file.url, attempt)
            try:
                self._complete(file, part, attempt)
            except DigestMismatch:
                part.restart()  # the transfer may have damaged the bytes: once more, from the beginning
                try:
                    self._complete(file, part, attempt)
                except DigestMismatch as mismatch:
                    part.discard()
                    raise content(str(mismatch)) from mismatch
            attempt.check()
            part.publish(file.target)
            return Downloaded(file.target, part.size, part.digests.value())

    def _complete(self, file: Download, part: Part, attempt: Attempt) -> None:
        """Fetch until the part is complete; DigestMismatch if its bytes are not those that were declared."""
        self._retry(file.url, lambda: self._stream(file, part, attempt), attempt, lambda: part.size)
        if file.size is not None and part.size != file.size:
            raise DigestMismatch(_size_differs(file, f"{part.size:,}"))
        if file.digest is not None:
            part.digests.check(file.digest, file.label)

    def _stream(self, file: Download, part: Part, attempt: Attempt) -> None:
        """Append what one answer of the source brings; TransientError if the file is not complete then."""
        if part.complete:
            return
        validator = part.origin.validator if part.origin and part.size else ""
        if not validator:
            part.restart()
        headers = {"Range": f"bytes={part.size}-", "If-Range": validator} if validator else {}
        with self._request("GET", file.url, attempt, headers) as response:
            if validator and response.status_code == 416:
                part.restart()
                raise TransientError("the source no longer offers the rest of the file")
            require_status(response, file.url, *((200, 206) if validator else (200,)))
            _begin(file, part, response)
            for chunk in body_chunks(response):
                attempt.check()
                part.append(chunk)
                if file.size is not None and part.size > file.size:
                    raise content(_size_differs(file, f"more than {file.size:,}"))
                _refuse_too_large(file, part.size)
                attempt.report(Progress(host=host_of(file.url), bytes=part.size))
        if part.origin and part.origin.total not in (None, part.size):
            raise TransientError(f"the source ended after {part.size:,} of {part.origin.total:,} bytes")

    @contextmanager
    def _request(
        self, method: str, url: str, attempt: Attempt, headers: Mapping[str, str] | None = None
    ) -> Iterator[requests.Response]:
        """One request, on one of the connections that the fleet may have open to the host."""
        timeouts = (self._settings.connect_timeout, self._settings.read_timeout)
        with (
            self._limiter.connection(host_of(url), attempt),
            request(self._session, method, url, timeouts, headers) as response,
        ):
            yield response

    def _retry(
        self,
        url: str,
        fetch: Callable[[], T],
        attempt: Attempt,
        bytes_so_far: Callable[[], int] = lambda: 0,
    ) -> T:
        """What `fetch` returns; repeated until settings.fetch_tries tries in a row brought no new byte."""
        tries, furthest = 0, bytes_so_far()
        while True:
            attempt.check()
            try:
                return fetch()
            except TransientError as fault:
                tries = 0 if bytes_so_far() > furthest else tries + 1
                furthest = max(furthest, bytes_so_far())
                requested = fault.retry_after or 0.0
                if requested:
                    self._limiter.back_off(host_of(url), requested)
                if tries >= self._settings.fetch_tries or requested > LONGEST_PAUSE:
                    raise transient(f"{redact_url(url)}: {fault} (try {tries})", fault.retry_after) from fault
            _pause(max(requested, self._back_off(tries)), attempt)

    def _back_off(self, tries: int) -> float:
        """Seconds before the next try, varied so that many files are not retried at the same moment."""
        pause: float = min(LONGEST_PAUSE, self._first_pause * 2 ** max(0, tries - 1))
        return pause * random.uniform(0.5, 1)  # noqa: S311 - spreads requests, guards nothing


def _begin(file: Download, part: Part, response: requests.Response) -> None:
    """Prepare the part for the body of this answer: append to it, or start over."""
    offered = origin_of(file.url, response)
    if response.status_code == 206:
        start = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
        if part.origin is None or start.strip() != str(part.size) or not part.origin.same(offered):
            part.restart()
            raise TransientError("the file changed while it was fetched")
        part.origin = part.origin.model_copy(update={"total": part.origin.total or offered.total})
        return
    if not file.digest and not file.size:
        refuse_encoded(response, file.url)
    if None not in (file.size, offered.total) and offered.total != file.size:
        raise content(_size_differs(file, f"{offered.total:,}"))
    _refuse_too_large(file, offered.total or 0)
    part.restart()
    part.origin = offered


def _refuse_too_large(file: Download, size: int) -> None:
    if file.limit is not None and size > file.limit:
        raise content(f"{file.label} has more than the {file.limit:,} bytes that are accepted")


def _size_differs(file: Download, actual: str) -> str:
    return f"{file.label}: the source has {actual} bytes, but {file.size:,} were declared"


def _pause(seconds: float, attempt: Attempt) -> None:
    """Wait, and check the attempt meanwhile."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        attempt.check()
        threading.Event().wait(min(POLL_INTERVAL, left))
