"""Following a batch until it has ended.

ZooKeeper pushes what changes below the batch, and only then the batch is read: its status and its counts,
however many jobs it has.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from operations.batch_view import BatchView, batch_view
from operations.site import Site
from pipeline.principal import Principal
from zkstate import views
from zkstate.errors import Unreachable
from zkstate.feed.watch import Feed
from zkstate.session import Session

FLUSH_INTERVAL = 0.25
"""Seconds between two reads of the batch at least: many jobs may end at once."""

CHECK_INTERVAL = 60.0
"""Seconds after which the batch is read although no change was pushed."""

LIST_INTERVAL = 2.0
"""Seconds between two reads where ZooKeeper cannot push changes (before 3.6)."""

RETRY_INTERVAL = 0.5
"""Seconds until ZooKeeper is tried again after it did not answer."""


def follow(site: Site, principal: Principal, bid: str, *, tick: float | None = None) -> Iterator[BatchView]:
    """The batch now, whenever it has changed, and at last as it ended; outages do not end the iteration.

    With `tick` the same view is yielded again after so many seconds without a change.
    Missing if there is no such batch at the beginning.
    """
    news, lost = threading.Event(), threading.Event()
    lost.set()  # nothing has been read yet

    def on_connection(connected: bool) -> None:
        if not connected:
            lost.set()
        news.set()

    last: BatchView | None = None
    pushed = True
    with Feed(site.session, lambda _: news.set(), on_connection, bid) as feed:
        while True:
            news.clear()
            try:
                if lost.is_set():
                    lost.clear()
                    pushed = feed.arm()
                view = batch_view(site, principal, bid, counts_only=True)
                if view.ended:
                    yield batch_view(site, principal, bid)
                    return
            except Unreachable:
                lost.set()
                news.wait(RETRY_INTERVAL)
                continue
            if view != last:
                last = view
                yield view
            time.sleep(FLUSH_INTERVAL)
            for _ in _ticks(news, CHECK_INTERVAL if pushed else LIST_INTERVAL, tick):
                yield view


def _ticks(news: threading.Event, seconds: float, tick: float | None) -> Iterator[None]:
    """Every `tick` seconds until there is news, for `seconds` at most."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if news.wait(left if tick is None else min(tick, left)):
            return
        yield


@contextmanager
def outages_reported(session: Session, report: Callable[[bool], None]) -> Iterator[None]:
    """Within this block `report(True)` is called when ZooKeeper goes away, `report(False)` when it is back.

    It is called on the connection's own thread and must not block.
    """
    away = threading.Event()

    def change(connected: bool) -> None:
        if connected is away.is_set():
            if connected:
                away.clear()
            else:
                away.set()
            report(not connected)

    with views.connection_watched(session, change):
        yield
