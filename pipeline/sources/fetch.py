"""Content sources: sizes, small documents, downloads and probes over HTTP(S), and from uploads."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeVar

from pipeline import causes
from pipeline.attempt import UNATTENDED, Attempt, Progress, pause
from pipeline.fixity import OF_RECORD, DigestMismatch
from pipeline.http.session import ContentSession
from pipeline.http.transfer import Response
from pipeline.http.urls import check_url, host_of, place_of, redact_url
from pipeline.names import is_upload, is_web_page
from pipeline.outcome import (
    HostDown,
    HostGivenUp,
    NoAnswer,
    RateLimited,
    ServiceDown,
    StepFailed,
    content,
    transient,
)
from pipeline.profiles.sources import EVERYWHERE, Sources
from pipeline.settings import Settings
from pipeline.sources.download import (
    DocumentTooLarge,
    Download,
    Downloaded,
    Origin,
    Part,
    UploadedSource,
    open_part,
    origin_of,
)
from pipeline.sources.limits import (
    NO_LIMIT,
    TIMEOUTS,
    HostLimiter,
    Pace,
    RequestClock,
    SourceTimeouts,
    TooSlow,
)
from pipeline.sources.response import (
    PauseRequested,
    answer_of,
    body_chunks,
    content_length,
    encoded,
    first_byte,
    is_whole,
    refuse_encoded,
    require_status,
    source_size,
)
from pipeline.states import FailureKind

LONGEST_PAUSE = 30.0
"""Maximum seconds that a file waits for its source while the job occupies its worker. If the source requests
a longer pause, the job is handed back and another job gets the worker."""

DOCUMENT_TIME = 600.0
"""Maximum seconds for a small document, however slowly its bytes arrive."""

T = TypeVar("T")


class HttpFetcher:
    """Fetches from http and https sources and from uploads; thread-safe.

    Errors: RateLimited; StepFailed, `content` if the depositor must act, `transient` if a retry may succeed.
    """

    def __init__(
        self,
        settings: Settings,
        timeouts: SourceTimeouts = TIMEOUTS,
        limiter: HostLimiter = NO_LIMIT,
        sessions: dict[Sources, ContentSession] | None = None,
        sources: Callable[[], Sources] = lambda: EVERYWHERE,
    ) -> None:
        self._settings = settings
        self._timeouts = timeouts
        self._headers_within = timeouts.headers or max(
            120.0, settings.connect_timeout + settings.read_timeout
        )
        self._limiter = limiter
        self._pace = Pace(settings.min_speed, timeouts)
        self._sessions = {} if sessions is None else sessions
        """Shared by the fetchers of a process. A connection is reused only for the same sources."""
        self._sources = sources
        self._uploads = UploadedSource(settings.uploads_folder)
        self._pausing_hosts: set[str] = set()
        """Hosts that requested a pause instead of returning a size: their sizes are not requested again."""

    def limited_by(
        self, limiter: HostLimiter, sources: Callable[[], Sources] = lambda: EVERYWHERE
    ) -> "HttpFetcher":
        """A fetcher for one attempt that shares the connections and observes the fleet's limits per host.

        `sources`: returns the collection's; called at the first request, StepFailed if they are not known.
        """
        return HttpFetcher(self._settings, self._timeouts, limiter, self._sessions, sources)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    @cached_property
    def _session(self) -> ContentSession:
        sources = self._sources()
        if sources not in self._sessions:
            self._sessions[sources] = ContentSession(
                self._settings.allow_networks,
                sources,
                connect_timeout=self._settings.connect_timeout,
                read_timeout=self._settings.read_timeout,
            )
        return self._sessions[sources]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def size(self, url: str, attempt: Attempt = UNATTENDED) -> int | None:
        """Bytes at `url`, by the headers of a GET; None if the source does not state them.

        Raises only RateLimited: the download reports other faults.
        """
        if is_upload(url):
            return self._uploads.size(url)
        host = place_of(url)
        if not host or host in self._pausing_hosts:
            return None
        try:
            return source_size(url, lambda headers: self.request(url, attempt, headers))
        except RateLimited:
            if host not in self._pausing_hosts:
                raise
        except NoAnswer as fault:
            self._limiter.no_answer(fault.place, fault.fault)
        except PauseRequested as fault:
            self._pausing_hosts.add(host)
            self._limiter.back_off(fault.host, fault.seconds, fault.answer)
        except StepFailed:
            pass  # the download will meet the same fault and report it
        return None

    def read(self, url: str, limit: int, attempt: Attempt = UNATTENDED) -> bytes:
        """Read a small document of at most `limit` bytes."""
        if is_upload(url):
            return self._uploads.read(url, limit)
        return self._retry(url, lambda: self._read_once(url, limit, attempt), attempt)

    def _read_once(self, url: str, limit: int, attempt: Attempt) -> bytes:
        with self.request(url, attempt, within=DOCUMENT_TIME) as response, self._pace:
            require_status(response, url, 200)
            refuse_encoded(response, url)
            if (size := content_length(response)) is not None and size > limit:
                raise DocumentTooLarge(redact_url(url), f"{size:,} bytes", limit)
            document = bytearray()
            for chunk in body_chunks(response, url):
                document += chunk
                self._pace.check(len(chunk))
                if len(document) > limit:
                    raise DocumentTooLarge(redact_url(url), f"{len(document):,} bytes or more", limit)
            return bytes(document)

    def download(self, file: Download, attempt: Attempt) -> Downloaded:
        """Fetch one file with retries and Range resume; digest and size are checked before it appears."""
        if is_upload(file.url):
            return self._uploads.copy(file, attempt)
        algorithms = {OF_RECORD, file.digest.algorithm if file.digest else OF_RECORD}
        with open_part(file.part, algorithms, file.draft) as part:
            self._pace.check_turn(attempt)
            part.continue_from(file.url, attempt, declared=file.digest is not None)
            try:
                self._complete(file, part, attempt)
            except DigestMismatch:
                part.restart()  # the transfer may have damaged the bytes: retry from the beginning
                try:
                    self._complete(file, part, attempt)
                except DigestMismatch as mismatch:
                    part.discard()
                    raise content(str(mismatch)).because(mismatch.cause) from mismatch
            attempt.check()
            origin = part.origin or Origin(url=file.url)
            part.publish(file.target)
            return Downloaded(part.size, part.digests.value(), origin.is_web_page, origin.name)

    def _complete(self, file: Download, part: Part, attempt: Attempt) -> None:
        """Fetch until the part is complete; DigestMismatch if its bytes are not the declared ones."""
        self._retry(file.url, lambda: self._stream(file, part, attempt), attempt, lambda: part.size)
        try:
            file.check_whole(part.size, part.digests)
        except DigestMismatch as mismatch:
            if not (part.origin and part.origin.coding):
                raise
            failure = encoded(file.url, part.origin.coding)
            part.discard()
            raise failure from mismatch

    def _stream(self, file: Download, part: Part, attempt: Attempt) -> None:
        """Append the body of one answer; a transient failure if the file is still incomplete."""
        if part.complete:
            return
        validator = ""
        if part.origin and part.size and part.origin.may_be_continued(file.digest):
            validator = part.origin.validator
        if not validator:
            part.restart()
        headers = {"Range": f"bytes={part.size}-", "If-Range": validator} if validator else {}
        with self.request(file.url, attempt, headers) as response, self._pace:
            if validator and response.status == 416:
                part.restart()
                raise file.broken("the source no longer offers the rest of the file")
            require_status(response, file.url, *((200, 206) if validator or is_whole(response) else (200,)))
            _begin(file, part, response)
            for chunk in body_chunks(response, file.url):
                _admit(file, part, chunk)
                if not part.size:
                    _note_page(part, chunk, response)
                part.append(chunk)
                self._pace.check(len(chunk))
                if part.origin and part.origin.may_be_continued(file.digest):
                    self._pace.check_turn(attempt)
                total = part.origin.total if part.origin else None
                attempt.report(Progress(host=host_of(file.url), bytes=part.size, bytes_expected=total))
        if part.origin and part.origin.total not in (None, part.size):
            raise file.broken(f"the source ended after {part.size:,} of {part.origin.total:,} bytes")

    @contextmanager
    def request(
        self,
        url: str,
        attempt: Attempt,
        headers: Mapping[str, str] | None = None,
        within: float | None = None,
    ) -> Iterator[Response]:
        """Send one GET, on one of the connections that the fleet may have open to the host.

        Messages about a host name the URL; a fault belongs to the last host of the redirects.
        `within`: seconds for the request and its whole answer; None: the default for files.
        """
        check_url(url)
        session = self._session
        places = [place_of(url)]

        def redirected(place: str) -> None:
            self._limiter.redirected(places[0], place, attempt)
            places.append(place)

        def send() -> Response:
            return session.request(url, headers, check=clock.check, redirected=redirected)

        try:
            with self._limiter.connection(places[0], attempt):
                clock = RequestClock(
                    url, attempt, self._pace, self._headers_within, within or self._timeouts.answer
                )
                with closing(answer_of(url, send)) as response:
                    clock.answered = True
                    for place in places:
                        self._limiter.answered(place)
                    yield response
        except HostDown as down:
            raise HostDown(f"{redact_url(url)}: {down.message}", down.wait, down.name) from down
        except HostGivenUp as failure:
            raise HostGivenUp(f"{redact_url(url)}: {failure.message}", failure.host) from failure
        except NoAnswer as fault:
            fault.at(places[-1])
            raise
        except TooSlow as fault:
            fault.cause = causes.SOURCE_BROKE(host=places[-1])
            raise

    def _retry(
        self,
        url: str,
        fetch: Callable[[], T],
        attempt: Attempt,
        bytes_so_far: Callable[[], int] = lambda: 0,
    ) -> T:
        """Retry `fetch` until settings.fetch_tries tries in a row have brought no new byte.

        After a host's timeout the request is not retried in this attempt: the host would occupy this process,
        and those of other jobs, for minutes, because the fleet learns of its silence only after the last try.
        """
        tries, furthest = 0, bytes_so_far()
        while True:
            attempt.check()
            try:
                return fetch()
            except StepFailed as fault:
                if fault.kind is not FailureKind.TRANSIENT or isinstance(
                    fault, TooSlow | HostGivenUp | ServiceDown
                ):
                    raise
                tries = 0 if bytes_so_far() > furthest else tries + 1
                furthest = max(furthest, bytes_so_far())
                requested = fault.retry_after or 0.0
                if isinstance(fault, PauseRequested):
                    self._limiter.back_off(fault.host, fault.seconds, fault.answer)
                silent = isinstance(fault, NoAnswer) and fault.waited
                if silent or tries >= self._settings.fetch_tries or requested > LONGEST_PAUSE:
                    if isinstance(fault, NoAnswer):
                        self._limiter.no_answer(fault.place, fault.fault)
                    lasting = transient(f"{fault} (try {tries})", fault.retry_after)
                    raise lasting.because(fault.cause) from fault
            pause(max(requested, self._back_off(tries)), attempt)

    def _back_off(self, tries: int) -> float:
        """Seconds before the next try, varied so that many files are not retried at the same moment."""
        pause: float = min(LONGEST_PAUSE, self._timeouts.first_pause * 2 ** max(0, tries - 1))
        return pause * random.uniform(0.5, 1)  # noqa: S311 - spreads requests, guards nothing


def _begin(file: Download, part: Part, response: Response) -> None:
    """Prepare the part for the body of this answer: append to it, or start over."""
    offered = origin_of(file.url, response)
    if response.status == 206 and part.size:
        if part.origin is None or first_byte(response) != part.size or not part.origin.same(offered):
            part.restart()
            raise file.broken("the file changed while it was fetched")
        part.origin = part.origin.model_copy(update={"total": part.origin.total or offered.total})
        return
    if not file.digest and not file.size:
        refuse_encoded(response, file.url)
    part.restart()
    if offered.coding and file.size is not None and offered.total not in (None, file.size):
        raise encoded(file.url, offered.coding)
    file.check_stated(offered.total)
    part.origin = offered


def _admit(file: Download, part: Part, chunk: bytes) -> None:
    """Raise unless the file may have these bytes too; the part is then discarded."""
    try:
        file.check_size(part.size + len(chunk))
    except StepFailed as failure:
        coding = part.origin.coding if part.origin else ""
        part.discard()
        if coding and file.size is not None:
            raise encoded(file.url, coding) from failure
        raise


def _note_page(part: Part, first: bytes, response: Response) -> None:
    if part.origin and is_web_page(first, response.headers.get("Content-Type", "")):
        part.origin = part.origin.model_copy(update={"is_web_page": True})


SAMPLE_BYTES = 8 << 20
"""Maximum bytes of a file that are read to measure the speed of its source."""

SAMPLE_SECONDS = 3.0
"""Maximum seconds for reading them."""

SAMPLE_WITHIN = 30.0
"""Maximum seconds for the request and the sample together."""


@dataclass(frozen=True)
class ProbeResult:
    """The result for one URL: the size of the file if the source reports it, or why a download would fail."""

    url: str
    seconds: float
    size: int | None = None
    failure: str = ""
    transient: bool = False
    """Whether the failure is transient: a download would be retried."""


@dataclass(frozen=True)
class Sample:
    """Bytes received on one connection, and the seconds taken."""

    bytes: int
    seconds: float


def probe(fetcher: HttpFetcher, url: str, attempt: Attempt = UNATTENDED) -> ProbeResult:
    """Check whether the source answers one request, and the file size that it states."""
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
    """Measure how fast the beginning of a file arrives; None if it does not, or if it is an upload."""
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
