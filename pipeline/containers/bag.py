"""BagIt bags (RFC 8493) in a container: recognized by their declaration, and checked as a whole.

A bag is stored unchanged, with its manifests.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from pipeline.containers.declared import Declared, UnpackedContainer, UnpackedFile, refuse
from pipeline.fixity import Digest, UnknownAlgorithm, algorithm
from pipeline.manifests import checkm_row, lines
from pipeline.names import (
    COMPOSED_OTHERWISE,
    PRODUCER,
    UnsafeName,
    duplicates,
    is_system_file,
    quote_name,
    safe_name,
)
from pipeline.outcome import content

DECLARATION = "bagit.txt"
FETCH_LIST = "fetch.txt"
TAG_BYTES = 1_000_000
"""Maximum bytes of `bagit.txt`, and of `bag-info.txt`."""

_READ_AT_FIRST = 1000
"""Bytes at the beginning of `bagit.txt` that are searched for a bag's declaration."""

_INFO = ("bag-info.txt", "package-info.txt")
"""Files that may have a Payload-Oxum; the second only before BagIt 0.96."""

_BEGIN = re.compile(rb"^\W*BagIt-Version\s*:", re.IGNORECASE | re.MULTILINE)
_ENCODINGS = {
    *("utf-8", "utf8", "utf-16", "utf-16le", "utf-16be", "us-ascii", "ascii"),
    *("iso-8859-1", "iso-8859-15", "latin1", "windows-1252"),
}
_VERSION = re.compile(r"([01])\.(\d{1,3})")
_MANIFEST = re.compile(r"(tag)?manifest-([^/]+)\.txt", re.IGNORECASE)
_LINE = re.compile(r"(\S+)[ \t]+(.+)")
_FETCH_LINE = re.compile(r"(\S+)[ \t]+(\d{1,18}|-)[ \t]+(.+)", re.ASCII)
_OXUM = re.compile(r"(\d{1,18})\.(\d{1,18})")
_ESCAPE = re.compile("%(?:0A|0D|25)", re.IGNORECASE)


@dataclass(frozen=True)
class _Bag:
    folder: str
    """With a trailing slash; empty if the container itself is the bag."""
    files: Mapping[str, UnpackedFile]
    """Path in the bag -> file."""
    unpacked: UnpackedContainer
    version: tuple[int, int] = (0, 0)
    encoding: str = "utf-8"

    def lines(self, name: str, limit: int = lines.LIST_BYTES) -> Iterator[tuple[int, str]]:
        not_text = f"is not text in {self.encoding}, as {DECLARATION} declares"
        path = self.unpacked.producer / (self.folder + name)
        return lines.read(path, self.title(name), not_text, self.encoding, limit)

    @property
    def what(self) -> str:
        return f"the bag in {quote_name(self.folder)}" if self.folder else "the bag"

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
    composed: tuple[str, ...] = ()
    """Names in the manifest that differ from the files' names in their Unicode composition."""


@dataclass(frozen=True)
class ToFetch:
    """A payload file that is not in the container, but at a URL, as the bag's fetch.txt says."""

    path: str
    """The path in the container."""
    url: str
    size: int | None
    digest: Digest
    where: str


def may_declare(path: str) -> bool:
    """Whether a file at this path declares a bag, if its content is a BagIt declaration."""
    return path.count("/") <= 1 and path.rpartition("/")[2] == DECLARATION


def has_fetch_list(paths: Collection[str]) -> bool:
    """Whether one of the files may be the fetch.txt of a bag."""
    return any(path.removesuffix(DECLARATION) + FETCH_LIST in paths for path in paths if may_declare(path))


def files_to_fetch(unpacked: UnpackedContainer, *, case_fold: bool, most: int) -> tuple[ToFetch, ...]:
    """The payload files, at most `most`, that only the bags' fetch.txt lists (RFC 8493, 2.2.3).

    StepFailed(content), naming the line but no URL, if a list is invalid, or if a payload file is neither in
    the container nor listed.
    """
    listed: list[ToFetch] = []
    for bag in _bags(unpacked):
        if FETCH_LIST in bag.files:
            listed += _to_fetch(bag)
    if len(listed) > most:
        raise content(f"{FETCH_LIST} lists more than {most:,} files, the limit of one object: divide it")
    names = (*unpacked.files, *(file.path for file in listed))
    if clash := next(iter(duplicates(names, case_fold)), None):
        raise content(f"bag file {quote_name(FETCH_LIST)}: {clash.reason}")
    return tuple(listed)


