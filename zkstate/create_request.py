"""kazoo's request to create a node, encoded at once: kazoo encodes the access list anew for each node."""

from functools import lru_cache
from struct import Struct

from kazoo.protocol.serialization import Create
from kazoo.security import ACL

_NUMBER = Struct("!i")


class CreateRequest(Create):  # type: ignore[misc] # kazoo has no types
    """The same bytes as kazoo's."""

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
    """A process has one access list, or two while its settings change."""
    parts = [_NUMBER.pack(len(entries))]
    for entry in entries:
        parts.append(_NUMBER.pack(entry.perms))
        for text in (entry.id.scheme.encode(), entry.id.id.encode()):
            parts += (_NUMBER.pack(len(text)), text)
    return b"".join(parts)
