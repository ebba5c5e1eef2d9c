"""Export of an object's version from storage as a BagIt bag (RFC 8493), with every byte verified.

The tag file `metadata/premis.xml` has the object's events up to this export.

Rule: the folder gets its name last. A bag that exists is complete; a refused or interrupted export leaves
nothing under that name.
"""

import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pipeline.errors import UsageRefused
from pipeline.file_system import sync, sync_tree
from pipeline.fixity import OF_RECORD, Digester, OnRead, ignore
from pipeline.inventory.base import InventoryObject, InventoryVersion
from pipeline.names import safe_name
from pipeline.preservation.reading_out import files_of, verified
from pipeline.records import now
from pipeline.storage.base import Storage

PAYLOAD = "data"
PREMIS = "metadata/premis.xml"
_ESCAPES = {"%": "%25", "\n": "%0A", "\r": "%0D"}
"""The characters of a path that RFC 8493 encodes in a manifest; the percent sign comes first."""


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

    `premis`: returns the document of the object and its events; called once all files have been compared.

    DamagedObject if storage does not have exactly the recorded files with the recorded digests; UsageRefused
    if the folder exists or cannot be written; StepFailed(transient) if storage cannot be read.
    """
    version = next(version for version in known.versions if version.number == number)
    with _draft(folder) as draft:
        digests = _copy_payload(known.ark, version, storage, draft, on_read)
        size = sum(file.size for file in version.files)
        _write_tags(draft, digests, _information(known, version, size), premis())
        sync_tree(draft)
    return ExportedBag(known.ark, number, str(folder), len(digests), size)


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
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


def _copy_payload(
    ark: str, version: InventoryVersion, storage: Storage, draft: Path, on_read: OnRead
) -> dict[str, str]:
    """Copy the files; returns path in the bag -> sha512."""
    digests = {}
    for file, outgoing in files_of(ark, version, storage):
        path = f"{PAYLOAD}/{safe_name(file.path, stored=True)}"
        pieces = verified(ark, file, counted(outgoing.pieces, on_read))
        digests[path] = _write(draft / path, pieces).value()
    return digests


def counted(pieces: Iterable[bytes], on_read: OnRead) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        on_read(len(piece))


def _write(path: Path, pieces: Iterable[bytes]) -> Digester:
    """Write a new file; it is synced later with the whole bag."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digester = Digester()
    with path.open("xb") as file:
        for piece in pieces:
            digester.update(piece)
            file.write(piece)
    return digester


def _write_tags(
    draft: Path,
    digests: Mapping[str, str],
    information: Iterable[tuple[str, str]],
    premis: Iterable[bytes],
) -> None:
    texts = {
        "bagit.txt": "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n",
        "bag-info.txt": "".join(f"{label}: {' '.join(value.split())}\n" for label, value in information),
        f"manifest-{OF_RECORD}.txt": _manifest(digests),
    }
    tags = {name: _write(draft / name, (text.encode(),)).value() for name, text in texts.items()}
    tags[PREMIS] = _write(draft / PREMIS, premis).value()
    _write(draft / f"tagmanifest-{OF_RECORD}.txt", (_manifest(tags).encode(),))


def _manifest(digests: Mapping[str, str]) -> str:
    return "".join(f"{digest}  {_escaped(path)}\n" for path, digest in sorted(digests.items()))


def _escaped(path: str) -> str:
    for character, escape in _ESCAPES.items():
        path = path.replace(character, escape)
    return path


def _information(known: InventoryObject, version: InventoryVersion, size: int) -> Iterator[tuple[str, str]]:
    yield "Bag-Software-Agent", f"arkline {metadata.version('arkline')}"
    yield "Bagging-Date", f"{now():%Y-%m-%d}"
    yield "Payload-Oxum", f"{size}.{len(version.files)}"
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
