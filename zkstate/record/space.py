"""Working storage: the reservations (one node per job), their sum in the parent, and the marks of folders.

Rule: a reservation changes only together with the sum, under the sum's version.

A mark says that the folder of working storage, or of uploads, was mounted: without its mark a folder is not
used.
"""

from dataclasses import dataclass

from kazoo.protocol.states import ZnodeStat

from pipeline.outcome import Promised, Reservation
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Delete, Operation, Put, Role
from zkstate.errors import Corrupt, Missing
from zkstate.record.node import Node, log_damage, read_each


@dataclass(frozen=True)
class WorkingStorage:
    """Satisfies `pipeline.working_storage.mount.WorkingStorageRecord`."""

    session: Session

    def was_marked(self) -> bool:
        return bool(self.session.exists(paths.SPACE_MARKED))

    def note_marked(self) -> None:
        self.session.ensure_node(paths.SPACE_MARKED, b"")

    def reservations(self) -> dict[str, int]:
        return reservations(self.session)


def promised(session: Session) -> Promised:
    """The sum of all reservations, and the version of the node that holds the sum."""
    return _promised(session.get(paths.SPACE))


def _promised(node: tuple[bytes, ZnodeStat]) -> Promised:
    data, stat = node
    return Promised(codec.decode_int(data, paths.SPACE), stat.version)


def reserved(session: Session) -> int:
    """The sum of all reservations, for display; computed from them if the node of the sum is damaged."""
    try:
        return promised(session).bytes
    except Corrupt as damage:
        log_damage(damage)
        return sum(reservations(session).values())


def sum_fault(session: Session) -> tuple[int | None, int] | None:
    """The stored sum (None if damaged) and the actual sum of the reservations.

    None if both are equal, or if reservations changed meanwhile.
    """
    data, stat = session.get(paths.SPACE)
    try:
        counted = codec.decode_int(data, paths.SPACE)
    except Corrupt:
        counted = None
    in_all = sum(reservations(session).values())
    if counted == in_all or session.get(paths.SPACE)[1].version != stat.version:
        return None
    return counted, in_all


def correct_sum(session: Session) -> None:
    """Write the sum of the reservations, whatever the node contains."""
    total = Node(paths.SPACE, int, damaged=lambda _: -1)
    total.change(session, lambda _: sum(reservations(session).values()))


def reservation_of(session: Session, jid: str) -> int | None:
    """Bytes reserved for a job; None if it has no reservation."""
    return Node(paths.reservation(jid), int).read(session)


def reservations(session: Session) -> dict[str, int]:
    """JID -> reserved bytes; an unreadable reservation is logged and skipped."""
    jids = session.children(paths.SPACE)
    return {jid: size for jid, size, _ in read_each(session, jids, paths.reservation, codec.decode_int)}


def release_unreadable(session: Session, jid: str) -> tuple[Operation, ...]:
    """Operations that remove an unreadable reservation and correct the sum; else none."""
    total = session.get(paths.SPACE)[1].version
    held = reservations(session)
    if jid in held or session.exists(paths.reservation(jid)) is None:
        return ()
    return (
        Put(paths.SPACE, codec.encode_int(sum(held.values())), total, Role.SHARED),
        Delete(paths.reservation(jid), role=Role.SHARED),
    )


def grant(jid: str, reservation: Reservation) -> tuple[Operation, ...]:
    total = reservation.seen.bytes + reservation.bytes
    return (
        Put(paths.SPACE, codec.encode_int(total), reservation.seen.version, Role.RESERVATION),
        Create(paths.reservation(jid), codec.encode_int(reservation.bytes)),
    )


def replace(
    session: Session, jid: str, needed: int | None, counted: Promised | None = None
) -> tuple[Operation, ...]:
    """Operations after which exactly `needed` bytes (None: nothing) are reserved for the job.

    `counted`: the sum that must not have changed since; None: the current sum.
    """
    node = paths.reservation(jid)
    whole, own = session.get_many([paths.SPACE, node])
    if whole is None:
        raise Missing(f"znode {paths.SPACE} is missing")
    total = counted or _promised(whole)
    reserved = None if own is None else codec.decode_int(own[0], node)
    if reserved == needed:
        return ()
    data = codec.encode_int(max(0, total.bytes - (reserved or 0)) + (needed or 0))
    put_total = Put(paths.SPACE, data, total.version, Role.SHARED)
    if needed is None:
        return put_total, Delete(node, role=Role.SHARED)
    data = codec.encode_int(needed)
    if reserved is None:
        return put_total, Create(node, data, role=Role.SHARED)
    return put_total, Put(node, data, role=Role.SHARED)


def was_marked(session: Session) -> bool:
    return session.exists(paths.UPLOADS_MARKED) is not None


def note_marked(session: Session) -> None:
    session.ensure_node(paths.UPLOADS_MARKED, b"")
