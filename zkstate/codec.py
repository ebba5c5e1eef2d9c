"""Records to bytes and back; the only JSON in the package."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from pipeline.records import BatchHistoryEntry, HistoryEntry, Record
from zkstate.errors import Corrupt

T = TypeVar("T")

_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def encode(record: Record) -> bytes:
    return record.model_dump_json(exclude_none=True).encode()


def encode_history(entries: Sequence[HistoryEntry] | Sequence[BatchHistoryEntry]) -> bytes:
    return b"[" + b",".join(map(encode, entries)) + b"]"


def decode(kind: type[T], data: bytes, path: str) -> T:
    """A record, or a tuple of records, of this type."""
    try:
        decoded: T = _adapter(kind).validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "content"
        content = kind.__name__ if isinstance(kind, type) else "history"
        raise Corrupt(f"znode {path} does not hold a readable {content} ({where}: {first['msg']})") from error
    return decoded


def encode_int(number: int) -> bytes:
    return str(number).encode()


def decode_int(data: bytes, path: str) -> int:
    try:
        return int(data or b"0")
    except ValueError as error:
        raise Corrupt(f"znode {path} should hold a number, but holds {data[:40]!r}") from error
