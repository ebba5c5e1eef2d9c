"""The thread that keeps the board current: pushed changes, and comparisons with the record.

A lost connection makes the board stale at once. When ZooKeeper is back, the feed is armed again and the whole
board is compared. Every few seconds the feed proves itself by a write that must come back. The comparison
each minute proves that no change was lost: if it finds a difference, the feed is armed again.
"""

import logging
import socket
import threading
import time
from collections import deque
from datetime import datetime, timedelta

from operations.board.values import Freshness
from operations.board.writer import Writer
from pipeline.errors import ArklineError
from pipeline.records import now
from zkstate.connection.session import Session
from zkstate.errors import UserRefused
from zkstate.feed import BatchChange, BucketChange, Feed, FeedChange, QueueChange
from zkstate.fleet import notes
from zkstate.fleet.notes import Correction

FLUSH_INTERVAL = 0.25
"""Minimum seconds between two flushes."""

IDLE_INTERVAL = 1.0
"""Seconds after which jobs that stay in a working state are read, even if nothing has changed."""

COMPARE_INTERVAL = 60.0
"""Seconds between two comparisons of the whole board with the record while changes are pushed."""

LIST_INTERVAL = 2.0
"""Seconds between two comparisons where ZooKeeper cannot push changes (before 3.6)."""

RETRY_INTERVAL = 0.5
"""Seconds between attempts while ZooKeeper does not answer."""

ERROR_INTERVAL = 5.0
"""Seconds after an unexpected error, whatever is pushed: the whole record is read at each attempt."""

STOP_TIMEOUT = 5.0
"""Seconds to wait for the thread to end; a pending ZooKeeper request may hold it longer."""

PROOF_LIMIT = 15.0
"""Seconds without proof of pushed changes after which the board is stale, even if no loss was noticed."""

_log = logging.getLogger("arkline.board")


