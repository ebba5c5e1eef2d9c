"""kazoo's request of a transaction, encoded at once: kazoo makes objects of each operation."""

from collections.abc import Sequence
from struct import Struct
from typing import Any

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol import serialization
from kazoo.protocol.serialization import stat_struct
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from zkstate.create_request import CreateRequest

_NUMBER = Struct("!i")
HEADER = Struct("!i?i")
"""The header of each operation and of each result in a transaction (`MultiHeader` of ZooKeeper): type of the
operation, whether the transaction ends here, error code."""

_CREATE, _DELETE = serialization.Create.type, serialization.Delete.type
_PUT, _CHECK = serialization.SetData.type, serialization.CheckVersion.type
_REFUSED = -1
"""The type in the header of each result if ZooKeeper refused the transaction."""


def _header(kind: int) -> bytes:
    return HEADER.pack(kind, False, -1)


OF_CREATE, _OF_DELETE, _OF_PUT, _OF_CHECK = map(_header, (_CREATE, _DELETE, _PUT, _CHECK))
_END = HEADER.pack(-1, True, -1)


def create(path: str, data: bytes, access: Sequence[ACL], flags: int) -> bytes:
    return OF_CREATE + CreateRequest(path, data, access, flags).serialize()


def delete(path: str) -> bytes:
    return _OF_DELETE + _text(path) + _NUMBER.pack(-1)


def put(path: str, data: bytes, version: int) -> bytes:
    return b"".join((_OF_PUT, _text(path), _NUMBER.pack(len(data)), data, _NUMBER.pack(version)))


def check(path: str, version: int) -> bytes:
    return _OF_CHECK + _text(path) + _NUMBER.pack(version)


def _text(path: str) -> bytes:
    encoded = path.encode()
    return _NUMBER.pack(len(encoded)) + encoded


class MultiRequest:
    """The same bytes and the same results as kazoo's `Transaction`.

    `unread`: bytes of the answer to the last operations; if ZooKeeper applied the transaction, they are not
    decoded, and the results are those of the operations before.
    """

    __slots__ = ("_content", "_unread")

    type = serialization.Transaction.type

    def __init__(self, operations: Sequence[bytes], unread: int = 0) -> None:
        self._content = b"".join((*operations, _END))
        self._unread = unread

    def serialize(self) -> bytes:
        return self._content

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        applied = HEADER.unpack_from(data, offset)[0] != _REFUSED
        end = len(data) - len(_END) - (self._unread if applied else 0)
        while offset < end:
            kind, _, _ = HEADER.unpack_from(data, offset)
            offset += HEADER.size
            if kind == _PUT:
                results.append(ZnodeStat._make(stat_struct.unpack_from(data, offset)))
                offset += stat_struct.size
            elif kind == _CREATE:
                path, offset = serialization.read_string(data, offset)
                results.append(path)
            elif kind == _REFUSED:
                results.append(EXCEPTIONS[_NUMBER.unpack_from(data, offset)[0]]())
                offset += _NUMBER.size
            else:
                results.append(True)
        return results