def _to_fetch(bag: _Bag) -> Iterator[ToFetch]:
    declared = _declared_of_missing(bag)
    missing = {unicodedata.normalize("NFC", path): path for path in declared}
    paths: set[str] = set()
    for number, line in bag.lines(FETCH_LIST):
        refuse_line = partial(_refuse_line, bag, number)
        entry = _FETCH_LINE.fullmatch(line)
        if entry is None:
            refuse_line("is not a URL, a length (or -) and a path")
        path = _path(bag, entry[3]).removeprefix("./")
        stripped = path.rstrip()
        if path not in declared and (stripped in declared or stripped in bag.files):
            path = stripped
        if path in paths:
            refuse_line(f"{quote_name(path)} is listed twice")
        paths.add(path)
        lines.check_entries(len(paths), bag.title(FETCH_LIST), len(bag.files))
        if path in bag.files or bag.unpacked.composed_otherwise(bag.folder + path):
            continue  # its URL does not matter: nothing is fetched from there
        if problem := _fetch_problem(bag, entry[1], path):
            refuse_line(problem)
        listed_as = missing.pop(unicodedata.normalize("NFC", path), "")
        if not listed_as:
            refuse_line(f"{quote_name(path)} is in no manifest of the bag: its bytes could not be compared")
        size = None if entry[2] == "-" else int(entry[2])
        where = f"{bag.folder}{FETCH_LIST} line {number}"
        yield ToFetch(bag.folder + path, entry[1], size, declared[listed_as], where)
    if missing:
        path = quote_name(next(iter(missing.values())))
        bag.refuse(FETCH_LIST, f"does not list {path}, which a manifest lists and the container lacks")


def _fetch_problem(bag: _Bag, url: str, path: str) -> str:
    """Why a line of fetch.txt is refused; empty if it is accepted."""
    if problem := checkm_row.url_problem(url):
        return problem
    if not _is_payload(path):
        return f"{quote_name(path)} is outside data/"
    try:
        safe_name(bag.folder + path, PRODUCER)
    except UnsafeName as unsafe:
        return str(unsafe)
    return ""


def _refuse_line(bag: _Bag, number: int, reason: str) -> NoReturn:
    bag.refuse(FETCH_LIST, f"line {number}: {reason}")


def _declared_of_missing(bag: _Bag) -> dict[str, Digest]:
    """Path -> longest digest, for the payload files in the bag's manifests that the container lacks."""
    declared: dict[str, Digest] = {}
    for manifest in _manifests(bag):
        if manifest.of_tags or not manifest.algorithm:
            continue
        for path, (number, value) in manifest.entries.items():
            if path in bag.files:
                continue
            try:
                digest = Digest(algorithm=manifest.algorithm, value=value)
            except ValidationError:
                not_a_value = f"{quote_name(value)} is not a value of {manifest.algorithm}"
                bag.refuse(manifest.name, f"line {number}: {not_a_value}")
            if path not in declared or len(digest.value) > len(declared[path].value):
                declared[path] = digest
    return declared


def check_bags(unpacked: UnpackedContainer) -> tuple[str, ...]:
    """A sentence for every valid bag; StepFailed(content), naming the file, if a bag is invalid."""
    return tuple(_check(bag) for bag in _bags(unpacked))


def _bags(unpacked: UnpackedContainer) -> list[_Bag]:
    """The outermost bags: a bag inside another bag is part of its payload or tag files."""
    folders = [
        path.removesuffix(DECLARATION)
        for path in sorted(unpacked.files)
        if may_declare(path) and _declares_bag(unpacked.producer / path)
    ]
    return [_bag(unpacked, folder) for folder in ([""] if "" in folders else folders)]


