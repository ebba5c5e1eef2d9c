"""kazoo's transactions, with an explicit outcome.

kazoo returns a refusal as a value, and its `with` form hides the refusal; here a refused transaction
raises, and the token tells the outcome of a transaction whose answer was lost.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

from kazoo.exceptions import (
    NodeExistsError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)
from kazoo.security import ACL

from pipeline import codes
from pipeline.errors import Action, ArklineError, Remedy
from zkstate.connection.session import BROKEN, Session
from zkstate.direct import requests
from zkstate.direct.client import root_prefix, whole_path
from zkstate.direct.requests import MultiRequest, NodeTemplate
from zkstate.errors import (
    Ambiguous,
    Busy,
    Contended,
    Missing,
    Outdated,
    Refused,
    Stale,
    Taken,
    TooBig,
    Unwritable,
)

TRANSACTION_LIMIT = 512 * 1024
"""Bytes of a transaction: half of ZooKeeper's own limit.

A server closes the connection on a request of 1,048,576 bytes (`jute.maxbuffer`), which looks like an
outage, and would do so again with every retry.
"""

DEFAULT_BUFFER = 0xFFFFF
"""Bytes of the largest request that a server accepts by default."""

SURE_SIZE = 16 * 1024
"""Bytes of a transaction that every server accepts: no record could be kept with less."""

OPERATION_BYTES = 128
"""Upper bound of what an operation adds to its path and its data: header, flags and an access list."""


class Role(Enum):
    """The purpose of an operation, which determines the error if ZooKeeper refuses the operation."""

    PLAIN = "plain"
    """A refusal is not expected: Refused."""
    FENCE = "fence"
    """The record must not have changed since it was read: Stale."""
    LOCK = "lock"
    """The lock must be there (else Stale), or must not be there (else Busy)."""
    SHARED = "shared"
    """A value computed from what was read, which others change too: Contended; read again and retry."""
    RESERVATION = "reservation"
    """A reservation of space that was counted before: Outdated; count again."""
    NAME = "name"
    """A name that must be unique: Taken."""


@dataclass(frozen=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    role: Role = Role.PLAIN


@dataclass(frozen=True)
class Put:
    """Set a node's data; `version` None means any version, and is only safe behind another fence."""

    path: str
    data: bytes
    version: int | None = None
    role: Role = Role.PLAIN


@dataclass(frozen=True)
class Delete:
    path: str
    role: Role = Role.PLAIN


@dataclass(frozen=True)
class Check:
    path: str
    version: int
    role: Role = Role.FENCE


@dataclass(frozen=True)
class CreateAll:
    """Create a group of nodes from a template; operations of other kinds must come before it."""

    template: NodeTemplate
    name: str
    encoded: bytes

    @property
    def path(self) -> str:
        """The path of the first node."""
        return self.nodes[0].path

    @property
    def nodes(self) -> tuple[Create, ...]:
        """Without their data."""
        return tuple(Create(f"{before}{self.name}{behind}") for before, behind in self.template.paths)


Single = Create | Put | Delete | Check
Operation = Single | CreateAll


def commit(session: Session, operations: Sequence[Operation]) -> list[Any]:
    """Apply all of the operations or none; returns kazoo's results, without those of CreateAll.

    Raises the error for the role of the first refused operation, Ambiguous if the answer was lost, or TooBig.
    """
    return settle(session, send(session, operations))


@dataclass(frozen=True)
class Sent:
    """A transaction that was sent, in the order of its session, and whose answer is pending."""

    operations: Sequence[Operation]
    answer: Any
    size: int
    """Bytes of the request."""


def send(session: Session, operations: Sequence[Operation]) -> Sent:
    """The first half of `commit`: send without waiting; TooBig if nothing was sent."""
    _check_size(session, operations)
    chroot, access = session.zk.chroot, session.zk.access
    encoded, unread = list[bytes](), 0  # bytes
    for operation in operations:
        if isinstance(operation, CreateAll):
            encoded.append(operation.encoded)
            unread += operation.template.answer_bytes
        elif unread:
            raise TypeError(f"the operation on {operation.path} comes after nodes of a template")
        else:
            encoded.append(_encoded(operation, whole_path(chroot, operation.path), access))
    request = MultiRequest(encoded, unread)
    return Sent(operations, session.zk.request(request), len(request.serialize()))


def _encoded(operation: Single, path: str, access: Sequence[ACL]) -> bytes:
    match operation:
        case Create(_, data, ephemeral):
            return requests.create(path, data, access, int(ephemeral))
        case Put(_, data, version):
            return requests.put(path, data, -1 if version is None else version)
        case Delete():
            return requests.delete(path)
        case Check(_, version):
            return requests.check(path, version)


def settle(session: Session, sent: Sent) -> list[Any]:
    """Wait for the answer: the second half of `commit`; `server-limit` if the server refuses the size."""
    try:
        results: list[Any] = sent.answer.get(timeout=session.answer_timeout)
    except BROKEN as error:
        if sent.size > SURE_SIZE and session.refuses_size(sent.size):
            raise Unwritable(
                f"ZooKeeper at {session.hosts} ends the connection on a request of {sent.size:,} bytes, and "
                f"arkline's have up to {TRANSACTION_LIMIT:,}: start every server with "
                f"-Djute.maxbuffer={DEFAULT_BUFFER} (ZooKeeper's default) or more, then resume what failed",
                code=codes.SERVER_LIMIT,
            ).with_remedies(Remedy(Action.RAISE_LIMIT)) from error
        raise Ambiguous(f"ZooKeeper at {session.hosts} did not confirm a change") from error
    refused = _first_refusal(results)
    if refused is not None:
        position, reason = refused
        operation = next(islice(_singles(sent.operations), position, None))
        raise _refusal(operation, reason) from reason
    return results


