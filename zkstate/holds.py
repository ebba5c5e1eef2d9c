"""An operator's holds on collections, and the pause of the whole queue."""

from datetime import datetime
from urllib.parse import unquote

from kazoo.exceptions import NoNodeError
from pydantic import Field

from pipeline.records import Record, now
from zkstate import codec, counters, paths
from zkstate.session import Session


class Hold(Record):
    """Who stopped it, when, and why."""

    by: str = ""
    reason: str = ""
    at: datetime = Field(default_factory=now)


def hold_collection(session: Session, profile_name: str, hold: Hold) -> None:
    counters.ensure_node(session, paths.hold(profile_name), codec.encode(hold))


def release_collection(session: Session, profile_name: str) -> bool:
    """False if it was not on hold."""
    return _remove(session, paths.hold(profile_name))


def collection_hold(session: Session, profile_name: str) -> Hold | None:
    return _read(session, paths.hold(profile_name))


def held_collections(session: Session) -> dict[str, Hold]:
    names = sorted(unquote(name) for name in session.children(paths.HOLDS))
    found = ((name, collection_hold(session, name)) for name in names)
    return {name: hold for name, hold in found if hold is not None}


def pause(session: Session, hold: Hold) -> None:
    counters.ensure_node(session, paths.PAUSE, codec.encode(hold))


def unpause(session: Session) -> bool:
    """False if it was not paused."""
    return _remove(session, paths.PAUSE)


def paused(session: Session) -> Hold | None:
    return _read(session, paths.PAUSE)


def _read(session: Session, path: str) -> Hold | None:
    found = session.get_many([path])[0]
    return codec.decode(Hold, found[0] or b"{}", path) if found else None


def _remove(session: Session, path: str) -> bool:
    try:
        session.ask(session.zk.delete_async, path)
    except NoNodeError:
        return False
    return True
