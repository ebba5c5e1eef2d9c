"""The principal behind an operator's verb, and what the verbs have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pipeline.errors import ArklineError
from pipeline.principal import Principal, Role
from pipeline.records import Batch, Job, Record
from pipeline.remedies import Action, Remedy
from pipeline.settings import Settings
from pipeline.states import BATCH, JOB, Event, IllegalTransition, Machine, Raiser, S
from tasks import after_move
from tasks.publisher import publisher
from zkstate import holds
from zkstate.errors import Busy, Stale
from zkstate.journal import Stamp
from zkstate.session import Session

if TYPE_CHECKING:
    from pipeline.inventory.sql import SqlInventory

R = TypeVar("R")

TRIES = 20
"""Times that a verb reads a job or a batch again that moved between the read and the write."""


def _no_progress(done: int, total: int) -> None:
    del done, total


@dataclass(frozen=True)
class Run:
    """How a long verb reports its progress and learns that it should stop.

    `on_progress` gets the number of jobs and batches that are done and their total. `should_stop` is asked
    before each of them; a verb that stopped can be repeated, and does the rest.
    """

    on_progress: Callable[[int, int], None] = _no_progress
    should_stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Operator:
    """The principal, the reason and the services of a verb; `inventory` is opened only for a tombstone."""

    session: Session
    settings: Settings
    inventory: Callable[[], SqlInventory]
    principal: Principal
    reason: str = ""
    run: Run = field(default_factory=Run)

    @property
    def by(self) -> str:
        return self.principal.name

    @property
    def because(self) -> str:
        return f": {self.reason}" if self.reason else ""

    @property
    def stamp(self) -> Stamp:
        return Stamp(by=self.by, reason=self.reason, via=self.principal.interface)

    def require(self, action: str, collection: str | None = None) -> None:
        """Forbidden unless the principal is an operator of the collection or, without one, of all."""
        self.principal.require(Role.OPERATOR, action, collection)


class VerbResult(Record):
    """The effect of a verb on a job or a batch; `version` is that of its status after the verb."""

    id: str
    was: str
    now: str
    version: int | None = None
    sent: bool = True
    """False if Redis did not take a message; the sweep sends the message later."""
    folder_left: str = ""
    """The working directory, if it is not on this machine and so was not removed."""


class Moved(ArklineError):
    """The job or batch has changed since the version that the caller saw; nothing was changed."""

    def __init__(self, name: str, state: str, at: datetime, by: str, possible: Iterable[Event]) -> None:
        self.name, self.state, self.at, self.by = name, state, at, by
        self.possible = tuple(sorted(possible))
        who = f", changed by {by}" if by else ""
        super().__init__(
            f"{name} has changed since you read it: {state} since {at:%Y-%m-%d %H:%M:%S} UTC{who}; "
            f"possible now: {', '.join(self.possible) or 'nothing'}"
        )


def check_seen(thing: Job | Batch, seen: int | None) -> None:
    """Moved unless the job or batch still has the version that the caller saw; None accepts any version."""
    if seen is None or thing.version == seen:
        return
    by = thing.history[-1].by if thing.history else ""
    if isinstance(thing, Job):
        status = thing.status
        possible = JOB.possible(status.status, Raiser.OPERATOR, status.last_successful_status, status.kind)
        raise Moved(thing.jid, thing.status.status, thing.status.last_modification_date, by, possible)
    raise Moved(
        thing.bid,
        thing.status.status,
        thing.status.last_modified,
        by,
        BATCH.possible(thing.status.status, Raiser.OPERATOR),
    )


def retry_stale(name: str, act: Callable[[], R]) -> R:
    """Call `act` until no other change comes between its read and its write."""
    for _ in range(TRIES):
        try:
            return act()
        except Stale:
            continue
    raise Busy(f"{name} keeps changing state; try again")


def check(thing: Job | Batch, event: Event) -> None:
    """IllegalTransition, with what is possible instead, unless the table lets an operator do this now."""
    if isinstance(thing, Job):
        status = thing.status
        _check_row(JOB, thing.jid, status.status, event)
        JOB.next(status.status, event, status.last_successful_status, status.kind)
    else:
        _check_row(BATCH, thing.bid, thing.status.status, event)


def _check_row(machine: Machine[S], name: str, state: S, event: Event) -> None:
    verbs = machine.events(state, Raiser.OPERATOR)
    if event not in verbs:
        possible = ", ".join(sorted(verbs)) or "nothing"
        raise IllegalTransition(
            f"{name} is {state}: an operator cannot {event} it; possible in this state: {possible}"
        )


def refuse_while_on_hold(session: Session, profile_name: str, name: str) -> None:
    hold = holds.collection_hold(session, profile_name)
    if hold is not None:
        by = f" by {hold.by}" if hold.by else ""
        raise IllegalTransition(
            f"{name} cannot be released while its collection {profile_name} is on hold{by}: the next worker "
            "would hold it again"
        ).with_remedies(Remedy(Action.RELEASE_COLLECTION, profile_name))


def feed(operator: Operator) -> None:
    """Dispatch as many pending jobs as there is room for."""
    after_move.feed(publisher(operator.settings), operator.session, operator.settings)


def follow(session: Session, settings: Settings, moved: Job | Batch) -> bool:
    """Do what follows a move, without feeding; False if Redis did not take a message."""
    return after_move.follow(publisher(settings), session, moved)


def remove_folder(operator: Operator, folder: Path) -> str:
    """Remove a working directory; its path if it is not on this machine and so stays."""
    working = operator.settings.working
    if not working.is_dir() or not folder.is_relative_to(working):
        return str(folder)
    after_move.remove_folder(folder)
    return ""
