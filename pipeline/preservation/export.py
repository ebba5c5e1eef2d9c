"""A version of an object as a BagIt bag (RFC 8493): its parts, and the folder or archive made of them.

The tag file `metadata/premis.xml` has the object's events up to this export. The manifest is that of the
record; every file is compared with it while it is read.

Rule: the folder gets its name last. A bag that exists is complete; a refused or interrupted export leaves
nothing under that name. A damaged file ends an archive before its end.
"""

import re
import secrets
import shutil
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO
from weakref import finalize

from zipstream import ZipStream

from pipeline.errors import UsageRefused
from pipeline.file_system import sync, sync_tree
from pipeline.fixity import OF_RECORD, READ_CHUNK, Digester, OnRead, ignore
from pipeline.inventory.base import InventoryFile, InventoryObject, InventoryVersion
from pipeline.names import PRODUCER, safe_name
from pipeline.outcome import damaged
from pipeline.preservation.premis_record import IN_MEMORY
from pipeline.preservation.reading_out import files_of, read
from pipeline.records import now
from pipeline.storage.base import Storage

PAYLOAD = "data"
PREMIS = "metadata/premis.xml"
MANIFEST, TAG_MANIFEST = f"manifest-{OF_RECORD}.txt", f"tagmanifest-{OF_RECORD}.txt"
DECLARATION = "bagit.txt"
_ESCAPES = {"%": "%25", "\n": "%0A", "\r": "%0D"}
"""The characters of a path that BagIt 1.0 encodes in a manifest; the percent sign comes first."""

_ENCODING, _PLAIN = "1.0", "0.97"
"""Versions of BagIt: with these escapes, and with names as they are.

bagit-python does not decode %25 and refuses such a bag: a name with a percent sign needs the earlier version.
"""

_AMBIGUOUS = re.compile("[\r\n]|%0[AD]", re.IGNORECASE)
"""In a name, what only the later version distinguishes from an escape."""


@dataclass(frozen=True)
class Part:
    """A file of a bag or an archive, whose `size` bytes are read before those of the next part."""

    path: str
    size: int
    read: Callable[[int], Iterable[bytes]]
    """The bytes from an offset on, once. Only the whole of a stored file is compared with its digest."""


@dataclass(frozen=True)
class ExportedBag:
    ark: str
    version: int
    folder: str
    files: int
    bytes: int


def export_bag(
    known: InventoryObject,
    number: int,
    storage: Storage,
    folder: Path,
    premis: Callable[[], Iterable[bytes]],
    on_read: OnRead = ignore,
) -> ExportedBag:
    """Write the version as a bag in the new folder `folder`.

    `premis`: returns the document of the object and its events; the export is one that has begun.

    DamagedObject if storage does not have exactly the recorded files with the recorded digests; UsageRefused
    if the folder exists or cannot be written; StepFailed(transient) if storage cannot be read.
    """
    version = next(version for version in known.versions if version.number == number)
    size = sum(file.size for file in version.files)
    with drafted(folder) as draft:
        for part in Bag(known, version, premis(), now()).parts(storage):
            write_part(draft / part.path, part.read(0), on_read)
        sync_tree(draft)
    return ExportedBag(known.ark, number, str(folder), len(version.files), size)


