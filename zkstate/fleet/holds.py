"""Holds on collections, the pause of the whole queue, drains of workers, and the journals of all of them.

`collection` is a collection's name; None stands for the queue, whose hold is the pause.
"""

from collections.abc import Callable
from urllib.parse import unquote

from zkstate import codec, paths
from zkstate.connection import remembered
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Delete, Role
from zkstate.errors import Contended
from zkstate.record import journal
from zkstate.record.journal import JournalAction, JournalEntry, Stamp
from zkstate.record.node import Node


class Hold(Stamp):
    """A hold of a collection, a pause of the queue or a drain of a worker: person, time and reason."""

    until_stop: bool | None = None
    """Of a drain: it ends when the worker stops. Absent otherwise, and before 0.4.0."""


def place(session: Session, hold: Hold, collection: str | None = None, *, worker: str = "") -> bool:
    """Hold the collection, pause the queue or drain the worker; False if it is already: the first stays."""
    effect = Create(_path(collection, worker), codec.encode(hold), role=Role.SHARED)
    return _commit(session, effect, hold, collection, worker)


def end(session: Session, stamp: Stamp, collection: str | None = None, *, worker: str = "") -> bool:
    """End the hold, the pause or the drain; False if there was none."""
    effect = Delete(_path(collection, worker), role=Role.SHARED)
    return _commit(session, effect, stamp, collection, worker)


def end_with_worker(session: Session, worker: str) -> bool:
    """End the drain of a worker that stops or has stopped, if it was to last until then.

    False if nothing changes.
    """
    drain = _node(paths.drain(worker)).read(session)
    if drain is None or not drain.until_stop:
        return False
    return end(session, Stamp(by=f"worker {worker}", reason="it stopped"), worker=worker)


def _path(collection: str | None, worker: str) -> str:
    return paths.drain(worker) if worker else paths.hold(collection)


def _commit(
    session: Session, effect: Create | Delete, stamp: Stamp, collection: str | None, worker: str
) -> bool:
    """Commit the effect with its journal entry; False if nothing changes, or another operator was first."""
    if worker:
        actions = JournalAction.DRAIN, JournalAction.UNDO_DRAIN
    elif collection is None:
        actions = JournalAction.PAUSE, JournalAction.UNPAUSE
    else:
        actions = JournalAction.HOLD, JournalAction.RELEASE
    ends = isinstance(effect, Delete)
    if (session.exists(effect.path) is None) is ends:
        return False  # before a journal is created for nothing
    action = actions[ends]
    try:
        journal.commit(session, paths.actions(collection), action, stamp, effect, target=worker)
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
    """Whether an operator drained the worker; an unreadable drain is in force too."""
    return session.exists(paths.drain(worker)) is not None


def is_held(session: Session, profile_name: str) -> bool:
    """Whether the collection is on hold. Every job asks, so the answer is cached until it changes."""
    hold = _node(paths.hold(profile_name))
    return remembered.read(session, hold.path, hold.decode).value is not None


def _node(path: str) -> Node[Hold]:
    """The node of a hold; an unreadable hold is in force until somebody ends it."""
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
    """Record an action on the fleet that changes nothing in ZooKeeper, or takes many transactions."""
    journal.commit(session, paths.actions(None), action, stamp, target=target)
