"""Increasing numbers managed by ZooKeeper."""

from kazoo.exceptions import NodeExistsError, NoNodeError

from zkstate import paths
from zkstate.session import Session


def next_number(session: Session, name: str) -> int:
    """A number never given before; a crash may leave a gap.

    It is the version that an unconditional write gets, so that many writers never contend; a write whose
    answer was lost is made again, which leaves a gap, too.
    """
    path = paths.counter(name)
    while True:
        try:
            return int(session.ask(session.zk.set_async, path, b"").version)
        except NoNodeError:
            ensure_node(session, path)


def ensure_node(session: Session, path: str, data: bytes = b"") -> None:
    """Create a node unless it is there already."""
    try:
        session.ask(session.zk.create_async, path, data, makepath=True)
    except NodeExistsError:
        return
