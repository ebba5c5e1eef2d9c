"""kazoo's transaction, made to say what happened.

kazoo returns a refusal as a value and its `with` form hides it; here a refused transaction raises,
and one whose answer was lost is settled by its token.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import (
    NodeExistsError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)

from zkstate.errors import Ambiguous, Busy, Missing, Refused, Stale
from zkstate.session import ANSWER_TIMEOUT, BROKEN, Session


@dataclass(frozen=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True)
class Put:
    """Set a node's data; `version` None means whatever it is, and is right only behind another fence."""

    path: str
    data: bytes
    version: int | None = None


@dataclass(frozen=True)
class Delete:
    path: str


@dataclass(frozen=True)
class Check:
    path: str
    version: int


Operation = Create | Put | Delete | Check


def commit(session: Session, operations: Sequence[Operation]) -> list[Any]:
    """All of the operations or none: kazoo's results, or Refused naming the first culprit, or Ambiguous."""
    transaction = session.zk.transaction()
    for operation in operations:
        match operation:
            case Create(path, data, ephemeral):
                transaction.create(path, data, ephemeral=ephemeral)
            case Put(path, data, version):
                transaction.set_data(path, data, version=-1 if version is None else version)
            case Delete(path):
                transaction.delete(path)
            case Check(path, version):
                transaction.check(path, version)
    try:
        results: list[Any] = transaction.commit_async().get(timeout=ANSWER_TIMEOUT)
    except BROKEN as error:
        raise Ambiguous(f"ZooKeeper at {session.hosts} did not confirm a change") from error
    culprit = _culprit(results)
    if culprit is not None:
        at, reason = culprit
        raise Refused(operations[at].path, reason) from reason
    return results


def _culprit(results: Sequence[Any]) -> tuple[int, ZookeeperError] | None:
    bad = [(at, each) for at, each in enumerate(results) if isinstance(each, ZookeeperError)]
    real = [pair for pair in bad if not isinstance(pair[1], RolledBackError | RuntimeInconsistency)]
    return next(iter(real or bad), None)


def fenced(
    session: Session,
    status: Put,
    others: Sequence[Operation],
    is_mine: Callable[[bytes], bool],
) -> int:
    """Commit a new status together with `others`, exactly once; the status node's new version.

    `status.version` is the fence. `is_mine` recognises the written status by its token, which settles
    a commit whose answer was lost. Raises Stale when somebody else was first, Refused otherwise.
    """
    if status.version is None:
        raise TypeError("a fenced write needs the version that was read")
    deadline = time.monotonic() + 2 * ANSWER_TIMEOUT
    while True:
        try:
            return int(commit(session, (status, *others))[0].version)
        except Refused as refusal:
            if refusal.path == status.path:
                raise Stale(f"{status.path} has changed since it was read") from refusal
            raise
        except Ambiguous:
            if not session.wait_connected(deadline):
                raise
        try:
            data, stat = session.get_synced(status.path)
        except Missing as gone:
            raise Stale(f"{status.path} has been deleted") from gone
        if is_mine(data):
            return int(stat.version)
        if stat.version != status.version:
            raise Stale(f"{status.path} has changed since it was read")


def fenced_under(
    session: Session,
    status: Put,
    others: Sequence[Operation],
    is_mine: Callable[[bytes], bool],
    lock: str,
) -> int:
    """`fenced`, for a thing that is locked at `lock`: Busy if somebody else holds it, Stale if it is gone."""
    try:
        return fenced(session, status, others, is_mine)
    except Refused as refusal:
        thing = lock.split("/")[-2]
        if refusal.path == lock and is_taken(refusal):
            raise Busy(f"{thing} is being worked on") from refusal
        if refusal.path == lock:
            raise Stale(f"the lock of {thing} is gone") from refusal
        raise


def is_taken(refusal: Refused) -> bool:
    return isinstance(refusal.error, NodeExistsError)
