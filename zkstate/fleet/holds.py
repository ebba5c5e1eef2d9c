"""Holds on collections, the pause of the whole queue, drains of workers, and the journals of all of them.

`collection` is a collection's name; None is the queue, whose hold is the pause.
"""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from zkstate import codec, paths
from zkstate.connection import remembered
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Delete, Operation, Role
from zkstate.errors import Contended
from zkstate.record import journal
from zkstate.record.journal import JournalAction, JournalEntry, Stamp
from zkstate.record.node import Node


class Hold(Stamp):
    """A hold of a collection, a pause of the queue or a drain of a worker: person, time and reason."""


@dataclass(frozen=True)
class _Subject:
    """What a hold keeps back: the hold's node, the journal of its actions, and the actions themselves."""

    path: str
    entries: str
    begin: JournalAction
    end: JournalAction
    target: str = ""


def _collection(name: str | None) -> _Subject:
    begin, end = (
        (JournalAction.PAUSE, JournalAction.UNPAUSE)
        if name is None
        else (JournalAction.HOLD, JournalAction.RELEASE)
    )
    return _Subject(paths.hold(name), paths.actions(name), begin, end)


def _worker(name: str) -> _Subject:
    return _Subject(
        paths.drain(name), paths.actions(None), JournalAction.DRAIN, JournalAction.UNDO_DRAIN, name
    )


def place(session: Session, hold: Hold, collection: str | None = None) -> bool:
    """False if there is a hold already: the first hold stays."""
    return _place(session, _collection(collection), hold)


def end(session: Session, stamp: Stamp, collection: str | None = None) -> bool:
    """False if there was no hold."""
    return _end(session, _collection(collection), stamp)


def drain(session: Session, hold: Hold, worker: str) -> bool:
    """False if the worker is drained already: the first drain stays."""
    return _place(session, _worker(worker), hold)


def undo_drain(session: Session, stamp: Stamp, worker: str) -> bool:
    """False if the worker was not drained."""
    return _end(session, _worker(worker), stamp)


def _place(session: Session, subject: _Subject, hold: Hold) -> bool:
    if session.exists(subject.path) is not None:
        return False
    effect = Create(subject.path, codec.encode(hold), role=Role.SHARED)
    return _commit(session, subject, subject.begin, hold, effect)


def _end(session: Session, subject: _Subject, stamp: Stamp) -> bool:
    if session.exists(subject.path) is None:
        return False
    return _commit(session, subject, subject.end, stamp, Delete(subject.path, role=Role.SHARED))


def _commit(
    session: Session, subject: _Subject, action: JournalAction, stamp: Stamp, effect: Operation
) -> bool:
    """False if another operator had the same effect first."""
    try:
        journal.commit(session, subject.entries, action, stamp, effect, target=subject.target)
    except Contended:
        return False
    finally:
        remembered.forget(session, effect.path)
    return True


def paused(session: Session) -> Hold | None:
    return _node(paths.hold(None)).read(session)


def collection_hold(session: Session, profile_name: str) -> Hold | None:
    return _node(paths.hold(profile_name)).read(session)


def is_drained(session: Session, worker: str) -> bool:
    """Whether an operator drained the worker; unreadable, the drain holds too."""
    return session.exists(paths.drain(worker)) is not None


def is_held(session: Session, profile_name: str) -> bool:
    """Whether the collection is on hold. Every job asks, so the answer is remembered until it changes."""
    hold = _node(paths.hold(profile_name))
    return remembered.read(session, hold.path, hold.decode).value is not None


def _node(path: str) -> Node[Hold]:
    """An unreadable hold holds until somebody ends it."""
    return Node(path, Hold, lambda damage: Hold(reason=str(damage)))


def held_collections(session: Session) -> dict[str, Hold]:
    return _all(session, paths.HOLDS, paths.hold)


def drained(session: Session) -> dict[str, Hold]:
    """The workers that an operator drained, whether they answer or not."""
    return _all(session, paths.DRAINS, paths.drain)


def _all(session: Session, folder: str, path_of: Callable[[str], str]) -> dict[str, Hold]:
    names = sorted(unquote(name) for name in session.children(folder))
    holds = ((name, _node(path_of(name)).read(session)) for name in names)
    return {name: hold for name, hold in holds if hold is not None}


def stops(session: Session) -> dict[str, Hold]:
    """The holds by collection, and the pause of the queue under the empty name."""
    pause = paused(session)
    return ({"": pause} if pause else {}) | held_collections(session)


def actions(session: Session, collection: str | None = None) -> tuple[JournalEntry, ...]:
    """The last actions of operators, oldest first; without a collection those on the queue and the fleet."""
    return journal.read(session, paths.actions(collection))


def record_action(session: Session, action: JournalAction, stamp: Stamp, target: str = "") -> None:
    """Record an action on the fleet that changes nothing in ZooKeeper, or much in many transactions."""
    journal.commit(session, paths.actions(None), action, stamp, target=target)
