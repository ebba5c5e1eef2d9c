"""Journals of operators' actions on the fleet and on collections: bounded, and written with the effects."""

import logging
from datetime import datetime
from enum import StrEnum
from typing import Self

from pydantic import Field

from pipeline.principal import Interface, Principal
from pipeline.records import RewrittenRecord, now
from zkstate import codec
from zkstate.connection.session import Session
from zkstate.connection.transaction import Operation, Put, fenced, token
from zkstate.errors import Corrupt, Stale
from zkstate.record.node import Node, log_damage

_log = logging.getLogger("arkline.record")

ENTRIES = 100
"""Entries of a journal; the oldest are dropped, so that the znode stays below 256 KB."""

KEPT_OF_DAMAGE = 10_000
"""Bytes of an unreadable journal that are logged."""

REASON_LIMIT = 500
"""Characters of a reason in a journal."""


class JournalAction(StrEnum):
    HOLD = "hold"
    RELEASE = "release"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    DRAIN = "drain"
    UNDO_DRAIN = "undo-drain"
    CLEAN_UP = "clean-up"
    RECONCILE = "reconcile"
    OUTAGE = "outage"
    """A shared service failed; entered by the worker that met the fault."""
    OUTAGE_OVER = "outage-over"


class Stamp(RewrittenRecord):
    """One action: principal, interface, time, reason and request."""

    by: str = ""
    reason: str = ""
    at: datetime = Field(default_factory=now)
    via: Interface | None = None
    request_id: str | None = None
    """The request of the API or of a page; absent for other interfaces, and before 0.2.1."""

    @classmethod
    def of(cls, principal: Principal, reason: str = "") -> Self:
        """An action of this principal, now."""
        by, via = principal.name, principal.interface
        return cls(by=by, reason=reason, via=via, request_id=principal.request_id)

    @property
    def because(self) -> str:
        """`: the reason`; empty without one."""
        return f": {self.reason}" if self.reason else ""


class JournalEntry(Stamp):
    """One action; `op` is unique, so that a writer whose answer was lost finds its own entry."""

    action: JournalAction
    target: str = ""
    """The worker that was drained, what a reconciliation repaired, or the outage."""
    op: str = ""


class Journal(RewrittenRecord):
    """`/actions/queue` and `/actions/collections/NAME`: the entries, oldest first."""

    entries: tuple[JournalEntry, ...] = ()


def read(session: Session, path: str) -> tuple[JournalEntry, ...]:
    """The entries, oldest first; none if no operator has acted."""
    return (Node(path, Journal).read(session) or Journal()).entries


def commit(
    session: Session, path: str, action: JournalAction, stamp: Stamp, *effects: Operation, target: str = ""
) -> None:
    """Commit the effects and their entry together, exactly once; Refused if ZooKeeper refuses an effect."""
    values = stamp.model_dump() | {"reason": stamp.reason[:REASON_LIMIT]}
    entry = JournalEntry.model_validate(values | {"action": action, "target": target, "op": token()})
    while True:
        session.ensure_node(path, codec.encode(Journal()))
        data, stat = session.get_synced(path)
        before = _before(data, path)
        journal = before.model_copy(update={"entries": (*before.entries, entry)[-ENTRIES:]})
        written = Put(path, codec.encode(journal), stat.version)
        try:
            fenced(session, written, effects, lambda now: entry.op.encode() in now, data.__eq__)
        except Stale:
            continue
        return


def _before(data: bytes, path: str) -> Journal:
    """The journal so far; an unreadable one is logged and started again, so that operators can still act."""
    try:
        return codec.decode(Journal, data, path)
    except Corrupt as damage:
        log_damage(damage)
        _log.error("replaced the journal %s: %r", path, data[:KEPT_OF_DAMAGE])
        return Journal()
