"""The person behind an operator's verb, and what the verbs have in common."""

import getpass
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.inventory.sql import SqlInventory
from pipeline.records import Batch, Job, Record
from pipeline.settings import Settings
from pipeline.states import BATCH, JOB, Event, IllegalTransition, Machine, Raiser, S
from tasks import after_move
from tasks.publisher import publisher
from zkstate import holds
from zkstate.session import Session

NOT_SENT = (
    "Redis does not answer, so no worker was notified; nothing is lost: ZooKeeper has the change, and the "
    "work continues once Redis is back"
)

TRIES = 20
"""Times that a verb looks again when what it acts on has moved meanwhile."""


@dataclass(frozen=True)
class Operator:
    """Who acts and why, and what they act with; `inventory` is opened only for a tombstone."""

    session: Session
    settings: Settings
    inventory: Callable[[], SqlInventory]
    by: str
    reason: str = ""

    @property
    def because(self) -> str:
        return f": {self.reason}" if self.reason else ""


class VerbResult(Record):
    """What a verb did to a job or a batch."""

    id: str
    was: str
    now: str
    note: str = ""


def this_user() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


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
            f"{name} cannot be released while its collection {profile_name} is on hold{by}: it would be held "
            f"again; release the collection, with all that is held in it, by "
            f"`arkline release --collection {profile_name} --jobs`"
        )


def feed(operator: Operator) -> None:
    """Dispatch as many pending jobs as there is room for."""
    after_move.feed(publisher(operator.settings), operator.session, operator.settings)


def follow(session: Session, settings: Settings, moved: Job | Batch) -> str:
    """Do what follows a move, without feeding; a note for the operator if Redis did not take a message."""

    return "" if after_move.follow(publisher(settings), session, moved) else NOT_SENT


def remove_folder(operator: Operator, folder: Path) -> str:
    """Remove a working directory; why it was left, if this machine does not see it."""
    from tasks.after_move import remove_folder

    working = operator.settings.working
    if not working.is_dir() or not folder.is_relative_to(working):
        return f"its folder {folder} is not on this machine: run `arkline cleanup` where working storage is"
    remove_folder(folder)
    return ""
