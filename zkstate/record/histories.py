"""The history of a job or a batch: one list, whose older entries are kept in parts once the list is long.

Rule: no entry is ever dropped, because an auditor needs the whole path. `/history` holds the newest
entries; its children 0000, 0001, ... hold the older ones, oldest first, and are never changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kazoo.protocol.states import ZnodeStat

from pipeline.records import Batch, BatchHistoryEntry, HistoryEntry, Job
from pipeline.states import BATCH, JOB, Event
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Operation, Put
from zkstate.errors import Missing, TooBig

PART_BYTES = 64 * 1024
"""Bytes of the newest entries above which they become a part: some 200 entries."""

PARTS = 20
"""Maximum parts: then an operator cannot request another try; work that has begun is still recorded."""


@dataclass(frozen=True)
class Extended:
    """The changed fields of a record with one more entry, and the operations that write the entry."""

    changes: dict[str, Any]
    operations: tuple[Operation, ...]


E = TypeVar("E", HistoryEntry, BatchHistoryEntry)


def read(
    session: Session, path: str, node: tuple[bytes, ZnodeStat], kind: type[E]
) -> tuple[tuple[E, ...], tuple[int, ...]]:
    """All entries, and the number of entries of each part; one more round of reads if there are parts."""
    data, stat = node
    places = [_part(path, number) for number in range(stat.numChildren)]
    parts: list[tuple[E, ...]] = []
    for place, part in zip(places, session.get_many(places) if places else (), strict=True):
        if part is None:
            raise Missing(f"znode {place} is missing")
        parts.append(codec.decode(tuple[kind, ...], part[0], place))  # type: ignore[valid-type]
    newest = codec.decode(tuple[kind, ...], data, path)  # type: ignore[valid-type]
    return tuple(entry for part in (*parts, newest) for entry in part), tuple(map(len, parts))


def extend(record: Job | Batch, state: str, facts: Mapping[str, object]) -> Extended:
    """Append an entry made of `facts`.

    TooBig if the history is full and the event in `facts` starts another try.
    """
    is_job = isinstance(record, Job)
    table = JOB.version if is_job else BATCH.version
    path = paths.history(record.id) if is_job else paths.batch_history(record.id)
    parts = record.history_parts
    if len(parts) >= PARTS and facts.get("event") in (Event.RESUME, Event.UPDATE_REPORT):
        raise TooBig(
            f"the history of {record.id} has {len(record.history):,} entries, and no further try can be "
            "recorded: delete it, and submit its content again"
        )
    kind = HistoryEntry if is_job else BatchHistoryEntry
    entry = kind.model_validate({"state": state, "table": table, **facts})
    before = record.history[sum(parts) :]
    changes: dict[str, Any] = {"history": (*record.history, entry)}
    data = codec.encode_history((*before, entry))
    if before and len(data) > PART_BYTES and len(parts) < PARTS:
        changes["history_parts"] = (*parts, len(before))
        older = Create(_part(path, len(parts)), codec.encode_history(before))
        newest = Put(path, codec.encode_history((entry,)))  # type: ignore[arg-type]
        return Extended(changes, (older, newest))
    # a batch of release 0.1.0 has no history until its next move
    return Extended(changes, (Put(path, data) if record.history else Create(path, data),))


def part_paths(record: Job | Batch) -> tuple[str, ...]:
    path = paths.history(record.id) if isinstance(record, Job) else paths.batch_history(record.id)
    return tuple(_part(path, number) for number in range(len(record.history_parts)))


def _part(path: str, number: int) -> str:
    return f"{path}/{number:04d}"