def takes_largest(session: Session) -> bool:
    """False if the server of this session ends the connection on the largest transaction.

    Asked once for each connection, since servers differ, by a request that changes nothing.
    """
    key, connection = "takes-largest", session.connections
    known = session.remembered.get(key)
    if not isinstance(known, tuple) or known[0] != connection:
        known = connection, not session.refuses_size(TRANSACTION_LIMIT)
        session.remembered[key] = known
    return bool(known[1])


def _singles(operations: Sequence[Operation]) -> Iterator[Single]:
    """The operations, as ZooKeeper counts them."""
    for operation in operations:
        yield from operation.nodes if isinstance(operation, CreateAll) else (operation,)


def template(session: Session, name: str, nodes: Sequence[tuple[str, bytes | None]]) -> NodeTemplate:
    """The template for `CreateAll` of these nodes, whose paths must need no normalization by kazoo."""
    return NodeTemplate.cut(name, nodes, root_prefix(session.zk.chroot), session.zk.access)


def size_of(session: Session, operations: Sequence[Operation]) -> int:
    """The bytes of a transaction of these operations, or a few more."""
    beside = OPERATION_BYTES + len(session.zk.chroot)
    return sum([beside + _own_bytes(operation) for operation in operations])


def _own_bytes(operation: Operation) -> int:
    """Bytes of the path and the data of an operation."""
    if isinstance(operation, CreateAll):
        return len(operation.encoded)
    data = len(operation.data) if isinstance(operation, Create | Put) else 0
    return len(operation.path.encode()) + data


def _check_size(session: Session, operations: Sequence[Operation]) -> None:
    size = size_of(session, operations)
    if size > TRANSACTION_LIMIT:
        largest = max(operations, key=lambda operation: size_of(session, [operation]))
        raise TooBig(
            f"a transaction of {size:,} bytes, which would change {largest.path} "
            f"({size_of(session, [largest]):,} bytes), is above the limit of {TRANSACTION_LIMIT:,} bytes: "
            "shorten what the object or the batch carries; no setting raises the limit"
        )


def _first_refusal(results: Sequence[Any]) -> tuple[int, ZookeeperError] | None:
    """The position and error of the operation at fault; the others were only rolled back with it."""
    errors = [(at, result) for at, result in enumerate(results) if isinstance(result, ZookeeperError)]
    causes = [pair for pair in errors if not isinstance(pair[1], RolledBackError | RuntimeInconsistency)]
    return next(iter(causes or errors), None)


_REFUSED = {
    Role.PLAIN: Refused,
    Role.SHARED: Contended,
    Role.RESERVATION: Outdated,
    Role.NAME: Taken,
}


def _refusal(operation: Single, error: ZookeeperError) -> ArklineError:
    path = operation.path
    if operation.role is Role.FENCE:
        return Stale(f"{path} has changed since it was read")
    if operation.role is Role.LOCK:
        owner = path.split("/")[-2]
        if isinstance(error, NodeExistsError):
            return Busy(f"{owner} is being worked on")
        return Stale(f"the lock of {owner} is gone")
    return _REFUSED[operation.role](f"{path}: {type(error).__name__} {error}".rstrip())


def fenced(
    session: Session,
    status: Put,
    others: Sequence[Operation],
    is_mine: Callable[[bytes], bool],
    is_as_read: Callable[[bytes], bool] = lambda _: True,
) -> tuple[int, Sequence[Any]]:
    """Commit a new status together with `others`, exactly once.

    Returns the status node's new version, and kazoo's results of `others`; none if the answer was lost.
    `status.version` is the fence: Stale if another writer was first. `is_mine` recognises the written
    status by its token, which settles a commit whose answer was lost. `is_as_read` recognises the status that
    was read: behind a new connection another record may answer, whose status has the same version by chance.
    """
    if status.version is None:
        raise TypeError("a fenced write needs the version that was read")
    operations = (Put(status.path, status.data, status.version, Role.FENCE), *others)
    deadline = time.monotonic() + 2 * session.answer_timeout
    if session.connections > 1 and (present := session.find(status.path)) is not None:
        _refuse_another(status, *present, is_as_read)
    while True:
        try:
            written, *results = commit(session, operations)
            return int(written.version), results
        except Ambiguous:
            if not session.wait_connected(deadline):
                raise
        try:
            data, stat = session.get_synced(status.path)
        except Missing as gone:
            raise Stale(f"{status.path} has been deleted") from gone
        if is_mine(data):
            return int(stat.version), ()
        if stat.version != status.version:
            raise Stale(f"{status.path} has changed since it was read")
        _refuse_another(status, data, stat, is_as_read)


def _refuse_another(status: Put, data: bytes, stat: Any, is_as_read: Callable[[bytes], bool]) -> None:
    if stat.version == status.version and not is_as_read(data):
        raise Stale(f"{status.path} has another content than was read: another record answers")


def token() -> str:
    """A unique value, by which a writer whose answer was lost recognises its own write."""
    return secrets.token_hex(16)
