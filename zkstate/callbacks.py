"""Failed jobs whose depositor's system has still to be told, and how often that was tried.

A completed job's callback is the work of its state `notify`. A failed job has no state that works; so the
move to failed leaves `/callbacks/JID-EPOCH` behind, and it goes in the transaction that notes the outcome.
The epoch is that of the failure: what is left of a failure that was overcome matches no job any more.
"""

import logging
from dataclasses import dataclass

from pipeline.records import HistoryEntry, Job, JobStatus, OwedCallback
from zkstate import codec, paths
from zkstate.errors import Corrupt, Refused, Stale
from zkstate.jobs import MESSAGE_LIMIT, token
from zkstate.locks import ServerClock
from zkstate.session import Session
from zkstate.transaction import Delete, Put, commit, fenced

PASS = 500
"""Callbacks that are looked at in one pass."""

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
    """None if it was told, or given up."""
    path = paths.owed_callback(jid, epoch)
    found = session.get_many([path])[0]
    if found is None:
        return None
    data, stat = found
    return Owed(jid, epoch, codec.decode(OwedCallback, data, path), stat.version, stat.mtime)


def due(session: Session, clock: ServerClock) -> list[Owed]:
    """Those whose time has come, by the server's clock."""
    found = []
    for name in sorted(session.children(paths.CALLBACKS))[:PASS]:
        try:
            callback = owed(session, *paths.read_owed_callback(name))
        except Corrupt as damage:
            _log.error("%s", damage)
            continue
        if callback and clock.now_ms() - callback.mtime > 1000 * callback.record.delay:
            found.append(callback)
    return found


def give_out(session: Session, callback: Owed) -> bool:
    """Keep the others from it for a while; False if somebody is at it already."""
    fresh = OwedCallback(tries=callback.record.tries)
    return _replace(session, callback, fresh)


def put_off(session: Session, callback: Owed, delay: float) -> None:
    """It was tried in vain: again after `delay` seconds."""
    _replace(session, callback, OwedCallback(tries=callback.record.tries + 1, delay=delay))


def drop(session: Session, callback: Owed) -> None:
    """Nobody has to be told of it any more."""
    try:
        commit(session, [Delete(callback.path)])
    except Refused:
        return  # it is gone


def settle(session: Session, job: Job, callback: Owed, by: str, message: str) -> None:
    """Note the outcome in the job's history; if the job has moved on, only that nothing is owed."""
    entry = HistoryEntry(state=job.status.status, by=by, message=message[:MESSAGE_LIMIT])
    status = job.status.model_copy(update={"op": token()})
    path = paths.job_status(job.jid)
    noted = Put(paths.history(job.jid), codec.encode_history((*job.history, entry)))
    try:
        fenced(
            session,
            Put(path, codec.encode(status), job.version),
            (noted, Delete(callback.path)),
            lambda data: codec.decode(JobStatus, data, path).op == status.op,
        )
    except (Stale, Refused):
        drop(session, callback)


def _replace(session: Session, callback: Owed, record: OwedCallback) -> bool:
    try:
        commit(session, [Put(callback.path, codec.encode(record), callback.version)])
    except Refused:
        return False
    return True
