"""The thread that keeps the board: it compares the board with the record again and again."""

import logging
import threading
from contextlib import ExitStack

from operations.board.currency import Currency
from operations.board.writer import Writer
from pipeline.errors import ArklineError
from pipeline.records import now
from zkstate.session import Session
from zkstate.views import connection_watched

LIST_INTERVAL = 2.0
"""Seconds between two comparisons with the record where changes are not pushed."""

STOP_TIMEOUT = 5.0
"""Seconds to wait for the thread; an answer of ZooKeeper that does not come holds it for longer."""

_log = logging.getLogger("arkline.board")


class Follower:
    def __init__(self, session: Session, writer: Writer, currency: Currency) -> None:
        self._session = session
        self._writer = writer
        self._currency = currency
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="board", daemon=True)
        self.filled = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(STOP_TIMEOUT)

    def _run(self) -> None:
        with ExitStack() as opened:
            opened.enter_context(connection_watched(self._session, self._on_connection))
            while not self._stopping.is_set():
                self._compare()
                self._stopping.wait(LIST_INTERVAL)

    def _on_connection(self, connected: bool) -> None:
        """Called on the connection's thread: must not block."""
        if not connected and self._currency.lost():
            self._writer.publish_freshness()

    def _compare(self) -> None:
        as_of = now()
        try:
            self._writer.compare(all_batches=not self.filled.is_set())
        except ArklineError as error:
            if self._currency.lost():
                self._writer.publish_freshness()
            _log.warning("the board cannot be compared with the record: %s", error)
            return
        if self._currency.compared(as_of, following=False):
            self._writer.publish_freshness()
        self.filled.set()
