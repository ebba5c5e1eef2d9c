"""Callbacks of failed jobs that have not been delivered yet, with the number of tries.

A completed job's callback is the work of its state `notify`. A failed job has no state that works; so the
move to failed creates `/callbacks/JID-EPOCH`, and the transaction that records the outcome deletes it.
The epoch is that of the failure: a callback of a failure that was overcome matches no job any more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pipeline.records import Job, RewrittenRecord
from zkstate import codec, histories, paths, record
from zkstate.errors import Refused, Stale
from zkstate.locks import ServerClock
from zkstate.reading import read_each
from zkstate.record import MESSAGE_LIMIT, token
from zkstate.session import Session
from zkstate.transaction import Delete, Put, Role, commit


class OwedCallback(RewrittenRecord):
    """`/callbacks/JID-EPOCH`: a failed job's callback that has still to be delivered."""

    tries: int = 0
    delay: float = 60.0
    """Seconds from the node's last change after which the sweep gives it to a worker."""


@dataclass(frozen=True)
class Owed:
    """One callback, as it was read; `mtime`: ms of the server's clock."""

    jid: str
    epoch: int
    record: OwedCallback
    version: int
    mtime: int

    @property
    def path(self) -> str:
        return paths.owed_callback(self.jid, self.epoch)


def owed(session: Session, jid: str, epoch: int) -> Owed | None:
    """None if the callback was delivered or given up."""
    path = paths.owed_callback(jid, epoch)
    node = session.find(path)
    if node is None:
        return None
    data, stat = node
    return Owed(jid, epoch, codec.decode(OwedCallback, data, path), stat.version, stat.mtime)


def count(session: Session) -> int:
    """How many callbacks are not delivered yet."""
    stat = session.exists(paths.CALLBACKS)
    return stat.numChildren if stat else 0


def due(
    session: Session, clock: ServerClock, page: Callable[[Sequence[str]], Sequence[str]] = tuple
) -> list[Owed]:
    """The callbacks whose delay is over, by the server's clock, among those that `page` selects."""
    names = page(sorted(session.children(paths.CALLBACKS)))
    decode = partial(codec.decode, OwedCallback)
    return [
        Owed(*paths.read_owed_callback(name), content, stat.version, stat.mtime)
        for name, content, stat in read_each(session, names, f"{paths.CALLBACKS}/{{}}".format, decode)
        if clock.now_ms() - clock.written_ms(stat) > 1000 * content.delay
    ]


def claim(session: Session, callback: Owed) -> bool:
    """Start the callback's delay anew, so that no other sweep dispatches it; False if one just did."""
    return _replace(session, callback, callback.record.model_copy(update={"delay": OwedCallback().delay}))


def put_off(session: Session, callback: Owed, delay: float, *, tried: bool = True) -> None:
    """Count a failed try if it was `tried`; the sweep dispatches the callback again after `delay` seconds."""
    changes = {"tries": callback.record.tries + tried, "delay": delay}
    _replace(session, callback, callback.record.model_copy(update=changes))


def drop(session: Session, callback: Owed) -> None:
    """The callback is not needed any more."""
    try:
        commit(session, [Delete(callback.path)])
    except Refused:
        return  # another worker deleted it


def settle(session: Session, job: Job, callback: Owed, by: str, message: str) -> None:
    """Record the outcome in the job's history; if the job has moved on, only delete the callback."""
    status = job.status.model_copy(update={"op": token()})
    extended = histories.extend(job, status.status, {"by": by, "message": message[:MESSAGE_LIMIT]})
    try:
        record.write(session, job, status, (*extended.operations, Delete(callback.path)))
    except (Stale, Refused):
        drop(session, callback)


def _replace(session: Session, callback: Owed, content: OwedCallback) -> bool:
    put = Put(callback.path, codec.encode(content), callback.version, Role.FENCE)
    try:
        commit(session, [put])
    except Stale:
        return False
    return True
