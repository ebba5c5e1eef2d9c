"""The bytes of requests and answers, as kazoo and ZooKeeper encode them."""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any

from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat

from tools.simulation.ensemble import OPEN, Access, Change, Check, Create, Delete, Put, Result, first_error
from zkstate.direct.requests import HEADER

_INT = Struct("!i")
_ERROR = -1
_KINDS = {
    Create: serialization.Create.type,
    Put: serialization.SetData.type,
    Delete: serialization.Delete.type,
    Check: serialization.CheckVersion.type,
}


def changes_of(request: Any) -> tuple[Change, ...]:
    """What the request changes; a transaction is read from its bytes."""
    match request:
        case serialization.Create() | serialization.Create2():
            return (Create(request.path, request.data or b"", request.flags, _access(tuple(request.acl))),)
        case serialization.SetData():
            return (Put(request.path, request.data, request.version),)
        case serialization.Delete():
            return (Delete(request.path, request.version),)
        case _ if request.type == serialization.Transaction.type:
            return tuple(_changes(bytes(request.serialize())))
    raise TypeError(f"a request of the type {type(request).__name__} is not simulated")


def _changes(content: bytes) -> Iterator[Change]:
    offset, access = 0, OPEN
    while True:
        kind, ends, _ = HEADER.unpack_from(content, offset)
        if ends:
            return
        path, offset = serialization.read_string(content, offset + HEADER.size)
        data = b""
        if kind in (serialization.Create.type, serialization.SetData.type):
            data, offset = serialization.read_buffer(content, offset)
        if kind == serialization.Create.type:
            access, offset = _read_access(content, offset)
        (number,) = _INT.unpack_from(content, offset)
        offset += _INT.size
        match kind:
            case serialization.Create.type:
                yield Create(path, data or b"", number, access)
            case serialization.SetData.type:
                yield Put(path, data or b"", number)
            case _:
                yield (Delete if kind == serialization.Delete.type else Check)(path, number)


def _read_access(content: bytes, offset: int) -> tuple[Access, int]:
    (number,) = _INT.unpack_from(content, offset)
    offset, entries = offset + _INT.size, []
    for _ in range(number):
        entry, offset = serialization.read_acl(content, offset)
        entries.append(entry)
    return _access(tuple(entries)), offset


def _access(entries: Access) -> Access:
    return OPEN if entries == OPEN else entries


def encoded(changes: Sequence[Change], results: Sequence[Result]) -> bytes:
    """The answer to a transaction, as ZooKeeper encodes it."""
    parts, refused = [], first_error(results) is not None
    for change, result in zip(changes, results, strict=True):
        if refused:
            code = getattr(result, "code", 0)
            parts += [HEADER.pack(_ERROR, False, code), _INT.pack(code)]
            continue
        parts.append(HEADER.pack(_KINDS[type(change)], False, 0))
        if isinstance(result, ZnodeStat):
            parts.append(serialization.stat_struct.pack(*result))
        elif isinstance(result, str):
            parts.append(serialization.write_string(result))
    return b"".join((*parts, HEADER.pack(-1, True, -1)))