class Currency:
    """How current the board is. Thread-safe, because the connection's thread reports a loss."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = Freshness(as_of=now(), stale=True, stale_since=now())
        self._proven = 0.0
        """When it was last proven that changes are pushed; a moment of `time.monotonic`."""

    def read(self) -> Freshness:
        """The freshness; while changes are pushed, the board is as of the last proof."""
        with self._lock:
            return self._read()

    def _read(self) -> Freshness:
        state = self._state
        if state.stale or not state.following:
            return state
        silent = time.monotonic() - self._proven
        as_of = max(state.as_of, now() - timedelta(seconds=silent))
        if silent < PROOF_LIMIT:
            return state.model_copy(update={"as_of": as_of})
        return state.model_copy(update={"as_of": as_of, "stale": True, "stale_since": as_of})

    def proven(self, moment: float) -> None:
        """Note that all changes up to this `time.monotonic` moment were pushed and are applied."""
        with self._lock:
            self._proven = moment

    def lost(self) -> bool:
        """Note that the connection was lost; returns False if the board is stale already."""
        with self._lock:
            if self._state.stale:
                return False
            self._state = self._read().model_copy(
                update={"stale": True, "stale_since": now(), "following": False}
            )
            return True

    def compared(
        self, as_of: datetime, *, following: bool, corrections: int = 0, resync: bool = False
    ) -> bool:
        """Note that the board agrees with the record as of `as_of`; returns True if it was stale before."""
        with self._lock:
            before = self._state
            self._state = before.model_copy(
                update={
                    "as_of": as_of,
                    "stale": False,
                    "stale_since": None,
                    "following": following,
                    "corrections": before.corrections + corrections,
                    "resyncs": before.resyncs + resync,
                }
            )
            return before.stale


class Follower:
    def __init__(self, session: Session, writer: Writer) -> None:
        self._session = session
        self._writer = writer
        self.currency = Currency()
        self._feed = Feed(session, self._on_change, self._on_connection)
        self._changes: deque[tuple[float, FeedChange]] = deque()
        self._news = threading.Event()
        self._lost = threading.Event()
        self._lost.set()  # nothing has been read yet
        self._stopping = threading.Event()
        self._pushes = True
        self._compare_at = 0.0
        self._thread = threading.Thread(target=self._run, name="board", daemon=True)
        self.filled = threading.Event()
        self.refused = False
        """Whether ZooKeeper refuses this user: a retry would not help."""
        self.settled = threading.Event()
        """Set once the board is filled, or the user is refused."""

    def start(self) -> None:
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def stop(self) -> bool:
        """Stop the thread; returns False if it is still waiting for ZooKeeper."""
        if not self.started:
            return True
        self._stopping.set()
        self._news.set()
        self._thread.join(STOP_TIMEOUT)
        return not self._thread.is_alive()

    def _on_change(self, change: FeedChange) -> None:
        """Called in the connection's thread: must not block."""
        self._changes.append((time.monotonic(), change))
        self._news.set()

    def _on_connection(self, connected: bool) -> None:
        """Called in the connection's thread: must not block."""
        if not connected:
            self._lose()
        self._news.set()

    def _lose(self) -> None:
        self._lost.set()
        if self.currency.lost():
            self._writer.publish_freshness()

    def _run(self) -> None:
        try:
            with self._feed:
                while not self._stopping.is_set():
                    self._wait(self._step())
        finally:
            self.currency.lost()

    def _wait(self, seconds: float) -> None:
        """Wait until something happens, then another FLUSH_INTERVAL for what happens along with it."""
        if self._news.wait(seconds) and not self._stopping.is_set():
            time.sleep(FLUSH_INTERVAL)
        self._news.clear()

    def _step(self) -> float:
        """Do what is due; returns the seconds until the next step is due."""
        try:
            if self._lost.is_set():
                self._resync()
            elif time.monotonic() >= self._compare_at:
                self._compare()
            else:
                self._flush()
        except ArklineError as error:
            _log.warning("the board cannot follow the record, and shows what it has: %s", error)
            self._lose()
            if isinstance(error, UserRefused):
                self.refused = True
                self.settled.set()
            return RETRY_INTERVAL
        except Exception:  # noqa: BLE001 - without this thread the board is stale until the process ends
            _log.exception(
                "the board met an unexpected error: its last state is shown until the record is read again"
            )
            self._lose()
            self._stopping.wait(ERROR_INTERVAL)
            return 0
        return IDLE_INTERVAL if self._pushes else LIST_INTERVAL

    def _resync(self) -> None:
        """Arm the feed again, and make the board agree with the record, whatever has happened since."""
        self._lost.clear()
        self._pushes = self._feed.arm()
        self._changes.clear()  # older than the listings that follow
        as_of = now()
        self._writer.compare(all_batches=True)
        self._flush()
        self._mark_current(as_of, resync=self.filled.is_set())
        self.filled.set()
        self.settled.set()

    def _compare(self) -> None:
        """Compare the board with the record; changes applied between listings exempt their subjects."""
        as_of = now()
        if not self._pushes:
            self._writer.compare(all_batches=False)
            self._mark_current(as_of)
            return
        corrections = self._writer.compare(self._flush, all_batches=True)
        self._mark_current(as_of, corrections=corrections)
        if corrections:
            _log.warning(
                "the board differed from the record in %d jobs or batches: it follows again", corrections
            )
            self._lose()
            self._news.set()
            correction = Correction(at=now(), differences=corrections, host=socket.gethostname())
            notes.BOARD.publish(self._session, correction)

    def _mark_current(self, as_of: datetime, *, corrections: int = 0, resync: bool = False) -> None:
        self._compare_at = time.monotonic() + (COMPARE_INTERVAL if self._pushes else LIST_INTERVAL)
        if self._lost.is_set():
            return  # lost again in the meantime
        if self.currency.compared(as_of, following=self._pushes, corrections=corrections, resync=resync):
            self._writer.publish_freshness()

    def _flush(self) -> set[str]:
        """Apply the pushed changes; returns the ids of the jobs and batches that they concern."""
        proven = self._feed.prove() if self._pushes else 0.0
        changes = [self._changes.popleft() for _ in range(len(self._changes))]
        lag = time.monotonic() - changes[0][0] if changes else 0.0
        self._writer.flush([change for _, change in changes], lag)
        self.currency.proven(proven)
        return {name for _, change in changes for name in _subjects(change)}


def _subjects(change: FeedChange) -> tuple[str, ...]:
    match change:
        case QueueChange():
            return (change.jid,)
        case BucketChange():
            return change.jid, change.bid
        case BatchChange():
            return (change.bid,)
        case _:
            return ()