class Bag:
    """The parts of a bag, all of whose sizes are known before storage is read for its payload."""

    def __init__(
        self, known: InventoryObject, version: InventoryVersion, premis: Iterable[bytes], at: datetime
    ) -> None:
        """`premis`: the document, which is read now; `at`: the time of the export, whose date the bag has."""
        self._ark = known.ark
        self._version = version
        self._premis: IO[bytes] = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        finalize(self, self._premis.close)  # a bag may never be read to its end
        digester = Digester()
        for piece in premis:
            digester.update(piece)
            self._premis.write(piece)
        lines = _information(known, version, at)
        payload_digests = {_payload_path(file): _sha512(file) for file in version.files}
        bagit = _version_for(payload_digests)
        texts = {
            DECLARATION: f"BagIt-Version: {bagit}\nTag-File-Character-Encoding: UTF-8\n",
            "bag-info.txt": "".join(f"{label}: {' '.join(value.split())}\n" for label, value in lines),
            MANIFEST: _manifest(payload_digests, bagit),
        }
        tags = {name: _sha512_of(text) for name, text in texts.items()} | {PREMIS: digester.value()}
        texts[TAG_MANIFEST] = _manifest(tags, bagit)
        self.digest = _sha512_of(texts[TAG_MANIFEST])
        """Of the manifest of the tag files: bags with the same one are the same, byte for byte."""
        self._texts = {name: text.encode() for name, text in texts.items()}
        self._premis_size = digester.size

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Path and size of every part, in order."""
        yield from ((name, len(data)) for name, data in self._texts.items())
        yield PREMIS, self._premis_size
        yield from ((_payload_path(file), file.size) for file in _in_order(self._version))

    def parts(self, storage: Storage) -> Iterator[Part]:
        """Every part; to be used once. DamagedObject unless storage has exactly what is recorded."""
        for name, data in self._texts.items():
            yield Part(name, len(data), lambda start, data=data: (data[start:],))  # type: ignore[misc]
        yield Part(PREMIS, self._premis_size, self._premis_from)
        yield from payload(self._ark, self._version, storage, f"{PAYLOAD}/")

    def _premis_from(self, start: int) -> Iterator[bytes]:
        self._premis.seek(start)
        return iter(lambda: self._premis.read(READ_CHUNK), b"")


def payload(ark: str, version: InventoryVersion, storage: Storage, folder: str = "") -> Iterator[Part]:
    """The files of the version in `folder`, compared while they are read; errors as `files_of`."""
    for file, outgoing in files_of(ark, version, storage):
        path = f"{folder}{safe_name(file.path, stored=True)}"
        yield Part(path, file.size, partial(read, ark, file, outgoing))


def _in_order(version: InventoryVersion) -> list[InventoryFile]:
    """The files as `Storage.read_out` orders them."""
    return sorted(version.files, key=lambda file: file.path)


def tar_size(folder: str, sizes: Iterable[tuple[str, int]]) -> int:
    """The bytes of `tar`."""
    total = len(_TAR_END)
    for path, size in sizes:
        name = f"{folder}/{path}"
        header = _BLOCK if _is_plain(name, size) else len(_tar_header(name, size, 0))
        total += header + size + -size % _BLOCK
    return total


def tar(folder: str, parts: Iterable[Part], at: datetime, start: int = 0) -> Iterator[bytes]:
    """The parts in a folder of a tar archive, of any size, with names in UTF-8; from the byte `start` on.

    No byte of a part is read that ends before `start`.
    """
    for part in parts:
        header = _tar_header(f"{folder}/{part.path}", part.size, int(at.timestamp()))
        end = len(header) + part.size
        yield header[start:]
        if start < end:
            yield from part.read(max(0, start - len(header)))
        end += -part.size % _BLOCK
        yield bytes(min(-part.size % _BLOCK, max(0, end - start)))
        start = max(0, start - end)
    yield _TAR_END[start:]


def _tar_header(name: str, size: int, at: int) -> bytes:
    """As tarfile writes it, which needs ten times longer for a plain name: half the time of a small file."""
    if not _is_plain(name, size):
        info = tarfile.TarInfo(name)
        info.size, info.mtime = size, at
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8")
    header = bytearray(_TAR_PLAIN)
    header[: len(name)] = name.encode()
    header[124:148] = b"%011o\0%011o\0" % (size, at)
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _is_plain(name: str, size: int) -> bool:
    """Whether the header is one block: others have further fields in a block before it."""
    return len(name) <= tarfile.LENGTH_NAME and name.isascii() and size < 8**11


_TAR_PLAIN = bytearray(tarfile.TarInfo().tobuf(tarfile.PAX_FORMAT))
_TAR_PLAIN[148:156] = b" " * 8  # the checksum counts itself as spaces
_BLOCK = tarfile.BLOCKSIZE
_TAR_END = bytes(2 * _BLOCK)


def zip_of(folder: str, ark: str, version: InventoryVersion, storage: Storage) -> tuple[int, Iterator[bytes]]:
    """Size and bytes of a zip archive of the depositor's files, which are not compressed."""
    archive = ZipStream(sized=True)
    deposited = (part for part in payload(ark, version, storage) if part.path.startswith(PRODUCER))
    for file in _in_order(version):
        if file.path.startswith(PRODUCER):
            name = f"{folder}/{file.path.removeprefix(PRODUCER)}"
            archive.add(_next_of(deposited, file.path), name, size=file.size)
    return len(archive), iter(archive)


