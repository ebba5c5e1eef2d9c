"""The nodes of one record as they were read, of which some are unreadable, and what replaces those."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.principal import Interface
from pipeline.records import DamagedNode
from zkstate import codec, salvage
from zkstate.errors import Corrupt, RecordOfMerritt
from zkstate.session import Session
from zkstate.transaction import Create, Operation, Put


@dataclass(frozen=True)
class Repairer:
    """Who repairs, why, by which interface and by which request."""

    by: str
    because: str = ""
    via: Interface | None = None
    request_id: str | None = None


@dataclass
class Nodes:
    """The nodes of one record as they were read; `damaged` grows with every one that had to be replaced."""

    session: Session
    data: dict[str, bytes | None]
    damaged: list[DamagedNode] = field(default_factory=list)
    puts: list[Operation] = field(default_factory=list)

    def read(self, kind: Any, path: str) -> Any | None:
        """The content; None if it cannot be read."""
        data = self.data[path]
        if data is None:
            return None
        try:
            if kind is int:
                return codec.decode_int(data, path)
            return codec.decode(kind, data, path)
        except RecordOfMerritt:
            raise
        except Corrupt:
            return None

    def replace(self, path: str, content: bytes) -> None:
        self.note(path)
        self.puts.append(self.put(path, content))

    def note(self, path: str) -> None:
        self.damaged.append(DamagedNode.of(path, self.data[path]))

    def put(self, path: str, content: bytes) -> Operation:
        return Create(path, content) if self.data[path] is None else Put(path, content)

    def entries(self, path: str, kind: Any) -> tuple[Any, ...]:
        """The readable entries of one node of a history."""
        read = self.read(tuple[kind, ...], path)
        return salvage.entries(kind, self.data[path] or b"") if read is None else read

    def repair_histories(
        self,
        kind: Any,
        parts: Sequence[str],
        newest: str,
        histories: Sequence[Sequence[Any]],
        *,
        required: bool,
    ) -> None:
        """Replace the unreadable parts, and note the newest one, which may be absent unless it is `required`.

        `histories`: the readable entries of the parts and of the newest one, in order.
        """
        for path, entries in zip(parts, histories, strict=False):
            if self.read(tuple[kind, ...], path) is None:
                self.replace(path, codec.encode_history(entries))
        present = self.data[newest] is not None
        if (present or required) and self.read(tuple[kind, ...], newest) is None:
            self.note(newest)


def read_nodes(session: Session, places: Sequence[str]) -> Nodes:
    read = session.get_many(places)
    return Nodes(session, {path: node and node[0] for path, node in zip(places, read, strict=True)})


def entry_facts(damaged: Sequence[DamagedNode], repairer: Repairer) -> dict[str, Any]:
    """The details of the history entry that keeps the damaged bytes."""
    named = ", ".join(node.path for node in damaged) or "the reservation of working storage"
    message = f"repaired {named}, which could not be read{repairer.because}"
    who = {"by": repairer.by, "via": repairer.via, "request_id": repairer.request_id}
    return {**who, "message": message, "damaged": tuple(damaged)}
