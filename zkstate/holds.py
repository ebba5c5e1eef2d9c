"""An operator's holds on collections, and the pause of the whole queue."""

from urllib.parse import unquote

from zkstate import codec, journal, paths
from zkstate.errors import Contended
from zkstate.journal import Action, JournalEntry, Stamp
from zkstate.session import Session
from zkstate.transaction import Create, Delete, Operation, Role


class Hold(Stamp):
    """A hold of a collection or a pause of the queue: person, time and reason."""


_NOBODY = Stamp()


def hold_collection(session: Session, profile_name: str, hold: Hold) -> bool:
    """False if the collection is on hold already: the first hold stays."""
    path, actions = paths.hold(profile_name), paths.collection_actions(profile_name)
    return _place(session, path, actions, Action.HOLD, hold)


def release_collection(session: Session, profile_name: str, stamp: Stamp = _NOBODY) -> bool:
    """False if the collection was not on hold."""
    path, actions = paths.hold(profile_name), paths.collection_actions(profile_name)
    return _remove(session, path, actions, Action.RELEASE, stamp)


def collection_hold(session: Session, profile_name: str) -> Hold | None:
    return _read(session, paths.hold(profile_name))


def collection_actions(session: Session, profile_name: str) -> tuple[JournalEntry, ...]:
    return journal.read(session, paths.collection_actions(profile_name))


def held_collections(session: Session) -> dict[str, Hold]:
    names = sorted(unquote(name) for name in session.children(paths.HOLDS))
    holds = ((name, collection_hold(session, name)) for name in names)
    return {name: hold for name, hold in holds if hold is not None}


def pause(session: Session, hold: Hold) -> bool:
    """False if the queue is paused already: the first pause stays."""
    return _place(session, paths.PAUSE, paths.QUEUE_ACTIONS, Action.PAUSE, hold)


def unpause(session: Session, stamp: Stamp = _NOBODY) -> bool:
    """False if the queue was not paused."""
    return _remove(session, paths.PAUSE, paths.QUEUE_ACTIONS, Action.UNPAUSE, stamp)


def paused(session: Session) -> Hold | None:
    return _read(session, paths.PAUSE)


def queue_actions(session: Session) -> tuple[JournalEntry, ...]:
    return journal.read(session, paths.QUEUE_ACTIONS)


def _read(session: Session, path: str) -> Hold | None:
    node = session.get_many([path])[0]
    return codec.decode(Hold, node[0] or b"{}", path) if node else None


def _place(session: Session, path: str, actions: str, action: Action, hold: Hold) -> bool:
    if session.exists(path) is not None:
        return False
    return _commit(session, actions, action, hold, Create(path, codec.encode(hold), role=Role.SHARED))


def _remove(session: Session, path: str, actions: str, action: Action, stamp: Stamp) -> bool:
    if session.exists(path) is None:
        return False
    return _commit(session, actions, action, stamp, Delete(path, role=Role.SHARED))


def _commit(session: Session, actions: str, action: Action, stamp: Stamp, effect: Operation) -> bool:
    """False if another operator had the same effect first."""
    try:
        journal.commit(session, actions, action, stamp, (effect,))
    except Contended:
        return False
    return True
