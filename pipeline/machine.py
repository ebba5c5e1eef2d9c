"""State tables: rows, facts about states, and queries on both.

Rule: a table is never edited in place. A row that no longer applies gets `until`, and the row that replaces
it gets `since`, so that a history is checked against the table of its time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import cached_property
from typing import Generic, Literal, TypeVar

from pipeline import codes
from pipeline.errors import ArklineError, Documented


class Event(Documented):
    ACQUIRE = "acquire", "A worker starts on it."
    HOLD = "hold", "Keep it back while its collection is on hold."
    RELEASE = "release", "Return it from held to pending."
    SUCCEED = "succeed", "The work of the state is done."
    FAIL = "fail", "Stop it, with a message."
    REVIEW = "review", "The work is done, and a person decides before the next step."
    APPROVE = "approve", "Continue: a person has reviewed what was downloaded."
    REJECT = "reject", "Fail it: a person does not accept what was downloaded."
    RESUME = "resume", "Continue after the last step that succeeded."
    DELETE = "delete", "Remove it for good; a tombstone remains."
    UPDATE_REPORT = "update-report", "Report to the depositor what has changed since the last report."
    DOWNLOAD_AGAIN = "download-again", "Return to an earlier step: its content is gone from working storage."
    CLEAN_UP = "clean-up", "Remove its working directory, and what an earlier release kept beside it."


class Raiser(Documented):
    WORKER = "worker", "the state's own work"
    OPERATOR = "operator", "a person, or the sweep on a person's behalf"
    AUTOMATIC = "automatic", "scheduled work"


class FailureKind(Documented):
    """The kind of a failure: it says who has to act."""

    CONTENT = "content", "the submission is wrong, and has to be corrected"
    SYSTEM = "system", "a service or a machine is at fault: an operator repairs it, then resumes"
    TRANSIENT = "transient", "a temporary fault that outlasted its retries: resume when it is over"


class Room(Documented):
    """What a failed job still has of working storage."""

    KEPT = "kept", "its reservation and its content are kept"
    YIELDED = "yielded", "other jobs may have its reservation; its content is kept while there is room"
    EMPTY = "empty", "its reservation and its content are gone: other jobs needed the room"


class Queue(Documented):
    """The Celery queues: one per kind of resource."""

    CONTROL = "control", "reports and scheduled work: nothing that waits for a depositor's system"
    SPLIT = "split", "splitting submissions, with the requests for their manifests"
    IO = "io", "short requests to other systems, callbacks of failed jobs"
    DOWNLOAD = "download", "bytes coming in"
    PROCESS = "process", "bytes being read, hashed and stored"


PRIORITY_STEPS = range(10)
"""The priorities of messages in a queue; 0 is the most urgent."""


class Bucket(StrEnum):
    """The folders of `/batches/BID/states` in which a batch keeps its jobs."""

    PROCESSING = "batch-processing"
    FAILED = "batch-failed"
    COMPLETED = "batch-completed"
    DELETED = "batch-deleted"


class IllegalTransition(ArklineError):
    code = codes.ILLEGAL_TRANSITION
    possible: tuple[StrEnum, ...] | None = None
    """The events that are possible instead, if known."""


class Whatever(Enum):
    """Matches any last success."""

    ANY = "any"


ANY: Literal[Whatever.ANY] = Whatever.ANY

S = TypeVar("S", bound=Documented)


@dataclass(frozen=True)
class Task:
    """The Celery task that does a state's work, and the queue that workers take it from."""

    name: str
    queue: Queue


@dataclass(frozen=True)
class StateFacts:
    """Facts that hold for every job or batch in a state."""

    task: Task | None = None
    """None: no worker acts in this state."""
    occupies_place: bool = False
    """A job here counts against ARKLINE_IN_FLIGHT and its collection's limit."""
    fetches: bool = False
    """The work sends requests to the hosts of the content."""
    holds_space: bool = False
    """Bytes of working storage are reserved for a job here."""
    reads_content: bool = False
    """The work reads what was downloaded: the job returns to an earlier step if that is gone."""
    stored: bool = False
    """The version of a job here is in storage."""
    recorded: bool = False
    """The version of a job here is in the inventory."""
    ended: bool = False
    """Nothing more happens by itself."""
    failed: bool = False
    """It has ended without success."""
    queued: bool = True
    """A job here has an entry in the job queue."""
    bucket: Bucket = Bucket.PROCESSING
    """The bucket of the job in its batch."""
    open: bool = False
    """A batch here is listed as open, because work on it remains."""
    split: bool = True
    """The split of the batch's payload has begun: it has buckets and a profile snapshot."""
    reports: bool = False
    """The work is a report to the depositor."""


@dataclass(frozen=True)
class Transition(Generic[S]):
    """One row: in `source`, `event` leads to `target`, if the last success was `after`.

    `refused_after`: the kind of failure after which the row does not apply.
    `room`: the row applies if the job has this left of working storage; empty: in any case.
    `named`: the row applies only if the raiser of the event names the target.
    `since`, `until`: the first and the last version of the table with this row; None: it still applies.
    """

    source: S
    event: Event
    target: S
    by: frozenset[Raiser]
    after: S | Literal[Whatever.ANY] | None = ANY
    refused_after: FailureKind | None = None
    room: frozenset[Room] = frozenset()
    named: bool = False
    since: int = 1
    until: int | None = None

    def follows(self, after: S | None, room: Room = Room.KEPT) -> bool:
        return (self.after is ANY or self.after == after) and (not self.room or room in self.room)

    def refuses(self, failure: FailureKind | None) -> bool:
        return self.refused_after is not None and self.refused_after == failure


