"""Increasing numbers managed by ZooKeeper."""

from kazoo.exceptions import NodeExistsError, NoNodeError

from zkstate import paths
from zkstate.session import ANSWER_TIMEOUT, Session


def next_number(session: Session, name: str) -> int:
    """A number never given before; a crash may leave a gap.

    It is the version that an unconditional write gets, so that many writers never contend.
    """
    path = paths.counter(name)
    while True:
        try:
            return int(session.zk.set_async(path, b"").get(timeout=ANSWER_TIMEOUT).version)
        except NoNodeError:
            plant(session, path)


def plant(session: Session, path: str, data: bytes = b"") -> None:
    """Create a node unless it is there already."""
    try:
        session.zk.create_async(path, data, makepath=True).get(timeout=ANSWER_TIMEOUT)
    except NodeExistsError:
        return
