"""A node with typed content: read alone or with many others, and changed by compare-and-set.

Rule: an unreadable node does not affect the others.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from pipeline.records import Record
from zkstate import codec
from zkstate.connection.session import Session
from zkstate.errors import Contended, Corrupt, Missing

C = TypeVar("C", bound=Record | int)
T = TypeVar("T")

_log = logging.getLogger("arkline.record")


def log_damage(damage: Corrupt | Missing) -> None:
    _log.error("%s", damage)


def ignore_damage(_: Corrupt) -> None:
    """Skip the node without a log line: the audit reports it."""


@dataclass(frozen=True)
class Seen(Generic[C]):
    """The content of a node as it was read."""

    content: C
    stat: ZnodeStat


@dataclass(frozen=True)
class Node(Generic[C]):
    """The node at `path`; without data, its content is the default of `kind`.

    `damaged`: gives the content of an unreadable node; None: reading such a node raises Corrupt.
    """

    path: str
    kind: type[C]
    damaged: Callable[[Corrupt], C] | None = None

    def decode(self, data: bytes) -> C:
        try:
            return codec.decode(self.kind, data if self.kind is int else data or b"{}", self.path)
        except Corrupt as damage:
            if self.damaged is None:
                raise
            return self.damaged(damage)

    def find(self, session: Session) -> Seen[C] | None:
        node = session.find(self.path)
        return None if node is None else Seen(self.decode(node[0]), node[1])

    def read(self, session: Session) -> C | None:
        """The content; None if there is no such node."""
        stored = self.find(session)
        return None if stored is None else stored.content

    def readable(self, session: Session) -> C | None:
        """Like `read`; also None for an unreadable node, which is logged."""
        try:
            return self.read(session)
        except Corrupt as damage:
            log_damage(damage)
            return None

    def replace(self, session: Session, version: int, content: C) -> bool:
        """False if the node has changed since it was read, even by this write, if its answer was lost."""
        try:
            session.ask(session.zk.set_async, self.path, codec.encode(content), version=version)
        except (BadVersionError, NoNodeError):
            return False
        return True

    def change(self, session: Session, changed: Callable[[C], C]) -> C:
        """Compare and set; repeats `changed` if another writer was first. Missing if there is no node."""
        while True:
            stored = self.find(session)
            if stored is None:
                raise Missing(f"znode {self.path} is missing")
            content = changed(stored.content)
            if content == stored.content or self.replace(session, stored.stat.version, content):
                return content

    def publish(self, session: Session, content: C) -> None:
        """Write the content unconditionally: the last writer wins."""
        data = codec.encode(content)
        try:
            session.ask(session.zk.set_async, self.path, data)
        except NoNodeError:
            session.ensure_node(self.path, data)


def uncontended(write: Callable[[], T]) -> T:
    """The result of `write`, which is repeated while a shared value has changed since it was read."""
    while True:
        with suppress(Contended):
            return write()


def read_each(
    session: Session,
    names: Sequence[str],
    path: Callable[[str], str],
    decode: Callable[[bytes, str], T],
    on_damage: Callable[[Corrupt], None] = log_damage,
) -> Iterator[tuple[str, T, ZnodeStat]]:
    """Name, content and stat of the nodes at `path(name)`, requested at once.

    Skips missing and unreadable nodes.
    """
    places = [path(name) for name in names]
    for name, place, node in zip(names, places, session.get_many(places), strict=True):
        if node is None:
            continue
        try:
            content = decode(node[0], place)
        except Corrupt as damage:
            on_damage(damage)
            continue
        yield name, content, node[1]


Parts = Sequence[tuple[bytes, ZnodeStat] | None]
"""The nodes of one job or batch; None for a missing one."""


def read_parts(
    session: Session, names: Sequence[str], parts: Sequence[Callable[[str], str]], page: int
) -> Iterator[tuple[str, Parts]]:
    """Name and nodes of each job or batch; `page` of them in one round of reads."""
    for start in range(0, len(names), page):
        some = names[start : start + page]
        answers = session.get_many([path(name) for name in some for path in parts])
        for number, name in enumerate(some):
            first = number * len(parts)
            yield name, answers[first : first + len(parts)]