@dataclass(frozen=True)
class Machine(Generic[S]):
    """The state table of jobs or batches; `every_row` has all versions' rows, `table` the current ones."""

    name: str
    initial: S
    facts: Mapping[S, StateFacts]
    every_row: tuple[Transition[S], ...]
    table: tuple[Transition[S], ...] = field(init=False)
    version: int = field(init=False)

    def __post_init__(self) -> None:
        version = max(max(row.since, (row.until or 0) + 1) for row in self.every_row)
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "table", self.of_version(version))
        if missing := [state for state in self.states() if state not in self.facts]:
            raise TypeError(f"no facts about the {self.name} states {', '.join(missing)}")
        for state in self.states():
            worked_on = any(row.source == state and row.event in _ONWARD for row in self.table)
            if worked_on and self.facts[state].task is None:
                raise TypeError(f"no task does the work of a {state} {self.name}")
            if not worked_on and self.facts[state].task is not None:
                raise TypeError(f"the task of a {state} {self.name} has no success to report")

    def of_version(self, version: int) -> tuple[Transition[S], ...]:
        """The rows that applied in that version of the table."""
        return tuple(
            row
            for row in self.every_row
            if row.since <= version and (row.until is None or version <= row.until)
        )

    @cached_property
    def _rows(self) -> Mapping[tuple[S, Event], tuple[Transition[S], ...]]:
        keys = {(row.source, row.event) for row in self.table}
        return {key: tuple(row for row in self.table if (row.source, row.event) == key) for key in keys}

    def rows(self, source: S, event: Event) -> tuple[Transition[S], ...]:
        return self._rows.get((source, event), ())

    def next(  # noqa: PLR0913 - what a row may depend on
        self,
        source: S,
        event: Event,
        after: S | None = None,
        failure: FailureKind | None = None,
        room: Room = Room.KEPT,
        named: S | None = None,
        by: Raiser | None = None,
    ) -> S:
        """The state that `event` leads to; IllegalTransition, saying what is possible instead, if none.

        `named`: the requested target; None: the table's default target. `by`: None takes the first row,
        whoever may raise the event.
        """
        rows = [
            row
            for row in self.rows(source, event)
            if row.follows(after, room) and (by is None or by in row.by)
        ]
        for row in rows:
            if row.named if named is None else row.target != named:
                continue
            if row.refuses(failure):
                raise IllegalTransition(
                    f"this {self.name} failed because of its {failure}: {event} would fail again, "
                    "a new submission is required"
                )
            return row.target
        if named is not None and rows:
            choices = ", ".join(self.targets_now(source, event, after, failure, room))
            raise IllegalTransition(
                f"{event} cannot lead this {self.name} to {named}; possible: {choices or 'nothing'}"
            )
        possible = ", ".join(sorted(self.events(source))) or "nothing"
        raise IllegalTransition(f"a {source} {self.name} cannot {event}; possible in this state: {possible}")

    def targets_now(
        self, source: S, event: Event, after: S | None, failure: FailureKind | None, room: Room = Room.KEPT
    ) -> tuple[S, ...]:
        """Every state that the event may now lead to if the raiser names it, in the order of the states."""
        targets = {
            row.target
            for row in self.rows(source, event)
            if row.follows(after, room) and not row.refuses(failure)
        }
        return tuple(state for state in self.states() if state in targets)

    def before(self, source: S, event: Event, target: S) -> S | None:
        """The last success after which `event` leads to `target` by default; None: no success."""
        rows = (row for row in self.rows(source, event) if not row.named and row.target == target)
        return next((row.after for row in rows if row.after is not ANY), None)

    def events(self, source: S, by: Raiser | None = None) -> frozenset[Event]:
        """The events with a row for this state, whatever their conditions."""
        return frozenset(
            row.event for row in self.table if row.source == source and (by is None or by in row.by)
        )

    def possible(
        self,
        source: S,
        by: Raiser,
        after: S | None = None,
        failure: FailureKind | None = None,
        room: Room = Room.KEPT,
    ) -> tuple[Event, ...]:
        """The events that `by` may raise now, in the order of the table."""
        rows = (
            row
            for row in self.table
            if row.source == source
            and by in row.by
            and not row.named
            and row.follows(after, room)
            and not row.refuses(failure)
        )
        return tuple(dict.fromkeys(row.event for row in rows))

    def targets(self, source: S, event: Event, version: int) -> frozenset[S]:
        """The states that `event` could lead to in that version of the table."""
        rows = self.of_version(version)
        return frozenset(row.target for row in rows if (row.source, row.event) == (source, event))

    @cached_property
    def _working(self) -> tuple[S, ...]:
        return tuple(dict.fromkeys(row.source for row in self.table if row.event in _ONWARD))

    def working(self) -> tuple[S, ...]:
        """The states in which a worker acts, in the order of the table."""
        return self._working

    def after(self, state: S) -> tuple[S, ...]:
        """The states in which a worker acts after the work of this one is done."""
        return self._working[self._working.index(state) + 1 :]

    def task(self, state: S) -> Task:
        """The task of a state in which a worker acts."""
        task = self.facts[state].task
        if task is None:
            raise IllegalTransition(f"no worker acts on a {state} {self.name}")
        return task

    def tasks(self) -> tuple[Task, ...]:
        return tuple(self.task(state) for state in self.working())

    def where(self, fact: Callable[[StateFacts], bool]) -> tuple[S, ...]:
        """The states that `fact` is true of."""
        return tuple(state for state in self.states() if fact(self.facts[state]))

    def states(self) -> tuple[S, ...]:
        return tuple(type(self.initial))


_ONWARD = (Event.ACQUIRE, Event.SUCCEED)
