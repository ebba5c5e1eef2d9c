"""Requests to create the same nodes for many things: what the things have in common is encoded once.

The bytes are kazoo's. These requests are the last ones of their transaction, whose answer to each of them is
equally long if ZooKeeper applied it (`zkstate.multi_request` does not decode them then).
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, Self

from kazoo.security import ACL

from zkstate.create_request import encode_access
from zkstate.multi_request import HEADER, OF_CREATE

_NUMBER = Struct("!i")
_PERSISTENT = _NUMBER.pack(0)


class NodeTemplate(NamedTuple):
    """The requests for one thing, cut where its name stands and where it has contents of its own."""

    runs: tuple[tuple[bytes, ...], ...]
    """Between the pieces of a run stands the name; between the runs, a content."""
    paths: tuple[tuple[str, str], ...]
    """Of each node: what is before the name and behind it."""
    answer_bytes: int
    """Of the answer to the requests for one thing."""

    @classmethod
    def cut(
        cls, name: str, nodes: Sequence[tuple[str, bytes | None]], prefix: str, access: Sequence[ACL]
    ) -> Self:
        """For all names of as many bytes as this one.

        `nodes`: path and content; None if each thing has a content of its own.
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
        """The requests for the thing of this name; `contents` in the order of their nodes."""
        first, *others = self.runs
        parts = [name.join(first)]
        for content, run in zip(contents, others, strict=True):
            parts += (_NUMBER.pack(len(content)), content, name.join(run))
        return b"".join(parts)
