"""BagIt bags (RFC 8493) in a container: recognized by their declaration, and checked as a whole.

A bag is stored unchanged, with its manifests.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from pipeline.containers.declared import Declared, UnpackedContainer, UnpackedFile, refuse
from pipeline.fixity import Digest, UnknownAlgorithm, algorithm
from pipeline.manifests import lines as lists
from pipeline.names import quote_name
from pipeline.outcome import content

DECLARATION = "bagit.txt"
TAG_BYTES = 1_000_000
"""Bytes of `bagit.txt` and of `bag-info.txt`."""

_BEGIN = b"BagIt-Version:"
_ENCODINGS = {"utf-8", "utf8", "utf-16", "us-ascii", "ascii", "iso-8859-1"}
_VERSION = re.compile(r"([01])\.(\d{1,3})")
_MANIFEST = re.compile(r"(tag)?manifest-([A-Za-z0-9_-]+)\.txt")
_LINE = re.compile(r"(\S+)[ \t]+\*?(?:\./)?(.+)")
_OXUM = re.compile(r"(\d{1,18})\.(\d{1,18})")
_ESCAPES = {"%0A": "\n", "%0D": "\r"}


@dataclass(frozen=True)
class _Bag:
    folder: str
    """With its slash; empty if the container itself is the bag."""
    files: Mapping[str, UnpackedFile]
    """Path in the bag -> file."""
    unpacked: UnpackedContainer
    version: tuple[int, int] = (0, 0)
    encoding: str = "utf-8"

    def lines(self, name: str, limit: int = lists.LIST_BYTES) -> Iterator[tuple[int, str]]:
        not_text = f"is not text in {self.encoding}, as {DECLARATION} declares"
        path = self.unpacked.producer / (self.folder + name)
        return lists.read(path, self.title(name), not_text, self.encoding, limit)

    def title(self, name: str) -> str:
        return f"bag file {quote_name(self.folder + name)}"

    def refuse(self, name: str, reason: str) -> NoReturn:
        raise content(f"{self.title(name)} {reason}")


@dataclass(frozen=True)
class _Manifest:
    name: str
    algorithm: str
    of_tags: bool
    entries: Mapping[str, tuple[int, str]]
    """Path in the bag -> line, value."""


def may_declare(path: str) -> bool:
    """Whether a file with this path declares a bag, if the file is one of BagIt."""
    return path.count("/") <= 1 and path.rpartition("/")[2] == DECLARATION


def check_bags(unpacked: UnpackedContainer) -> tuple[str, ...]:
    """A sentence for each bag that is valid; StepFailed(content), naming the file, if one is not."""
    folders = [path.removesuffix(DECLARATION) for path in sorted(unpacked.files) if may_declare(path)]
    return tuple(
        _check(unpacked, folder)
        for folder in folders
        if _declares_bag(unpacked.producer / (folder + DECLARATION))
    )


def _declares_bag(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(64).removeprefix(b"\xef\xbb\xbf").startswith(_BEGIN)


def _check(unpacked: UnpackedContainer, folder: str) -> str:
    files = {
        path.removeprefix(folder): file for path, file in unpacked.files.items() if path.startswith(folder)
    }
    bag = _declared(_Bag(folder, files, unpacked))
    manifests = [_manifest(bag, match) for name in sorted(files) if (match := _MANIFEST.fullmatch(name))]
    usable = [manifest for manifest in manifests if manifest.algorithm]
    if all(manifest.of_tags for manifest in usable):
        bag.refuse(DECLARATION, "declares a bag, but it has no manifest-ALGORITHM.txt of a known algorithm")
    what = f"the bag in {quote_name(folder)}" if folder else "the bag"
    refuse(what, _problems(bag, usable))
    payload = sum(name.startswith("data/") for name in files)
    used = ", ".join(sorted({manifest.algorithm for manifest in usable}))
    return f"{what} (BagIt {bag.version[0]}.{bag.version[1]}) is valid: {payload:,} payload files, {used}"


def _declared(bag: _Bag) -> _Bag:
    """The bag with the version and the encoding that `bagit.txt` declares."""
    fields = dict(_fields(bag, DECLARATION))
    version = _VERSION.fullmatch(fields.get("bagit-version", ""))
    if version is None:
        bag.refuse(DECLARATION, "has no line such as 'BagIt-Version: 1.0' of a version up to 1")
    encoding = fields.get("tag-file-character-encoding", "").lower()
    if encoding not in _ENCODINGS:
        bag.refuse(DECLARATION, "has no line 'Tag-File-Character-Encoding: UTF-8'")
    return replace(bag, version=(int(version[1]), int(version[2])), encoding=encoding)


def _fields(bag: _Bag, name: str) -> Iterator[tuple[str, str]]:
    for _, line in bag.lines(name, TAG_BYTES):
        label, _, value = line.partition(":")
        yield label.strip().lower(), value.strip()


def _manifest(bag: _Bag, match: re.Match[str]) -> _Manifest:
    """`algorithm` is empty if it is not supported."""
    entries: dict[str, tuple[int, str]] = {}
    try:
        name = algorithm(match[2])
    except UnknownAlgorithm:
        name = ""
    for number, line in bag.lines(match[0]):
        entry = _LINE.fullmatch(line.rstrip())
        if entry is None:
            bag.refuse(match[0], f"line {number} is not a digest and a path")
        path = _path(bag, entry[2])
        if path in entries:
            bag.refuse(match[0], f"line {number}: {quote_name(path)} is listed twice")
        if path.startswith("data/") == bool(match[1]):
            place = "outside data/" if match[1] is None else "in data/"
            bag.refuse(match[0], f"line {number}: {quote_name(path)} is {place}")
        entries[path] = (number, entry[1])
        lists.check_entries(len(entries), bag.title(match[0]), len(bag.files))
    return _Manifest(match[0], name, bool(match[1]), entries)


def _path(bag: _Bag, written: str) -> str:
    for escape, character in _ESCAPES.items():
        written = re.sub(escape, character, written, flags=re.IGNORECASE)
    return written.replace("%25", "%") if bag.version >= (1, 0) else written


def _problems(bag: _Bag, manifests: list[_Manifest]) -> Iterator[str]:
    yield from _oxum(bag)
    yield from _unlisted(bag, manifests)
    digests: defaultdict[str, list[tuple[str, Digest]]] = defaultdict(list)
    for manifest in manifests:
        for path, (number, value) in manifest.entries.items():
            where = f"{quote_name(bag.folder + manifest.name)} line {number}"
            try:
                digests[path].append((where, Digest(algorithm=manifest.algorithm, value=value)))
            except ValidationError:
                yield f"{where}: {quote_name(value)} is not a value of {manifest.algorithm}"
    yield from bag.unpacked.problems(
        Declared(" and ".join(where for where, _ in entries), bag.folder + path, tuple(d for _, d in entries))
        for path, entries in digests.items()
    )


def _oxum(bag: _Bag) -> Iterator[str]:
    """Payload-Oxum in bag-info.txt: bytes and files of the payload."""
    if "bag-info.txt" not in bag.files:
        return
    sizes = [file.size for name, file in bag.files.items() if name.startswith("data/")]
    for label, value in _fields(bag, "bag-info.txt"):
        if label == "payload-oxum":
            oxum = _OXUM.fullmatch(value)
            if oxum is None or (int(oxum[1]), int(oxum[2])) != (sum(sizes), len(sizes)):
                actual = f"{sum(sizes)}.{len(sizes)}"
                place = quote_name(bag.folder + "bag-info.txt")
                yield f"{place}: Payload-Oxum is {quote_name(value)}, not {actual}"


def _unlisted(bag: _Bag, manifests: list[_Manifest]) -> Iterator[str]:
    """Payload files missing in a manifest: since version 1.0 every manifest has to list all of them."""
    lists = [manifest for manifest in manifests if not manifest.of_tags]
    for name in sorted(name for name in bag.files if name.startswith("data/")):
        lacking = [manifest for manifest in lists if name not in manifest.entries]
        if bag.version >= (1, 0):
            for manifest in lacking:
                yield f"{quote_name(bag.folder + name)} is not in {quote_name(bag.folder + manifest.name)}"
        elif len(lacking) == len(lists):
            yield f"{quote_name(bag.folder + name)} is in no manifest of the bag"
