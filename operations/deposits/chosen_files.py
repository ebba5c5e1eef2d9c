"""Files that are deposited, found by the names that a table writes."""

import difflib
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from pathlib import PurePosixPath

from pipeline.containers.bag import DECLARATION, may_declare
from pipeline.names import is_system_file, quote_name

NEAR = 3
"""Maximum names suggested for a missing file."""

COMPARED = 200_000
"""Maximum comparisons of names for all missing files, in about a second. Names that differ in case, folder or
suffix alone are found without."""

_SIMILAR = 0.8
"""Minimum similarity, from 0 to 1, at which one name is suggested for another: img_1.jpg for img-1.jpg."""


def left_out(names: Collection[str], *, one_object: bool) -> tuple[str, ...]:
    """Those of a folder's files that an operating system made for itself, which are not deposited.

    `one_object`: all files become one object. A bag in it is compared with its manifests, which list such
    files if they were there when the bag was made: it stays whole.
    """
    bags = set[str]()
    if one_object:
        bags = {name.removesuffix(DECLARATION) for name in names if may_declare(name)}
    if "" in bags:
        return ()
    return tuple(
        name for name in names if is_system_file(name) and "".join(name.partition("/")[:2]) not in bags
    )


class ChosenFiles:
    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)
        self._composed = {unicodedata.normalize("NFC", name): name for name in self._names}
        self._left = COMPARED

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._names)

    @cached_property
    def _by_likeness(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for name in self._names:
            for alike in _alike(name):
                names.setdefault(alike, []).append(name)
        return names

    def find(self, path: str) -> str:
        """The file of this name, however its letters are composed; empty if there is none."""
        if path in self._names:
            return path
        name = PurePosixPath(path).as_posix()
        return name if name in self._names else self._composed.get(unicodedata.normalize("NFC", name), "")

    def near(self, name: str) -> tuple[str, ...]:
        """The files that `name` probably means."""
        for alike in _alike(name):
            if alike in self._by_likeness:
                return tuple(self._by_likeness[alike][:NEAR])
        self._left -= len(self._names)
        if self._left < 0:
            return ()
        spelled = {_spelling(other): other for other in self._names}
        return tuple(
            map(spelled.__getitem__, difflib.get_close_matches(_spelling(name), spelled, NEAR, _SIMILAR))
        )


def missing(name: str, where: str, near: tuple[str, ...]) -> str:
    """The message about a file that is not there."""
    meant = f"; did you mean {' or '.join(map(quote_name, near))}?" if near else ""
    return f"there is no file {quote_name(name)} {where}{meant}"


def _alike(name: str) -> Iterator[str]:
    """What names that mean the same file have in common, the most telling first."""
    path = PurePosixPath(_spelling(name.replace("\\", "/")))
    yield from (str(path), f"/{path.name}", f"//{path.stem}")


def _spelling(name: str) -> str:
    """The name without the differences that do not count: case, and composition of letters."""
    return unicodedata.normalize("NFC", name).casefold()
