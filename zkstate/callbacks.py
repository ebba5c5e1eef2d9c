"""Callbacks of failed jobs that have not been delivered yet, with the number of tries.

A completed job's callback is the work of its state `notify`. A failed job has no state that works; so the
move to failed creates `/callbacks/JID-EPOCH`, and the transaction that records the outcome deletes it.
The epoch is that of the failure: a callback of a failure that was overcome matches no job any more.
"""

import logging
from dataclasses import dataclass

from pipeline.records import Job, OwedCallback
from zkstate import codec, paths, record
from zkstate.errors import Corrupt, Refused, Stale
from zkstate.locks import ServerClock
from zkstate.record import MESSAGE_LIMIT, token
from zkstate.session import Session
from zkstate.transaction import Delete, Put, Role, commit

SWEEP_PAGE = 500
"""Callbacks read in one sweep."""

_log = logging.getLogger("arkline.callbacks")


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
    node = session.get_many([path])[0]
    if node is None:
        return None
    data, stat = node
    return Owed(jid, epoch, codec.decode(OwedCallback, data, path), stat.version, stat.mtime)


def due(session: Session, clock: ServerClock) -> list[Owed]:
    """The callbacks whose delay is over, by the server's clock."""
    callbacks = []
    for name in sorted(session.children(paths.CALLBACKS))[:SWEEP_PAGE]:
        try:
            callback = owed(session, *paths.read_owed_callback(name))
        except Corrupt as damage:
            _log.error("%s", damage)
            continue
        if callback and clock.now_ms() - callback.mtime > 1000 * callback.record.delay:
            callbacks.append(callback)
    return callbacks


def claim(session: Session, callback: Owed) -> bool:
    """Start the callback's delay anew, so that no other sweep dispatches it; False if one just did."""
    return _replace(session, callback, OwedCallback(tries=callback.record.tries))


def put_off(session: Session, callback: Owed, delay: float) -> None:
    """Count a failed try; the sweep dispatches the callback again after `delay` seconds."""
    _replace(session, callback, OwedCallback(tries=callback.record.tries + 1, delay=delay))


def drop(session: Session, callback: Owed) -> None:
    """The callback is not needed any more."""
    try:
        commit(session, [Delete(callback.path)])
    except Refused:
        return  # another worker deleted it


def settle(session: Session, job: Job, callback: Owed, by: str, message: str) -> None:
    """Record the outcome in the job's history; if the job has moved on, only delete the callback."""
    status = job.status.model_copy(update={"op": token()})
    _, put = record.extend_history(job, status.status, {"by": by, "message": message[:MESSAGE_LIMIT]})
    try:
        record.write(session, job, status, (put, Delete(callback.path)))
    except (Stale, Refused):
        drop(session, callback)


def _replace(session: Session, callback: Owed, content: OwedCallback) -> bool:
    put = Put(callback.path, codec.encode(content), callback.version, Role.FENCE)
    try:
        commit(session, [put])
    except Stale:
        return False
    return True