def _next_of(parts: Iterator[Part], path: str) -> Iterator[bytes]:
    """The bytes of the next part, once they are asked for; it has to be this one."""
    part = next(parts, None)
    if part is None or part.path != path:
        raise damaged(f"storage lists other files than the record: {path} is missing")
    yield from part.read(0)


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder` that gets its name if the block succeeds, and is removed otherwise."""
    if folder.exists() or folder.is_symlink():
        raise UsageRefused(f"{folder} exists: choose another folder for the bag")
    draft = folder.with_name(f".{folder.name}.partial-{secrets.token_hex(4)}")
    try:
        draft.mkdir()
        yield draft
        draft.rename(folder)
        sync(folder.parent.resolve())  # a link may lead there
    except OSError as error:
        place = error.filename or folder
        raise UsageRefused(f"the bag cannot be written: {place}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_part(path: Path, pieces: Iterable[bytes], on_read: OnRead) -> None:
    """Write a new file; it is synced later with the whole bag."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
            on_read(len(piece))


def _payload_path(file: InventoryFile) -> str:
    return f"{PAYLOAD}/{safe_name(file.path, stored=True)}"


def _sha512(file: InventoryFile) -> str:
    algorithm, _, value = file.digest.partition(":")
    if algorithm != OF_RECORD:
        raise UsageRefused(f"the record has no {OF_RECORD} of {file.path}, only its {algorithm}")
    return value


def _sha512_of(text: str) -> str:
    digester = Digester()
    digester.update(text.encode())
    return digester.value()


def _version_for(paths: Collection[str]) -> str:
    plain = any("%" in path for path in paths) and not any(map(_AMBIGUOUS.search, paths))
    return _PLAIN if plain else _ENCODING


def _manifest(digests: dict[str, str], bagit: str) -> str:
    return "".join(f"{digest}  {_escaped(path, bagit)}\n" for path, digest in sorted(digests.items()))


def _escaped(path: str, bagit: str) -> str:
    for character, escape in _ESCAPES.items() if bagit == _ENCODING else ():
        path = path.replace(character, escape)
    return path


def listed(manifest: Path) -> Iterator[tuple[str, str]]:
    """Path and digest of each line of a manifest, as the declaration beside it says."""
    declared = (manifest.parent / DECLARATION).read_bytes()
    escapes = () if f"BagIt-Version: {_PLAIN}\n".encode() in declared else tuple(reversed(_ESCAPES.items()))
    for line in manifest.read_text(encoding="utf-8").split("\n")[:-1]:
        digest, _, path = line.partition("  ")
        for character, escape in escapes:
            path = path.replace(escape, character)
        yield path, digest


def _information(
    known: InventoryObject, version: InventoryVersion, at: datetime
) -> Iterator[tuple[str, str]]:
    yield "Bag-Software-Agent", f"arkline {metadata.version('arkline')}"
    yield "Bagging-Date", f"{at:%Y-%m-%d}"
    yield "Payload-Oxum", f"{sum(file.size for file in version.files)}.{len(version.files)}"
    yield "External-Identifier", known.ark
    for local_id in known.local_id:
        yield "External-Identifier", local_id
    for element, value in known.erc:
        if element == "what":
            yield "External-Description", value
    yield "Internal-Sender-Identifier", f"{known.ark} version {version.number}"
    yield (
        "Internal-Sender-Description",
        f"version {version.number} of {len(known.versions)}, stored {version.created.isoformat()} by "
        f"{version.jid} of collection {version.profile}",
    )
