"""What may follow what, written once: the job's table and the batch's table.

Rule: nothing about the order of states stands anywhere else. Task names, command line verbs, refusals,
the diagram in docs/states.md and the tests are derived from the two tables below; no code sets a
state that a row of them did not give.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Generic, Literal, Self, TypeVar

from pipeline.errors import ArklineError, ErrorKind


class Documented(StrEnum):
    """A string enum whose members carry their meaning, for the docs and for `--help`."""

    doc: str

    def __new__(cls, value: str, doc: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.doc = doc
        return member


class JobState(Documented):
    PENDING = "pending", "Waiting to be taken up; its payload has not been read yet."
    HELD = "held", "Its collection is on hold; an operator releases it."
    ESTIMATING = "estimating", "The sources are asked how large the content is."
    PROVISIONING = "provisioning", "Waiting until working storage has room for it."
    DOWNLOADING = "downloading", "Its content is fetched and its digests are checked."
    PROCESSING = "processing", "Identified, described and handed to storage."
    RECORDING = "recording", "Stored; being entered in the inventory."
    NOTIFY = "notify", "Recorded; the depositor's system is being told."
    COMPLETED = "completed", "Stored, recorded and told."
    FAILED = "failed", "Stopped by an error; its message says who has to act."
    DELETED = "deleted", "Taken out by an operator; a tombstone remains."


class BatchState(Documented):
    PENDING = "pending", "Submitted; its payload has not been split into jobs yet."
    HELD = "held", "Its collection is on hold; an operator releases it."
    PROCESSING = "processing", "Being split, or its jobs are at work."
    REPORTING = "reporting", "Every job has ended; the report is being written and sent."
    COMPLETED = "completed", "Every job completed, and the depositor was told."
    FAILED = "failed", "At least one job failed, and the depositor was told."
    UPDATE_REPORTING = (
        "update-reporting",
        "A second report is being sent: what changed since the last.",
    )
    DELETED = "deleted", "Taken out; a tombstone remains."


class Event(Documented):
    ACQUIRE = "acquire", "Take it up."
    HOLD = "hold", "Keep it back while its collection is on hold."
    RELEASE = "release", "Let a held one go on."
    SUCCEED = "succeed", "The state's work is done."
    FAIL = "fail", "Stop it, with a message."
    RESUME = "resume", "Go on after the last step that succeeded."
    DELETE = "delete", "Take it out for good, leaving a tombstone."
    UPDATE_REPORT = "update-report", "Tell the depositor what changed since the last report."
    CLEAN_UP = "clean-up", "Remove its working directory, reservation and queue entry."


class Raiser(Documented):
    WORKER = "worker", "the state's own work"
    OPERATOR = "operator", "a person, or the sweep on a person's behalf"
    AUTOMATIC = "automatic", "timed work"


class FailureKind(Documented):
    """Who has to act on a failure."""

    CONTENT = "content", "what was submitted is wrong: the depositor has to act"
    SYSTEM = "system", "a service or a machine is at fault: an operator acts, then resumes"
    TRANSIENT = "transient", "a passing fault that outlasted its retries: resume when it is over"


class Bucket(StrEnum):
    """The folders of `/batches/BID/states` in which a batch keeps its jobs."""

    PROCESSING = "batch-processing"
    FAILED = "batch-failed"
    COMPLETED = "batch-completed"
    DELETED = "batch-deleted"


S = TypeVar("S", JobState, BatchState)


class Whatever(Enum):
    """Stands for "whatever the last success was"."""

    ANY = "any"


ANY: Literal[Whatever.ANY] = Whatever.ANY


class IllegalTransition(ArklineError):
    """The table has no row for this state and event, or the row's condition is not met."""

    error_kind = ErrorKind.REFUSED


