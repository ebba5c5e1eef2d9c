"""A batch and the board of a site: read once, and again when the site's events say that something changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from queue import Empty, SimpleQueue

from entrypoints.cli.api import Client
from entrypoints.cli.command_table import load_all
from operations.board.values import (
    CAUSES_SHOWN,
    LATEST,
    BatchPage,
    BoardSummary,
    CollectionCounts,
    FailureGroup,
    Freshness,
    LiveView,
    Stops,
)
from operations.jobs.batch_view import BatchView
from pipeline.errors import ArklineError, ServiceUnreachable
from pipeline.records import Record
from pipeline.states import JobState

SILENCE = 45.0
"""Seconds without a byte after which the connection counts as lost: a site sends a comment every 15."""

RETRY_INTERVAL = 2.0
"""Seconds until a site that was lost is tried again."""


@dataclass(frozen=True)
class ServerEvent:
    """`kind` is `open` for the first event of a connection, and `reset` if events before it are lost."""

    kind: str
    id: str = ""
    data: str = ""


@dataclass(frozen=True)
class Away:
    """The site does not answer; the next ServerEvent means that it answers again."""

    error: ServiceUnreachable


News = ServerEvent | Away


def read_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """The events of the lines of a stream.

    >>> list(read_events(["id: 7", "event: job", "data: {}", "", ": still here", ""]))
    [ServerEvent(kind='job', id='7', data='{}')]
    """
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "event" in fields:
            yield ServerEvent(fields["event"], fields.get("id", ""), fields.get("data", ""))
            fields = {}
        else:
            fields = {}


class Stream:
    """The events of one path, read on a thread of its own; `next` gives them to the caller's thread."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path
        self._queue: SimpleQueue[News | ArklineError] = SimpleQueue()
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="events", daemon=True).start()

    def close(self) -> None:
        self._ended.set()

    def next(self, seconds: float | None) -> News | None:
        """What came next, or None after `seconds`; raises what the site refuses."""
        try:
            news = self._queue.get(timeout=seconds)
        except Empty:
            return None
        if isinstance(news, ArklineError):
            raise news
        return news

    def _run(self) -> None:
        last = ""
        while not self._ended.is_set():
            try:
                with closing(self._client.open_stream(self._path, last, SILENCE)) as lines:
                    for event in read_events(lines):
                        last = event.id or last
                        self._queue.put(event)
            except ServiceUnreachable as error:
                self._queue.put(Away(error))
            except ArklineError as error:
                self._queue.put(error)
                return
            self._ended.wait(RETRY_INTERVAL)


@contextmanager
def stream(client: Client, path: str) -> Iterator[Callable[[float | None], News | None]]:
    """Within this block the function gives the next event, as `Stream.next`."""
    load_all()  # the stream has a thread of its own
    opened = Stream(client, path)
    opened.start()
    try:
        yield opened.next
    finally:
        opened.close()


READ_INTERVAL = 1.0
"""Seconds between two reads at least: many jobs may move at once."""


def follow(
    client: Client, bid: str, report: Callable[[ServiceUnreachable | None], None], *, tick: float | None
) -> Iterator[BatchView]:
    """The batch now, whenever it has changed, and at last as it ended.

    `report` gets the error when the site goes away, and None when it answers again. With `tick` the same view
    is yielded again after so many seconds without a change.
    """
    last, read_at, due, away = batch(client, bid), time.monotonic(), None, False
    yield last
    with stream(client, f"/v1/batches/{bid}/events") as next_news:
        while not last.ended:
            left = None if due is None else max(0.0, due - time.monotonic())
            news = next_news(min((wait for wait in (left, tick) if wait is not None), default=None))
            if news is not None:
                # a stream that is refused or cut is no reason to stop: the batch itself may be answered
                pause = READ_INTERVAL if isinstance(news, ServerEvent) else RETRY_INTERVAL
                due = due or read_at + pause
                continue
            if due is None or time.monotonic() < due:
                yield last
                continue
            due, read_at = None, time.monotonic()
            try:
                view = batch(client, bid)
            except ServiceUnreachable as error:
                if not away:
                    report(error)
                away, due = True, read_at + RETRY_INTERVAL
                continue
            if away:
                report(None)
                away = False
            if view != last:
                last = view
                yield view


def batch(site: Client, bid: str) -> BatchView:
    return site.get(f"/v1/batches/{bid}", BatchView)


class _Counts(Record):
    """What `GET /v1/board` answers."""

    freshness: Freshness
    jobs: dict[JobState, int]
    oldest: dict[JobState, datetime]
    stops: Stops


def live_view(site: Client) -> LiveView:
    """The board as it is now, and the latest batches."""
    counts = site.get("/v1/board", _Counts)
    failures = site.get_list("/v1/failures", FailureGroup)
    summary = BoardSummary(
        freshness=counts.freshness,
        jobs=counts.jobs,
        oldest=counts.oldest,
        stops=counts.stops,
        failures=failures[:CAUSES_SHOWN],
        causes=len(failures),
        collections=site.get_list("/v1/collections", CollectionCounts),
    )
    return LiveView(summary=summary, batches=site.get("/v1/batches", BatchPage, limit=LATEST))


@contextmanager
def live_board(site: Client) -> Iterator[LiveBoard]:
    """The board, which follows the site until the block ends."""
    with stream(site, "/v1/events") as next_news:
        yield LiveBoard(site, next_news)


@dataclass
class LiveBoard:
    site: Client
    next_news: Callable[[float | None], News | None]
    _last: LiveView | None = field(default=None, init=False)
    _changed: bool = field(default=True, init=False)
    _read_at: float = field(default=0.0, init=False)

    def read(self) -> LiveView:
        """The board; the last one, marked as stale, while the site does not answer."""
        if not self._changed and self._last is not None:
            return self._last
        self._changed, self._read_at = False, time.monotonic()
        try:
            self._last = live_view(self.site)
        except ServiceUnreachable as error:
            if self._last is None:
                raise
            self._changed = True
            self._last = self._last.stale(str(error))
        return self._last

    def wait_change(self, seconds: float) -> None:
        """Until something changes, for `seconds` at most."""
        news = self.next_news(seconds)
        if news is None:
            return
        self._changed = True
        time.sleep(max(0.0, self._read_at + READ_INTERVAL - time.monotonic()))
        while self.next_news(0) is not None:
            """What came meanwhile is in the next reading."""
