"""The trace of a job: its history as spans, with the times of the record.

The ids follow from the job and its history alone: every process that makes the trace makes the same one, and
nothing has to be carried from worker to worker.
"""

from datetime import datetime
from itertools import pairwise

from pipeline.records import HistoryEntry, Job, Record, derived, trace_id
from pipeline.states import JOB, JobState

ENDED = frozenset(JOB.where(lambda facts: facts.ended))
RETRY = "retry"
"""The outcome of a try that met a transient fault."""


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
    """The message of a failure or of a fault; empty if the span ended well."""


def spans_of(job: Job) -> tuple[Span, ...]:
    """From the job's begin, or its last resume, to its end: a span of the whole, and of each try of a step.

    A job that has not ended has none. After a resume the trace gets further spans, and none a second time.
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
                end=max(entry.at, following.at),  # the clocks of two workers may disagree
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
    """First and last entry of the last part that came to an end; (0, -1) if there is none."""
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
