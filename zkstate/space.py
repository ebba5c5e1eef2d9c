"""Working storage promised to jobs: one node per job, their sum in the parent.

Rule: a promise changes only together with the sum, under the sum's version.
"""

from pipeline.outcome import Promised, Reservation
from zkstate import codec, paths
from zkstate.session import Session
from zkstate.transaction import Create, Delete, Operation, Put, Role


def promised(session: Session) -> Promised:
    data, stat = session.get(paths.SPACE)
    return Promised(codec.decode_int(data, paths.SPACE), stat.version)


def reservation_of(session: Session, jid: str) -> int | None:
    """Bytes promised to a job; None if it has no promise."""
    found = session.get_many([paths.reservation(jid)])[0]
    return None if found is None else codec.decode_int(found[0], paths.reservation(jid))


def reservations(session: Session) -> dict[str, int]:
    jids = sorted(session.children(paths.SPACE))
    found = session.get_many([paths.reservation(jid) for jid in jids])
    return {
        jid: codec.decode_int(node[0], paths.reservation(jid))
        for jid, node in zip(jids, found, strict=True)
        if node is not None
    }


def grant(jid: str, reservation: Reservation) -> tuple[Operation, ...]:
    total = reservation.seen.bytes + reservation.bytes
    return (
        Put(paths.SPACE, codec.encode_int(total), reservation.seen.version, Role.RESERVATION),
        Create(paths.reservation(jid), codec.encode_int(reservation.bytes)),
    )


def replace(session: Session, jid: str, wanted: int | None) -> tuple[Operation, ...]:
    """The operations after which exactly `wanted` bytes (None: nothing) are promised to the job."""
    seen = promised(session)
    held = reservation_of(session, jid)
    if held == wanted:
        return ()
    data = codec.encode_int(seen.bytes - (held or 0) + (wanted or 0))
    total = Put(paths.SPACE, data, seen.version, Role.SHARED)
    node = paths.reservation(jid)
    if wanted is None:
        return total, Delete(node, role=Role.SHARED)
    data = codec.encode_int(wanted)
    if held is None:
        return total, Create(node, data, role=Role.SHARED)
    return total, Put(node, data, role=Role.SHARED)
