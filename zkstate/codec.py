"""Records to bytes and back; the only JSON in the package."""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from pipeline.records import BatchHistoryEntry, HistoryEntry, Record
from zkstate.errors import Corrupt

R = TypeVar("R", bound=Record)
E = TypeVar("E")

_HISTORY = TypeAdapter(tuple[HistoryEntry, ...])
_BATCH_HISTORY = TypeAdapter(tuple[BatchHistoryEntry, ...])


def encode(record: Record) -> bytes:
    return record.model_dump_json(exclude_none=True).encode()


def decode(kind: type[R], data: bytes, path: str) -> R:
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise Corrupt(_unreadable(path, kind.__name__, error)) from error


def encode_history(entries: Sequence[HistoryEntry] | Sequence[BatchHistoryEntry]) -> bytes:
    return b"[" + b",".join(map(encode, entries)) + b"]"


def decode_history(data: bytes, path: str) -> tuple[HistoryEntry, ...]:
    return _decode_entries(_HISTORY, data, path)


def decode_batch_history(data: bytes, path: str) -> tuple[BatchHistoryEntry, ...]:
    return _decode_entries(_BATCH_HISTORY, data, path)


def _decode_entries(adapter: TypeAdapter[E], data: bytes, path: str) -> E:
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        raise Corrupt(_unreadable(path, "history", error)) from error


def encode_int(number: int) -> bytes:
    return str(number).encode()


def decode_int(data: bytes, path: str) -> int:
    try:
        return int(data or b"0")
    except ValueError as error:
        raise Corrupt(f"znode {path} should hold a number, but holds {data[:40]!r}") from error


def _unreadable(path: str, what: str, error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "content"
    return f"znode {path} does not hold a readable {what} ({where}: {first['msg']})"
