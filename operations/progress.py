"""Following a batch until it has ended, without asking ZooKeeper again and again whether it has.

A one-shot watch tells at once that the batch moved. How many of its jobs have ended is asked twice a
second, by counts: a watch on them would have to list every job each time one ends.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from operations.archive import Archive, no_archive
from operations.batch_view import BatchView, batch_view
from zkstate import views
from zkstate.errors import Unreachable
from zkstate.session import Session

TICK = 0.5
"""Seconds between two counts of jobs."""


def follow(session: Session, bid: str, archive: Archive = no_archive) -> Iterator[BatchView]:
    """The batch now and whenever something has changed, last of all as it ended; goes on through outages.

    Missing if there is no such batch at the beginning.
    """
    last: BatchView | None = None
    moved = threading.Event()
    watching = False
    while True:
        try:
            if not watching:
                moved.clear()
                views.watch_batch(session, bid, moved.set)
                watching = True
            view = batch_view(session, bid, archive, counts_only=True)
            if view.ended:
                yield batch_view(session, bid, archive)
                return
        except Unreachable:
            continue
        if view != last:
            last = view
            yield view
        watching = not moved.wait(TICK)


@contextmanager
def outages_told(session: Session, tell: Callable[[bool], None]) -> Iterator[None]:
    """Within this block `tell(True)` is called when ZooKeeper goes away and `tell(False)` when it is back.

    It is called on the connection's own thread and must not block.
    """
    away = threading.Event()

    def change(connected: bool) -> None:
        if connected is away.is_set():
            if connected:
                away.clear()
            else:
                away.set()
            tell(not connected)

    with views.connection_watched(session, change):
        yield
