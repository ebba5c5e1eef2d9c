"""kazoo's requests, encoded directly to the same bytes, and a request to add a persistent watch.

kazoo creates objects for each operation of a transaction, and encodes the access list again for each node.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Any, ClassVar, NamedTuple, Self

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol import serialization
from kazoo.protocol.serialization import stat_struct
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

_NUMBER = Struct("!i")
HEADER = Struct("!i?i")
"""The header of each operation and of each result in a transaction (`MultiHeader` of ZooKeeper): type of the
operation, whether the transaction ends here, error code."""

_CREATE, _DELETE = serialization.Create.type, serialization.Delete.type
_PUT, _CHECK = serialization.SetData.type, serialization.CheckVersion.type
_RECURSIVE = 1
"""The mode of a persistent watch that includes all nodes below."""

_REFUSED = -1
"""The type in the header of each result if ZooKeeper refused the transaction."""


def _header(kind: int) -> bytes:
    return HEADER.pack(kind, False, -1)


OF_CREATE, _OF_DELETE, _OF_PUT, _OF_CHECK = map(_header, (_CREATE, _DELETE, _PUT, _CHECK))
_PERSISTENT = _NUMBER.pack(0)
_END = HEADER.pack(-1, True, -1)


class CreateRequest(serialization.Create):  # type: ignore[misc] # kazoo has no types
    """kazoo's request, with the same bytes."""

    __slots__ = ()

    def serialize(self) -> bytes:
        path, data = self.path.encode(), self.data
        return b"".join(
            (
                _NUMBER.pack(len(path)),
                path,
                _NUMBER.pack(len(data)),
                data,
                encode_access(tuple(self.acl)),
                _NUMBER.pack(self.flags),
            )
        )


@lru_cache(maxsize=8)
def encode_access(entries: tuple[ACL, ...]) -> bytes:
    """Encode an access list; cached: a process has one, or two while its settings change."""
    parts = [_NUMBER.pack(len(entries))]
    for entry in entries:
        parts.append(_NUMBER.pack(entry.perms))
        for text in (entry.id.scheme.encode(), entry.id.id.encode()):
            parts += (_NUMBER.pack(len(text)), text)
    return b"".join(parts)


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
    """A transaction with the same bytes and the same results as kazoo's `Transaction`.

    `unread`: length of the answer to the last operations, which is not decoded if ZooKeeper applied the
    transaction; the results are then those of the operations before.
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


class NodeTemplate(NamedTuple):
    """The requests that create a group of nodes, split at the group's name and at the contents that differ
    between groups: the common part of many groups is encoded once.

    The requests come last in their transaction. If ZooKeeper applied it, the length of the answer to them is
    known, and `MultiRequest` does not decode it.
    """

    runs: tuple[tuple[bytes, ...], ...]
    """The name goes between the pieces of a run, and a content between two runs."""
    paths: tuple[tuple[str, str], ...]
    """For each node, the parts of its path before and after the name."""
    answer_bytes: int
    """Length of the answer to the requests of one group."""

    @classmethod
    def cut(
        cls, name: str, nodes: Sequence[tuple[str, bytes | None]], prefix: str, access: Sequence[ACL]
    ) -> Self:
        """The template for all names of as many bytes as `name`.

        `nodes`: path and content; None if the content differs between groups.
        """
        behind_content = encode_access(tuple(access)) + _PERSISTENT
        runs, paths, answer_bytes = [[b""]], list[tuple[str, str]](), 0
        for path, content in nodes:
            before, _, behind = path.rpartition(name)
            length = len(f"{prefix}{path}".encode())
            runs[-1][-1] += OF_CREATE + _NUMBER.pack(length) + f"{prefix}{before}".encode()
            runs[-1].append(behind.encode())
            if content is None:
                runs.append([behind_content])
            else:
                runs[-1][-1] += _NUMBER.pack(len(content)) + content + behind_content
            paths.append((before, behind))
            answer_bytes += HEADER.size + _NUMBER.size + length
        return cls(tuple(map(tuple, runs)), tuple(paths), answer_bytes)

    def encode(self, name: bytes, contents: Sequence[bytes]) -> bytes:
        """Encode the requests of the group named `name`; `contents` are in node order."""
        first, *others = self.runs
        parts = [name.join(first)]
        for content, run in zip(contents, others, strict=True):
            parts += (_NUMBER.pack(len(content)), content, name.join(run))
        return b"".join(parts)


@dataclass(frozen=True)
class AddWatch:
    """Request an event for each node that changes at or below the path; ZooKeeper 3.6 and later.

    kazoo 2.11 lacks this request. It registers a one-shot watch for every request with a field `watcher`, so
    this one has none.
    """

    path: str
    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        return _text(self.path) + _NUMBER.pack(_RECURSIVE)

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> None:
        """The answer has no content."""
