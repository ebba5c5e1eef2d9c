"""Holds on collections, the pause of the whole queue, and the journals of what operators did to both.

`collection` is a collection's name; None is the queue, whose hold is the pause.
"""

from functools import partial
from urllib.parse import unquote

from zkstate import codec, journal, paths, remembered
from zkstate.errors import Contended, Corrupt
from zkstate.journal import Action, JournalEntry, Stamp
from zkstate.session import Session
from zkstate.transaction import Create, Delete, Operation, Role


class Hold(Stamp):
    """A hold of a collection or a pause of the queue: person, time and reason."""


def place(session: Session, hold: Hold, collection: str | None = None) -> bool:
    """False if there is a hold already: the first hold stays."""
    path = paths.hold(collection)
    if session.exists(path) is not None:
        return False
    action = Action.PAUSE if collection is None else Action.HOLD
    return _commit(session, collection, action, hold, Create(path, codec.encode(hold), role=Role.SHARED))


def end(session: Session, stamp: Stamp, collection: str | None = None) -> bool:
    """False if there was no hold."""
    path = paths.hold(collection)
    if session.exists(path) is None:
        return False
    action = Action.UNPAUSE if collection is None else Action.RELEASE
    return _commit(session, collection, action, stamp, Delete(path, role=Role.SHARED))


def _commit(
    session: Session, collection: str | None, action: Action, stamp: Stamp, effect: Operation
) -> bool:
    """False if another operator had the same effect first."""
    try:
        journal.commit(session, paths.actions(collection), action, stamp, effect)
    except Contended:
        return False
    finally:
        remembered.forget(session, effect.path)
    return True


def paused(session: Session) -> Hold | None:
    return _read(session, None)


def collection_hold(session: Session, profile_name: str) -> Hold | None:
    return _read(session, profile_name)


def is_held(session: Session, profile_name: str) -> bool:
    """Whether the collection is on hold. Every job asks, so the answer is remembered until it changes."""
    path = paths.hold(profile_name)
    return remembered.read(session, path, partial(_decoded, path)).value is not None


def _read(session: Session, collection: str | None) -> Hold | None:
    path = paths.hold(collection)
    node = session.find(path)
    return None if node is None else _decoded(path, node[0])


def _decoded(path: str, data: bytes) -> Hold:
    try:
        return codec.decode(Hold, data or b"{}", path)
    except Corrupt as damage:
        return Hold(reason=str(damage))  # it holds until somebody ends it


def held_collections(session: Session) -> dict[str, Hold]:
    names = sorted(unquote(name) for name in session.children(paths.HOLDS))
    holds = ((name, collection_hold(session, name)) for name in names)
    return {name: hold for name, hold in holds if hold is not None}


def stops(session: Session) -> dict[str, Hold]:
    """The holds by collection, and the pause of the queue under the empty name."""
    pause = paused(session)
    return ({"": pause} if pause else {}) | held_collections(session)


def actions(session: Session, collection: str | None = None) -> tuple[JournalEntry, ...]:
    """The last actions of operators, oldest first; without a collection those on the queue and the fleet."""
    return journal.read(session, paths.actions(collection))


def record_action(session: Session, action: Action, stamp: Stamp, target: str = "") -> None:
    """Record an action on the fleet that changes nothing in ZooKeeper, or much in many transactions."""
    journal.commit(session, paths.actions(None), action, stamp, target=target)
