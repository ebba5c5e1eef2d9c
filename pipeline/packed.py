"""Many records in little memory: compressed in blocks, and decoded when they are read."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

R = TypeVar("R")
K = TypeVar("K", bound=Hashable)

BLOCK = 200
"""Records that are compressed together: about 60 KB, which become 20 KB."""


@dataclass(frozen=True)
class Packed(Sequence[R], ABC):
    """Records as JSON lines in compressed blocks of `BLOCK`; the last block may have fewer."""

    blocks: tuple[bytes, ...] = ()
    total: int = 0

    @abstractmethod
    def decoded(self, text: bytes) -> R:
        """The record of this line."""

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[R]:
        return self._within(range(self.total))

    @overload
    def __getitem__(self, which: int) -> R: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[R, ...]: ...
    def __getitem__(self, which: int | slice) -> R | tuple[R, ...]:
        if isinstance(which, slice):
            return tuple(self._within(range(self.total)[which]))
        place = range(self.total)[which]
        return next(self._within(range(place, place + 1)))

    def _within(self, places: range) -> Iterator[R]:
        """The records at these places; unpacks a block once, and decodes no other record."""
        last, texts = -1, list[bytes]()
        for place in places:
            number, within = divmod(place, BLOCK)
            if number != last:
                last, texts = number, zlib.decompress(self.blocks[number]).split(b"\n")
            yield self.decoded(texts[within])


def packed_block(texts: Iterable[str]) -> bytes:
    return zlib.compress("\n".join(texts).encode(), level=1)


def packed_groups(texts: Iterable[tuple[K, str]]) -> Mapping[K, tuple[tuple[bytes, ...], int]]:
    """Group -> the blocks and the number of its texts, in order."""
    blocks: dict[K, list[bytes]] = {}
    pending: dict[K, list[str]] = {}
    for group, text in texts:
        lines = pending.setdefault(group, [])
        lines.append(text)
        if len(lines) == BLOCK:
            blocks.setdefault(group, []).append(packed_block(lines))
            lines.clear()
    return {
        group: (
            (*blocks.get(group, ()), *([packed_block(rest)] if rest else ())),
            BLOCK * len(blocks.get(group, ())) + len(rest),
        )
        for group, rest in pending.items()
    }