@dataclass(frozen=True)
class Transition(Generic[S]):
    """One row: in `source`, `event` leads to `target`, if the last success was `after`.

    `refused_after` names the kind of failure after which the row does not apply.
    """

    source: S
    event: Event
    target: S
    by: frozenset[Raiser]
    after: S | Literal[Whatever.ANY] | None = ANY
    refused_after: FailureKind | None = None


@dataclass(frozen=True)
class Machine(Generic[S]):
    name: str
    initial: S
    table: tuple[Transition[S], ...]

    def rows(self, source: S, event: Event) -> tuple[Transition[S], ...]:
        return tuple(row for row in self.table if (row.source, row.event) == (source, event))

    def next(
        self,
        source: S,
        event: Event,
        after: S | None = None,
        failure: FailureKind | None = None,
    ) -> S:
        """The state that `event` leads to, or IllegalTransition with what is possible instead."""
        for row in self.rows(source, event):
            if row.after is not ANY and row.after != after:
                continue
            if row.refused_after is not None and row.refused_after == failure:
                raise IllegalTransition(
                    f"this {self.name} failed because of its {failure}: {event} would fail again, "
                    "a new submission is required"
                )
            return row.target
        possible = ", ".join(sorted(self.events(source))) or "nothing"
        raise IllegalTransition(f"a {source} {self.name} cannot {event}; possible in this state: {possible}")

    def events(self, source: S, by: Raiser | None = None) -> frozenset[Event]:
        return frozenset(
            row.event for row in self.table if row.source == source and (by is None or by in row.by)
        )

    def working(self) -> tuple[S, ...]:
        """The states in which a worker acts, in the order of the table."""
        return tuple(dict.fromkeys(row.source for row in self.table if row.event in _ONWARD))

    def states(self) -> tuple[S, ...]:
        return tuple(type(self.initial))


_ONWARD = (Event.ACQUIRE, Event.SUCCEED)
_W, _O, _A = (frozenset({r}) for r in (Raiser.WORKER, Raiser.OPERATOR, Raiser.AUTOMATIC))
_J, _B, _E = JobState, BatchState, Event

JOB: Machine[JobState] = Machine(
    "job",
    _J.PENDING,
    (
        Transition(_J.PENDING, _E.ACQUIRE, _J.ESTIMATING, _W),
        Transition(_J.PENDING, _E.HOLD, _J.HELD, _W | _O),
        Transition(_J.PENDING, _E.FAIL, _J.FAILED, _W | _O),
        Transition(_J.HELD, _E.RELEASE, _J.PENDING, _O),
        Transition(_J.HELD, _E.DELETE, _J.DELETED, _O),
        Transition(_J.ESTIMATING, _E.SUCCEED, _J.PROVISIONING, _W),
        Transition(_J.ESTIMATING, _E.FAIL, _J.FAILED, _O),
        Transition(_J.PROVISIONING, _E.SUCCEED, _J.DOWNLOADING, _W),
        Transition(_J.PROVISIONING, _E.FAIL, _J.FAILED, _O),
        Transition(_J.DOWNLOADING, _E.SUCCEED, _J.PROCESSING, _W),
        Transition(_J.DOWNLOADING, _E.FAIL, _J.FAILED, _W | _O),
        Transition(_J.PROCESSING, _E.SUCCEED, _J.RECORDING, _W),
        Transition(_J.PROCESSING, _E.FAIL, _J.FAILED, _W | _O),
        Transition(_J.RECORDING, _E.SUCCEED, _J.NOTIFY, _W),
        Transition(_J.RECORDING, _E.FAIL, _J.FAILED, _W | _O),
        Transition(_J.NOTIFY, _E.SUCCEED, _J.COMPLETED, _W),
        Transition(_J.NOTIFY, _E.FAIL, _J.FAILED, _W | _O),
        Transition(_J.COMPLETED, _E.CLEAN_UP, _J.COMPLETED, _A),
        Transition(_J.FAILED, _E.RESUME, _J.PENDING, _O, None, refused_after=FailureKind.CONTENT),
        Transition(_J.FAILED, _E.RESUME, _J.PROVISIONING, _O, _J.ESTIMATING),
        Transition(_J.FAILED, _E.RESUME, _J.DOWNLOADING, _O, _J.PROVISIONING),
        Transition(_J.FAILED, _E.RESUME, _J.PROCESSING, _O, _J.DOWNLOADING),
        Transition(_J.FAILED, _E.RESUME, _J.RECORDING, _O, _J.PROCESSING),
        Transition(_J.FAILED, _E.RESUME, _J.NOTIFY, _O, _J.RECORDING),
        Transition(_J.FAILED, _E.DELETE, _J.DELETED, _O),
    ),
)

