"""The bytes of requests and answers, as kazoo and ZooKeeper encode them."""

from collections.abc import Sequence
from struct import Struct
from typing import Any

from kazoo.protocol import serialization
from kazoo.protocol.serialization import read_buffer, read_string, stat_struct, write_string
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, Id

from tools.simulation.ensemble import (
    OPEN,
    Access,
    Change,
    Check,
    Create,
    Delete,
    Put,
    Result,
    first_error,
)
from zkstate.direct.requests import HEADER

_INT = Struct("!i")
_ERROR = -1


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


def _changes(content: bytes) -> Any:
    offset = 0
    while True:
        kind, done, _ = HEADER.unpack_from(content, offset)
        offset += HEADER.size
        if done:
            return
        path, offset = read_string(content, offset)
        if kind == serialization.Create.type:
            data, offset = read_buffer(content, offset)
            access, offset = _read_access(content, offset)
            (flags,) = _INT.unpack_from(content, offset)
            offset += _INT.size
            yield Create(path, data or b"", flags, access)
            continue
        data = b""
        if kind == serialization.SetData.type:
            data, offset = read_buffer(content, offset)
        (version,) = _INT.unpack_from(content, offset)
        offset += _INT.size
        if kind == serialization.SetData.type:
            yield Put(path, data or b"", version)
        elif kind == serialization.Delete.type:
            yield Delete(path, version)
        else:
            yield Check(path, version)


def _read_access(content: bytes, offset: int) -> tuple[Access, int]:
    (number,) = _INT.unpack_from(content, offset)
    offset += _INT.size
    entries: list[ACL] = []
    for _ in range(number):
        (permissions,) = _INT.unpack_from(content, offset)
        scheme, offset = read_string(content, offset + _INT.size)
        name, offset = read_string(content, offset)
        entries.append(ACL(permissions, Id(scheme, name)))
    return _access(tuple(entries)), offset


def _access(entries: Access) -> Access:
    return OPEN if entries == OPEN else entries


_KINDS: dict[type, int] = {
    Create: serialization.Create.type,
    Put: serialization.SetData.type,
    Delete: serialization.Delete.type,
    Check: serialization.CheckVersion.type,
}


def encoded(changes: Sequence[Change], results: Sequence[Result]) -> bytes:
    """The answer to a transaction, as ZooKeeper encodes it."""
    parts: list[bytes] = []
    refused = first_error(results) is not None
    for change, result in zip(changes, results, strict=True):
        if refused:
            code = getattr(result, "code", 0)
            parts += (HEADER.pack(_ERROR, False, code), _INT.pack(code))
            continue
        parts.append(HEADER.pack(_KINDS[type(change)], False, 0))
        if isinstance(result, ZnodeStat):
            parts.append(stat_struct.pack(*result))
        elif isinstance(result, str):
            parts.append(bytes(write_string(result)))
    parts.append(HEADER.pack(-1, True, -1))
    return b"".join(parts)
