"""Increasing numbers from ZooKeeper, and nodes that are created once."""

from kazoo.exceptions import NodeExistsError, NoNodeError

from zkstate import paths
from zkstate.session import Session


def next_number(session: Session, name: str) -> int:
    """A number that was never assigned before; a crash may leave a gap.

    The number is the version after an unconditional write, so that writers never contend. A write whose
    answer was lost is repeated, which leaves a gap too.
    """
    path = paths.counter(name)
    while True:
        try:
            return int(session.ask(session.zk.set_async, path, b"").version)
        except NoNodeError:
            ensure_node(session, path)


def ensure_node(session: Session, path: str, data: bytes = b"") -> None:
    """Create a node unless it exists."""
    try:
        session.ask(session.zk.create_async, path, data, makepath=True)
    except NodeExistsError:
        return
