"""Sends the trace of every job that ends, in a thread that follows the board; a lost collector costs no more.

What cannot be sent is dropped and counted: the history stays in the record.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from operations.board.board import Board
from operations.traces import ENDED, Span, spans_of
from pipeline.errors import ArklineError
from tasks.logs import log
from zkstate import jobs
from zkstate.session import Session

JOBS_SENT = 50
"""Jobs whose traces are sent in one request."""

REMEMBERED = 10_000
"""Ends of jobs that are not sent again."""

IDLE_SECONDS = 1.0
"""Time after which the thread asks whether it shall stop."""

STOP_SECONDS = 15.0
"""Time for the last request, when the process stops."""

Sender: TypeAlias = Callable[[Sequence[Span]], bool]
"""Sends spans; False if nobody took them."""


@dataclass(frozen=True)
class TraceCounts:
    """Traces since this process started."""

    sent: int = 0
    dropped: int = 0
    """Not taken by the collector, or not made because their jobs could not be read."""


class TraceExport:
    def __init__(self, board: Board, session: Session, sender: Sender) -> None:
        self._board = board
        self._session = session
        self._sender = sender
        self._counts = TraceCounts()
        self._after = board.changes_since(None).last
        self._known: dict[int, None] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    @classmethod
    def start(cls, board: Board, session: Session, sender: Sender) -> "TraceExport":
        """The export of the jobs that end from now on."""
        export = cls(board, session, sender)
        export._thread.start()
        return export

    def counts(self) -> TraceCounts:
        return self._counts

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._board.wait_change(self._after, IDLE_SECONDS):
                self._send_changes()

    def _send_changes(self) -> None:
        changes = self._board.changes_since(self._after)
        self._after = changes.last
        if changes.reset:
            log().warning("traces were lost: more jobs moved than the board remembers")
        ended = [
            change.subject for change in changes.changes if change.kind == "job" and change.state in ENDED
        ]
        for start in range(0, len(ended), JOBS_SENT):
            self._send(ended[start : start + JOBS_SENT])

    def _send(self, jids: Sequence[str]) -> None:
        read = [self._spans(jid) for jid in jids]
        unread = sum(spans is None for spans in read)
        new = [spans for spans in read if spans and self._is_new(spans[0].span_id)]
        taken = bool(new) and self._sender([span for spans in new for span in spans])
        sent = len(new) if taken else 0
        dropped = len(new) - sent + unread
        self._counts = TraceCounts(self._counts.sent + sent, self._counts.dropped + dropped)

    def _spans(self, jid: str) -> tuple[Span, ...] | None:
        """None if the job cannot be read."""
        try:
            return spans_of(jobs.load(self._session, jid))
        except ArklineError as error:
            log().warning("no trace of a job that cannot be read", jid=jid, error=str(error))
            return None

    def _is_new(self, span_id: int) -> bool:
        """The board may announce an ended job again: once it has read its failure, or after a clean-up."""
        if span_id in self._known:
            return False
        self._known[span_id] = None
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return True
