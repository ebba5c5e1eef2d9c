"""Following a batch until it has ended.

A watch reports at once that the batch has moved. The number of jobs that have ended is read twice a
second, by counts: with a watch every job would be listed each time a job ends.
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


def follow(
    session: Session, bid: str, archive: Archive = no_archive, *, every_tick: bool = False
) -> Iterator[BatchView]:
    """The batch now, whenever it has changed, and at last as it ended; outages do not end the iteration.

    With `every_tick` it is also yielded while nothing changes.
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
        if every_tick or view != last:
            last = view
            yield view
        watching = not moved.wait(TICK)


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