BATCH: Machine[BatchState] = Machine(
    "batch",
    _B.PENDING,
    (
        Transition(_B.PENDING, _E.ACQUIRE, _B.PROCESSING, _W),
        Transition(_B.PENDING, _E.HOLD, _B.HELD, _W),
        Transition(_B.HELD, _E.RELEASE, _B.PENDING, _O),
        Transition(_B.HELD, _E.DELETE, _B.DELETED, _O),
        Transition(_B.PROCESSING, _E.SUCCEED, _B.REPORTING, _W),
        Transition(_B.REPORTING, _E.SUCCEED, _B.COMPLETED, _W),
        Transition(_B.REPORTING, _E.FAIL, _B.FAILED, _W),
        Transition(_B.FAILED, _E.UPDATE_REPORT, _B.UPDATE_REPORTING, _O),
        Transition(_B.UPDATE_REPORTING, _E.SUCCEED, _B.COMPLETED, _W),
        Transition(_B.UPDATE_REPORTING, _E.FAIL, _B.FAILED, _W),
        Transition(_B.FAILED, _E.DELETE, _B.DELETED, _O),
        Transition(_B.COMPLETED, _E.DELETE, _B.DELETED, _A),
    ),
)

_BUCKETS = {
    JobState.COMPLETED: Bucket.COMPLETED,
    JobState.FAILED: Bucket.FAILED,
    JobState.DELETED: Bucket.DELETED,
}


def bucket(state: JobState) -> Bucket:
    """Where a batch keeps a job in `state`; a held job counts as not ended."""
    return _BUCKETS.get(state, Bucket.PROCESSING)


def _mermaid(machine: Machine[S]) -> Iterable[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {_node(machine.initial)}"
    for row in machine.table:
        yield f"    {_node(row.source)} --> {_node(row.target)} : {row.event}"
    yield "```"


def _node(state: JobState | BatchState) -> str:
    return state.replace("-", "_")


def _rows(machine: Machine[S]) -> Iterable[str]:
    yield f"| {machine.name} in | event | goes to | if the last success was | raised by |"
    yield "|---|---|---|---|---|"
    for row in machine.table:
        after = "" if row.after is ANY else (row.after or "none")
        if row.refused_after:
            after += f"; refused after a failure of {row.refused_after}"
        by = ", ".join(raiser for raiser in Raiser if raiser in row.by)
        yield f"| {row.source} | {row.event} | {row.target} | {after} | {by} |"


def _section(title: str, machine: Machine[S]) -> Iterable[str]:
    yield from ("", f"## {title}", "", *_mermaid(machine), "", *_rows(machine), "")
    yield from (f"* **{state}**: {state.doc}" for state in machine.states())


def markdown() -> str:
    """The page docs/states.md: `python -m pipeline.states > docs/states.md`."""
    lines = [
        "# States",
        "",
        "Generated from `pipeline/states.py` by `python -m pipeline.states > docs/states.md`.",
        *_section("Jobs", JOB),
        *_section("Batches", BATCH),
    ]
    lines += ["", "## Events", ""]
    lines += [f"* **{event}**: {event.doc}" for event in Event]
    lines += ["", "## Kinds of failure", ""]
    lines += [f"* **{kind}**: {kind.doc}" for kind in FailureKind]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(markdown())