def _declares_bag(path: Path) -> bool:
    """Whether the file declares a bag, even with reordered lines or in an encoding BagIt does not allow."""
    with path.open("rb") as file:
        return _BEGIN.search(file.read(_READ_AT_FIRST).replace(b"\0", b"")) is not None


def _check(bag: _Bag) -> str:
    """Check the bag; says what was checked, and which manifests were not."""
    manifests = _manifests(bag)
    usable = [manifest for manifest in manifests if manifest.algorithm]
    refuse(bag.what, _problems(bag, usable))
    payload = sum(map(_is_payload, bag.files))
    used = ", ".join(_compared(usable, payload))
    version = f"BagIt {bag.version[0]}.{bag.version[1]}"
    said = f"{bag.what} ({version}) is valid: {payload:,} payload files, {used}"
    unknown = [quote_name(manifest.name) for manifest in manifests if not manifest.algorithm]
    if not unknown:
        return said
    not_checked = f"{' and '.join(unknown)} not checked, because the algorithm is not known"
    bag.unpacked.remarks.append(f"{bag.what}: {not_checked}")
    return f"{said}; {not_checked}"


def _manifests(bag: _Bag) -> list[_Manifest]:
    manifests = [_manifest(bag, match) for name in sorted(bag.files) if (match := _MANIFEST.fullmatch(name))]
    if not any(manifest.algorithm and not manifest.of_tags for manifest in manifests):
        bag.refuse(DECLARATION, "declares a bag, but it has no manifest-ALGORITHM.txt of a known algorithm")
    if composed := [path for manifest in manifests for path in manifest.composed]:
        more = f", as do {len(composed) - 1:,} more" if len(composed) > 1 else ""
        bag.unpacked.remarks.append(
            f"{bag.what}: {quote_name(composed[0])} in a manifest {COMPOSED_OTHERWISE} from the name of the "
            f"file{more}; the files keep their names"
        )
    return manifests


def _compared(manifests: list[_Manifest], payload: int) -> Iterator[str]:
    """The algorithms by which payload was compared, with the number of files unless all were."""
    listed: defaultdict[str, set[str]] = defaultdict(set)
    for manifest in manifests:
        if not manifest.of_tags:
            listed[manifest.algorithm].update(manifest.entries)
    for name, paths in sorted(listed.items()):
        yield name if len(paths) == payload else f"{name} of {len(paths):,}"


def _is_payload(path: str) -> bool:
    return path.startswith("data/")


def _bag(unpacked: UnpackedContainer, folder: str) -> _Bag:
    """The bag with the version and the encoding that `bagit.txt` declares."""
    files = {
        path.removeprefix(folder): file for path, file in unpacked.files.items() if path.startswith(folder)
    }
    bag = _Bag(folder, files, unpacked)
    fields = dict(_fields(bag, DECLARATION))
    version = _VERSION.fullmatch(fields.get("bagit-version", ""))
    if version is None:
        bag.refuse(DECLARATION, "has no line such as 'BagIt-Version: 1.0' of a version up to 1")
    encoding = fields.get("tag-file-character-encoding", "").lower()
    if encoding not in _ENCODINGS:
        bag.refuse(DECLARATION, "has no line 'Tag-File-Character-Encoding: UTF-8'")
    return replace(bag, version=(int(version[1]), int(version[2])), encoding=encoding)


def _fields(bag: _Bag, name: str) -> Iterator[tuple[str, str]]:
    """Lower-case labels and values; lines that begin with a blank continue a value (RFC 8493, 2.2.2)."""
    label = value = ""
    for _, line in bag.lines(name, TAG_BYTES):
        if label and line[0] in " \t":
            value = f"{value} {line.strip()}".strip()
            continue
        if label:
            yield label, value
        label, _, value = (part.strip() for part in line.partition(":"))
        label = label.lower()
    if label:
        yield label, value


