"""The trace of a job, which is its history as spans, and a thread that sends the traces of ended jobs.

The ids are derived from the job and its history alone: every process that builds the trace builds the same
one, and workers pass nothing to each other. A trace that cannot be sent is dropped and counted: the history
stays in the record.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from operations.board.board import Board
from pipeline.errors import ArklineError
from pipeline.records import HistoryEntry, Job, Record, derived, trace_id
from pipeline.states import JOB, JobState
from tasks.logs import log
from zkstate.connection.session import Session
from zkstate.record import jobs

ENDED = frozenset(JOB.where(lambda facts: facts.ended))
RETRY = "retry"
"""The outcome of an attempt that met a transient fault."""


class Span(Record):
    trace_id: int
    span_id: int
    parent_id: int | None = None
    """None for the span of the whole job."""
    name: str
    start: datetime
    end: datetime
    attributes: dict[str, str | int]
    failure: str = ""
    """The message of a failure or fault; empty if the span ended well."""


def spans_of(job: Job) -> tuple[Span, ...]:
    """Spans from a job's begin, or last resume, to its end: one for the whole, and one per attempt at a step.

    Empty for a job that has not ended. A resume adds further spans to the trace, and repeats none.
    """
    first, last = _part(job.history)
    entries = job.history[first : last + 1]
    if not entries:
        return ()
    final = entries[-1]
    common: dict[str, str | int] = {
        "arkline.bid": job.bid,
        "arkline.jid": job.jid,
        "arkline.collection": job.profile_name,
    }
    trace, whole_id = trace_id(job), _span_id(job, first, "job")
    failed = final.state is not JobState.COMPLETED
    identified = {"arkline.ark": job.identifiers.primary_id} if job.identifiers.primary_id else {}
    whole = Span(
        trace_id=trace,
        span_id=whole_id,
        name="job",
        start=entries[0].at,
        end=max(entry.at for entry in entries),
        attributes={**common, **identified, **_kind(final), "arkline.outcome": final.state},
        failure=final.message or final.state if failed else "",
    )
    tries, attempt = [], 0
    for number, (entry, following) in enumerate(pairwise(entries), first):
        attempt = attempt + 1 if _is_try(entry) else 1
        faulty = _is_try(following) or following.state is JobState.FAILED
        outcome = RETRY if _is_try(following) else following.event or ""
        tries.append(
            Span(
                trace_id=trace,
                span_id=_span_id(job, number, entry.state),
                parent_id=whole_id,
                name=entry.state,
                start=entry.at,
                end=max(entry.at, following.at),  # two workers' clocks may disagree
                attributes={
                    **common,
                    **(_kind(following) if faulty else {}),
                    "arkline.state": entry.state,
                    "arkline.attempt": attempt,
                    "arkline.outcome": outcome,
                },
                failure=following.message or outcome if faulty else "",
            )
        )
    return (whole, *tries)


def _part(history: tuple[HistoryEntry, ...]) -> tuple[int, int]:
    """First and last entry of the last part that ended; (0, -1) if there is none."""
    worked = [number for number, entry in enumerate(history) if entry.state not in ENDED]
    if not worked or worked[-1] == len(history) - 1:
        return 0, -1
    last = worked[-1] + 1
    earlier = [number for number in range(last) if history[number].state in ENDED]
    return (earlier[-1] + 1 if earlier else 0), last


def _is_try(entry: HistoryEntry) -> bool:
    return entry.event is None and entry.kind is not None


def _kind(entry: HistoryEntry) -> dict[str, str]:
    return {"arkline.failure": entry.kind} if entry.kind else {}


def _span_id(job: Job, number: int, name: str) -> int:
    return int.from_bytes(derived(job, str(number), name)[:8])


JOBS_SENT = 50
"""Number of jobs whose traces are sent in one request."""

REMEMBERED = 10_000
"""Number of ended jobs that are remembered, so that they are not sent again."""

IDLE_SECONDS = 1.0
"""Seconds after which the thread checks whether to stop."""

STOP_SECONDS = 15.0
"""Seconds for the last request when the process stops."""

Sender: TypeAlias = Callable[[Sequence[Span]], bool]
"""Sends spans; returns False if they were not accepted."""


@dataclass(frozen=True)
class TraceCounts:
    """Traces since this process started."""

    sent: int = 0
    dropped: int = 0
    """Rejected by the collector, or not built because their jobs could not be read."""


class TraceExport(Collector):
    """Sends traces in a thread; the numbers sent and dropped are Prometheus metrics."""

    def __init__(self, board: Board, session: Session, sender: Sender) -> None:
        self._board = board
        self._session = session
        self._sender = sender
        self.counts = TraceCounts()
        self._after = board.changes_since(None).last
        self._known: dict[int, None] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    @classmethod
    def start(cls, board: Board, session: Session, sender: Sender) -> "TraceExport":
        """Export jobs that end from now on."""
        export = cls(board, session, sender)
        export._thread.start()
        return export

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily("arkline_traces", "Traces of ended jobs.", labels=("outcome",))
        family.add_metric(("sent",), self.counts.sent)
        family.add_metric(("dropped",), self.counts.dropped)
        yield family

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
        self.counts = TraceCounts(self.counts.sent + sent, self.counts.dropped + dropped)

    def _spans(self, jid: str) -> tuple[Span, ...] | None:
        """The job's spans; None if the job cannot be read."""
        try:
            return spans_of(jobs.load(self._session, jid))
        except ArklineError as error:
            log().warning("no trace of a job that cannot be read", jid=jid, error=str(error))
            return None

    def _is_new(self, span_id: int) -> bool:
        """Whether this end is new: the board may repeat it after reading the failure or after a clean-up."""
        if span_id in self._known:
            return False
        self._known[span_id] = None
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return True
