"""Actions of operators on the queue and on collections: bounded journals, written with their effects."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from pipeline.principal import Interface
from pipeline.records import Record, now
from zkstate import codec, counters
from zkstate.errors import Stale
from zkstate.record import token
from zkstate.session import Session
from zkstate.transaction import Operation, Put, fenced

ENTRIES = 100
"""Entries of a journal; the oldest are dropped, so that the znode stays below 256 KB."""

REASON_LIMIT = 500
"""Characters of a reason in a journal."""


class Action(StrEnum):
    HOLD = "hold"
    RELEASE = "release"
    PAUSE = "pause"
    UNPAUSE = "unpause"


class Stamp(Record):
    """One action: principal, interface, time and reason."""

    by: str = ""
    reason: str = ""
    at: datetime = Field(default_factory=now)
    via: Interface | None = None


class JournalEntry(Stamp):
    """One action; `op` is unique, so that a writer whose answer was lost finds its own entry."""

    action: Action
    op: str = ""


class Journal(Record):
    """`/actions/queue` and `/actions/collections/NAME`: the entries, oldest first."""

    entries: tuple[JournalEntry, ...] = ()


def read(session: Session, path: str) -> tuple[JournalEntry, ...]:
    """The entries, oldest first; none if no operator has acted."""
    node = session.get_many([path])[0]
    return codec.decode(Journal, node[0], path).entries if node else ()


def commit(
    session: Session, path: str, action: Action, stamp: Stamp, effect: Sequence[Operation]
) -> JournalEntry:
    """Commit `effect` and its entry together, exactly once; Refused if ZooKeeper refuses the effect."""
    values = stamp.model_dump() | {"reason": stamp.reason[:REASON_LIMIT]}
    entry = JournalEntry.model_validate(values | {"action": action, "op": token()})
    while True:
        counters.ensure_node(session, path, codec.encode(Journal()))
        data, stat = session.get_synced(path)
        before = codec.decode(Journal, data, path).entries
        journal = Journal(entries=(*before, entry)[-ENTRIES:])
        written = Put(path, codec.encode(journal), stat.version)
        try:
            fenced(session, written, effect, lambda data: entry.op.encode() in data)
        except Stale:
            continue
        return entry
