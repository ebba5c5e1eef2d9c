"""Encodes and decodes records; the only JSON in the package."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from pipeline.errors import Action, Remedy, first_fault
from pipeline.records import BatchHistoryEntry, HistoryEntry, Record
from zkstate.errors import Corrupt, RecordOfMerritt, Unwritable

T = TypeVar("T")

_NUMBER = re.compile(rb"[0-9]{1,16}")
"""Counts and sizes; `int` would also accept signs, blanks, underscores and thousands of digits."""

_NUMBERS = ("/ids/", "/space/")
"""Counters and the sum of reservations, which can be derived from the stores."""

_STATE_OF_MERRITT = re.compile(rb'"status"\s*:\s*"[A-Z]')

_OWNER = re.compile(r"(?:jid|bid)[0-9]{10,}")

_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def encode(record: Record | int) -> bytes:
    """Encode the record as JSON; Unwritable, before anything is committed, if it could not be read back."""
    if isinstance(record, int):
        return encode_int(record)
    data = record.model_dump_json(exclude_none=True).encode()
    _read_back(type(record), data)
    return data


def encode_validated(record: Record) -> bytes:
    """Like `encode`, for a record without infinite numbers that was validated and not copied since."""
    return record.model_dump_json(exclude_none=True).encode()


def encode_history(entries: Sequence[HistoryEntry] | Sequence[BatchHistoryEntry]) -> bytes:
    """Encode a history; only the last entry is read back, as each of the others was when it was the last."""
    if not entries:
        return b"[]"
    kind = type(entries[-1])
    _read_back(kind, encode_validated(entries[-1]))
    return _adapter(tuple[kind, ...]).dump_json(tuple(entries), exclude_none=True)  # type: ignore[valid-type]


def _read_back(kind: type[Record], data: bytes) -> None:
    """A validated copy is not enough: `model_copy` checks nothing, and JSON has no infinity."""
    try:
        kind.model_validate_json(data)
    except ValidationError as error:
        raise Unwritable(
            f"a {kind.__name__} that could not be read again ({first_fault(error)}) was not written: "
            "this is a mistake in arkline, report it with this message"
        ) from error


def decode(kind: type[T], data: bytes, path: str) -> T:
    """Decode a number, a record or a tuple of records of type `kind`."""
    if kind is int:
        return cast(T, decode_int(data, path))
    try:
        decoded: T = _adapter(kind).validate_json(data)
    except ValidationError as error:
        refuse_merritt(data, path)
        content = kind.__name__ if isinstance(kind, type) else "history"
        raise damaged(path, f"does not hold a readable {content} ({first_fault(error)})") from error
    return decoded


def refuse_merritt(data: bytes, path: str) -> None:
    """Raise RecordOfMerritt for a status that Merritt wrote: Merritt capitalises states.

    Such a record is not damaged, and a repair would end its job.
    """
    if path.endswith("/status") and _STATE_OF_MERRITT.search(data):
        raise RecordOfMerritt(
            f"znode {path} is of Merritt's own queue, which arkline does not take over: let Merritt end its "
            "batches, and give arkline a root of its own (ARKLINE_ZK_ROOT)"
        ).with_remedies(Remedy(Action.CHECK_SETTINGS))


def damaged(path: str, problem: str) -> Corrupt:
    """The error for an unreadable znode, with the verb that repairs it, if there is one."""
    owner = _OWNER.search(path)
    if owner:
        remedy = Remedy(Action.REPAIR, owner[0])
    else:
        remedy = Remedy(Action.RECONCILE if path.startswith(_NUMBERS) else Action.AUDIT)
    return Corrupt(f"znode {path} {problem}").with_remedies(remedy)


def encode_int(number: int) -> bytes:
    data = str(number).encode()
    if not _NUMBER.fullmatch(data):
        raise Unwritable(f"the number {number} was not written: this is a mistake in arkline, report it")
    return data


def decode_int(data: bytes, path: str) -> int:
    if data and not _NUMBER.fullmatch(data):
        raise damaged(path, f"should hold a number, but holds {data[:40]!r}")
    return int(data or b"0")
