"""Callbacks of failed jobs that have not been delivered yet, with the number of tries.

A completed job's callback is the work of its state `notify`. A failed job has no working state, so the move
to failed creates `/callbacks/JID-EPOCH`, and the transaction that records the outcome deletes it. The epoch
is that of the failure: once the failure is overcome, its callback no longer matches the job.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from kazoo.protocol.states import ZnodeStat

from pipeline.records import Job, RewrittenRecord
from zkstate import codec, paths
from zkstate.connection.clock import ServerClock
from zkstate.connection.session import Session
from zkstate.connection.transaction import Delete, Operation, commit, token
from zkstate.errors import Busy, Refused, Stale
from zkstate.record import histories, record
from zkstate.record.journal import Stamp
from zkstate.record.node import Node, read_each
from zkstate.record.record import MESSAGE_LIMIT, Lock

REPEATED_AFTER = 60.0
"""Seconds until a delivery is repeated whose outcome could not be recorded."""


class OwedCallback(RewrittenRecord):
    """`/callbacks/JID-EPOCH`: a failed job's callback that has still to be delivered."""

    tries: int = 0
    delay: float = 60.0
    """Seconds after the node's last change until the sweep dispatches the callback."""
    message: str = ""
    """Why the last try failed; empty before the first, and in records of 0.2."""
    service_faults: int = 0
    """Tries that met an outage of the receiver, and were not counted."""


@dataclass(frozen=True)
class Owed:
    """One callback, as it was read."""

    jid: str
    epoch: int
    record: OwedCallback
    stat: ZnodeStat

    @property
    def since(self) -> datetime:
        """When the job failed, by ZooKeeper's clock."""
        return datetime.fromtimestamp(self.stat.ctime / 1000, UTC)

    @property
    def next_try(self) -> datetime:
        """When the sweep dispatches it, by ZooKeeper's clock; then a worker tries as soon as one is free."""
        return datetime.fromtimestamp(self.stat.mtime / 1000 + self.record.delay, UTC)

    @property
    def name(self) -> str:
        """The name of its node, as in `names`."""
        return self.path.rpartition("/")[2]

    @property
    def path(self) -> str:
        return paths.owed_callback(self.jid, self.epoch)

    @property
    def node(self) -> Node[OwedCallback]:
        return Node(self.path, OwedCallback)


def owed(session: Session, jid: str, epoch: int) -> Owed | None:
    """The callback of the failure in `epoch`; None if it was delivered or given up."""
    stored = Node(paths.owed_callback(jid, epoch), OwedCallback).find(session)
    return None if stored is None else Owed(jid, epoch, stored.content, stored.stat)


def names(session: Session) -> list[str]:
    """The names of all undelivered callbacks, sorted by job number."""
    return session.children(paths.CALLBACKS)


def read(session: Session, some: Sequence[str]) -> list[Owed]:
    """The callbacks with the names in `some`; skips missing and damaged ones."""
    decode = partial(codec.decode, OwedCallback)
    return [
        Owed(*paths.read_owed_callback(name), content, stat)
        for name, content, stat in read_each(session, some, f"{paths.CALLBACKS}/{{}}".format, decode)
    ]


def due(
    session: Session, clock: ServerClock, page: Callable[[Sequence[str]], Sequence[str]] = tuple
) -> list[Owed]:
    """The callbacks whose delay is over, by the server's clock, among those that `page` selects."""
    return [
        owed
        for owed in read(session, page(names(session)))
        if clock.now_ms() - clock.written_ms(owed.stat) > 1000 * owed.record.delay
    ]


def claim(session: Session, callback: Owed) -> bool:
    """Restart the callback's delay, so that no other sweep dispatches it; False if one just did."""
    return callback.node.replace(
        session, callback.stat.version, callback.record.model_copy(update={"delay": OwedCallback().delay})
    )


def put_off(
    session: Session,
    callback: Owed,
    delay: float,
    *,
    tried: bool = True,
    outage: bool = False,
    message: str = "",
) -> None:
    """Count a failed try if it was `tried`; the sweep dispatches the callback again after `delay` seconds.

    `outage`: the try met the fault of an outage; `message`: why it failed; if empty, the last reason is kept.
    """
    before = callback.record
    changes = {
        "tries": before.tries + tried,
        "service_faults": before.service_faults + outage,
        "delay": delay,
        "message": message[:MESSAGE_LIMIT] or before.message,
    }
    callback.node.replace(session, callback.stat.version, callback.record.model_copy(update=changes))


def drop(session: Session, callback: Owed) -> None:
    """Delete a callback that is no longer needed."""
    with suppress(Refused):  # another worker deleted it
        commit(session, [Delete(callback.path)])


def settle(session: Session, job: Job, callback: Owed, stamp: Stamp, message: str) -> None:
    """Record the outcome in the job's history, and delete the callback.

    If the job has changed since it was read, or its content is being removed, the callback is put off: the
    delivery is repeated with its id, unless the job is no longer failed.
    """
    try:
        note(session, job, stamp, message, Delete(callback.path))
    except (Busy, Stale):
        put_off(session, callback, REPEATED_AFTER, tried=False, message="the job changed during the delivery")
    except Refused:
        drop(session, callback)


def note(session: Session, job: Job, stamp: Stamp, message: str, *more: Operation) -> None:
    """Record a delivery in the job's history; Stale if the job has changed, Busy while it is locked."""
    status = job.status.model_copy(update={"op": token()})
    who = stamp.model_dump(include={"by", "via", "request_id"})
    facts = {**who, "message": message[:MESSAGE_LIMIT]}
    extended = histories.extend(job, status.status, facts)
    free = record.lock_operations(session, job, Lock.FREE)
    record.write(session, job, status, (*free, *extended.operations, *more))
