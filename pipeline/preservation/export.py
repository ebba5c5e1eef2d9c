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
from pipeline.inventory.base import InventoryFile, InventoryObject, InventoryVersion
from pipeline.names import quote_name, safe_name
from pipeline.outcome import damaged
from pipeline.records import now
from pipeline.storage.base import OutgoingFile, Storage

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
    recorded = {file.path: file for file in version.files}
    digests = {}
    for outgoing in storage.read_out(ark, version.storage_url, version.number):
        file = recorded.pop(outgoing.path, None)
        if file is None:
            raise damaged(
                f"storage has {quote_name(outgoing.path)} in version {version.number} of {ark}, but the "
                "inventory does not"
            )
        path = f"{PAYLOAD}/{safe_name(outgoing.path, stored=True)}"
        digests[path] = _copy(ark, outgoing, file, draft / path, on_read)
    for path in recorded:
        raise damaged(f"storage has no {quote_name(path)} in version {version.number} of {ark}")
    return digests


def _copy(ark: str, outgoing: OutgoingFile, file: InventoryFile, target: Path, on_read: OnRead) -> str:
    """Copy a file and return its sha512; DamagedObject unless size and digest match the inventory."""

    def counted() -> Iterator[bytes]:
        for piece in outgoing.pieces:
            yield piece
            on_read(len(piece))

    algorithm, _, recorded = file.digest.partition(":")
    digester = _write(target, counted(), algorithm)
    actual = (digester.size, digester.value(algorithm))
    if actual != (file.size, recorded):
        raise damaged(
            f"{quote_name(file.path)} of {ark} is damaged in storage: it has {actual[0]:,} bytes with the "
            f"{algorithm} {actual[1]}, not {file.size:,} bytes with {recorded}; restore it from a copy of "
            "the storage"
        )
    return digester.value()


def _write(path: Path, pieces: Iterable[bytes], *algorithms: str) -> Digester:
    """Write a new file; it is synced later with the whole bag."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digester = Digester({OF_RECORD, *algorithms})
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
