"""A batch and the board over the API: read once, and again when the site says that something changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from entrypoints.cli.remote.client import Client
from entrypoints.cli.remote.events import RETRY_INTERVAL, News, ServerEvent, stream
from entrypoints.cli.remote.site import RemoteSite
from operations.batch_view import BatchView
from operations.top import LATEST, LiveView
from pipeline.errors import ServiceUnreachable

READ_INTERVAL = 1.0
"""Seconds between two reads at least: many jobs may move at once."""


def follow(
    client: Client, bid: str, report: Callable[[ServiceUnreachable | None], None], *, tick: float | None
) -> Iterator[BatchView]:
    """The batch now, whenever it has changed, and at last as it ended.

    `report` gets the error when the site goes away, and None when it answers again. With `tick` the same view
    is yielded again after so many seconds without a change.
    """
    site = RemoteSite(client)
    last, read_at, due, away = site.batch(bid), time.monotonic(), None, False
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
                view = site.batch(bid)
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


@dataclass
class RemoteBoard:
    """Satisfies `entrypoints.cli.boards.LiveBoard`."""

    site: RemoteSite
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
            self._last = self.site.board(LATEST)
        except ServiceUnreachable as error:
            if self._last is None:
                raise
            self._changed = True
            self._last = self._last.stale(str(error))
        return self._last

    def wait_change(self, seconds: float) -> None:
        news = self.next_news(seconds)
        if news is None:
            return
        self._changed = True
        time.sleep(max(0.0, self._read_at + READ_INTERVAL - time.monotonic()))
        while self.next_news(0) is not None:
            """What came meanwhile is in the next reading."""
