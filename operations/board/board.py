"""The board of one process: it follows the record on a thread of its own and answers from memory."""

import threading
from collections.abc import Callable
from datetime import datetime

from operations.board import queries
from operations.board.currency import Currency
from operations.board.follower import Follower
from operations.board.ring import Ring
from operations.board.table import Table
from operations.board.tally import Tallied, Tally
from operations.board.values import (
    EVERYTHING,
    BatchPage,
    BatchSearch,
    Changes,
    CollectionCounts,
    FailureGroup,
    Freshness,
    JobPage,
    JobSearch,
    Scope,
    Stops,
)
from operations.board.writer import Writer
from pipeline.errors import ServiceUnreachable
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from zkstate.connection.session import Session


class Board:
    """Thread-safe; no answer reads ZooKeeper. While ZooKeeper is away the answers are those of before.

    Before the whole record was read once, a question raises ServiceUnreachable: nothing is known yet.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._table = Table()
        self._ring = Ring()
        self._tally = Tally()
        self._currency = Currency()
        writer = Writer(session, self._table, self._ring, self._tally)
        self._follower = Follower(session, writer, self._currency)
        self._fill_timeout = 0.0
        self._starting = threading.Lock()

    @classmethod
    def on_demand(cls, session: Session, seconds: float) -> "Board":
        """A board that reads the record at the first question, which waits for that `seconds` at most."""
        board = cls(session)
        board._fill_timeout = seconds
        return board

    @classmethod
    def open(cls, session: Session, settings: Settings) -> "Board":
        """A board that starts to follow the record of this session; returns at once."""
        board = cls(session)
        board._follower.start()
        return board

    def wait_filled(self, seconds: float) -> bool:
        """True once the board has been filled from the record; False after `seconds`."""
        return self._follower.filled.wait(seconds)

    @property
    def known(self) -> bool:
        """False until the whole record was read for the first time."""
        return self._follower.filled.is_set()

    def _ask(self) -> None:
        """At the first question of a board on demand: start, and wait until it is filled."""
        with self._starting:
            if self._fill_timeout and not self._follower.started:
                self._follower.start()
                self.wait_filled(self._fill_timeout)

    @property
    def _rows(self) -> Table:
        self._ask()
        if self.known:
            return self._table
        if not self._session.connected:
            raise self._session.unreachable()
        raise ServiceUnreachable(
            f"the record in ZooKeeper at {self._session.hosts} is being read: repeat this soon"
        )

    def close(self) -> None:
        if self._follower.stop():
            self._table.close()

    def freshness(self) -> Freshness:
        self._ask()
        return self._currency.read()

    def counts(self, scope: Scope) -> dict[JobState, int]:
        """Jobs by state; completed ones until their batch is removed from the record."""
        return queries.counts(self._rows, scope)

    def oldest(self, scope: Scope) -> dict[JobState, datetime]:
        """Since when the job is there that has been in the state for longest."""
        return queries.oldest(self._rows, scope)

    def oldest_batches(self, scope: Scope) -> dict[BatchState, datetime]:
        """Since when the batch is there that has been in the state for longest."""
        return queries.oldest_batches(self._rows, scope)

    def jobs(self, scope: Scope, search: JobSearch, limit: int, after: str | None = None) -> JobPage:
        """Jobs of a batch in their order, active ones of a state in the queue's order, others newest first.

        Deleted jobs are listed only where their state is asked for.
        """
        return queries.jobs(self._rows, scope, search, limit, after, self._tally.usual())

    def usual(self) -> dict[JobState, float]:
        """Seconds in a state after which a job is slow there: 95 % of those that left lately needed less.

        Without the states that too few jobs have left since this board was opened.
        """
        return self._tally.usual()

    def slow(self, scope: Scope) -> dict[JobState, int]:
        """How many jobs are slow, by state; without the states that have none."""
        return queries.slow(self._rows, scope, self._tally.usual())

    def batches(self, scope: Scope, search: BatchSearch, limit: int, after: str | None = None) -> BatchPage:
        """Newest first."""
        return queries.batches(self._rows, scope, search, limit, after)

    def failures(self, scope: Scope, cause: str | None = None) -> tuple[FailureGroup, ...]:
        """Failures by cause, the 500 most frequent, or those of one cause."""
        return queries.failures(self._rows, scope, cause)

    def collections(self, scope: Scope) -> tuple[CollectionCounts, ...]:
        return queries.collections(self._rows, scope)

    def stops(self, scope: Scope) -> Stops:
        return queries.stops(self._rows, scope)

    def changes_since(self, event_id: str | None, scope: Scope = EVERYTHING) -> Changes:
        """The changes after this id; `reset` if some of them are forgotten."""
        self._ask()
        return self._ring.since(event_id, scope)

    def wait_change(self, event_id: str, seconds: float) -> bool:
        """True once there is a change after this id; False after `seconds`."""
        return self._ring.wait(event_id, seconds)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called after every flush, on the board's thread: it must not block.

        The result ends this. From asyncio: `board.subscribe(lambda: loop.call_soon_threadsafe(event.set))`.
        """
        return self._ring.subscribe(wake)

    def tally(self) -> Tallied:
        """What moved since this board was opened."""
        return self._tally.read()