def _manifest(bag: _Bag, match: re.Match[str]) -> _Manifest:
    """Read a manifest; `algorithm` is empty if it is not supported."""
    entries: dict[str, tuple[int, str]] = {}
    try:
        name = algorithm(match[2])
    except UnknownAlgorithm:
        name = ""
    for number, line in bag.lines(match[0]):
        if line.startswith("#"):
            continue  # a comment, as in lists of md5sum
        entry = _LINE.fullmatch(line)
        if entry is None:
            bag.refuse(match[0], f"line {number} is not a digest and a path")
        path = _path(bag, entry[2])
        if path not in bag.files:  # the name itself may begin with a star
            path = path.removeprefix("*").removeprefix("./")
        if path in entries:
            bag.refuse(match[0], f"line {number}: {quote_name(path)} is listed twice")
        if _is_payload(path) == bool(match[1]):
            place = "outside data/" if match[1] is None else "in data/"
            hint = "; folders are separated by '/'" if "\\" in path else ""
            bag.refuse(match[0], f"line {number}: {quote_name(path)} is {place}{hint}")
        entries[path] = (number, entry[1])
        lines.check_entries(len(entries), bag.title(match[0]), len(bag.files))
    composed = tuple(_by_other_spelling(bag, entries))
    return _Manifest(match[0], name, bool(match[1]), entries, composed)


def _by_other_spelling(bag: _Bag, entries: dict[str, tuple[int, str]]) -> Iterator[str]:
    """Rename entries that differ from a file's name in trailing blanks or in Unicode composition.

    Yields the names with another composition. A name that is itself in the bag stays as it is; no entry gets
    a name that the list already has.
    """
    for path in [path for path in entries if path not in bag.files]:
        stripped = path.rstrip()
        other = stripped
        if stripped not in bag.files:
            composed = map(bag.unpacked.composed_otherwise, (bag.folder + path, bag.folder + stripped))
            other = next(filter(None, composed), "").removeprefix(bag.folder)
        if other in bag.files and other not in entries:
            entries[other] = entries.pop(path)
            if other != stripped:
                yield path


def _path(bag: _Bag, written: str) -> str:
    """Unescape the path; versions before 1.0 escape nothing, and some programs do not in 1.0 either."""
    if bag.version < (1, 0):
        return written
    path = _ESCAPE.sub(lambda match: chr(int(match[0][1:], 16)), written)
    return written if written in bag.files and path not in bag.files else path


def _problems(bag: _Bag, manifests: list[_Manifest]) -> Iterator[str]:
    payload = _payload(bag, manifests)
    yield from _oxum(bag, payload)
    yield from _unlisted(bag, payload, manifests)
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


def _payload(bag: _Bag, manifests: list[_Manifest]) -> list[str]:
    """The files of the payload, without those that a computer put there after the bag was made.

    A look into its folder on a Mac makes `.DS_Store`. Such files are stored like the others.
    """
    listed = {name for manifest in manifests for name in manifest.entries}
    payload = sorted(filter(_is_payload, bag.files))
    return [name for name in payload if name in listed or not is_system_file(name)]


def _oxum(bag: _Bag, payload: list[str]) -> Iterator[str]:
    """Compare Payload-Oxum in bag-info.txt: bytes and files of the payload."""
    sizes = [bag.files[name].size for name in payload]
    for info in filter(bag.files.__contains__, _INFO if bag.version < (0, 96) else _INFO[:1]):
        for label, value in _fields(bag, info):
            oxum = _OXUM.fullmatch(value)
            if label != "payload-oxum" or (oxum and (int(oxum[1]), int(oxum[2])) == (sum(sizes), len(sizes))):
                continue
            actual = f"{sum(sizes)}.{len(sizes)}"
            yield f"{quote_name(bag.folder + info)}: Payload-Oxum is {quote_name(value)}, not {actual}"


def _unlisted(bag: _Bag, payload: list[str], manifests: list[_Manifest]) -> Iterator[str]:
    """Payload files missing from a manifest: since version 1.0 every manifest must list all of them."""
    lists = [manifest for manifest in manifests if not manifest.of_tags]
    for name in payload:
        lacking = [manifest for manifest in lists if name not in manifest.entries]
        if bag.version >= (1, 0):
            for manifest in lacking:
                yield f"{quote_name(bag.folder + name)} is not in {quote_name(bag.folder + manifest.name)}"
        elif len(lacking) == len(lists):
            yield f"{quote_name(bag.folder + name)} is in no manifest of the bag"
