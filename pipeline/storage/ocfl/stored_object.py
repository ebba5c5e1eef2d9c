"""One OCFL object as it lies on a disk or in a bucket, for reading."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from pipeline.attempt import Attempt
from pipeline.files import ContentFile, ReadBackFile, StoredFile, StoredVersion
from pipeline.fixity import OnRead
from pipeline.outcome import DamagedObject, damaged
from pipeline.records import now
from pipeline.storage.ocfl.objects import (
    INVENTORY,
    OBJECT_DECLARATION,
    SIDECAR,
    Inventory,
    parse,
    sidecar,
)
from pipeline.storage.rules import describe_mismatch

_RESTORE = "restore it from a copy of the storage"

NOTHING_KNOWN: Mapping[str, int] = MappingProxyType({})

NOT_IN_MANIFEST = f"{INVENTORY} has no content path for this file"


class StoredObject(Protocol):
    """An OCFL object on a disk or in a bucket; its files have their paths in the object."""

    may_be_unfinished: bool = False
    """Whether a stopped writer may leave the latest version without its own inventory and its sidecar."""

    def location(self, path: str) -> str:
        """The place of the file, for messages."""

    def version_url(self, number: int) -> str:
        """The StoredVersion.url of a version."""

    def head(self) -> Inventory | None:
        """The object's inventory, not compared with its sidecar; None if there is no such object."""

    def read(self, path: str) -> bytes | None:
        """A small file; None if there is no such file."""

    def size(self, path: str) -> int | None:
        """Bytes; None if there is no such file."""

    def pieces(self, path: str) -> Iterator[bytes] | None:
        """The bytes as they are read now; None if there is no such file."""

    def digest(self, path: str, on_read: OnRead) -> tuple[int, str] | None:
        """Size and sha512 of the bytes as they are read now; None if there is no such file."""

    def latest(self) -> Inventory | None:
        """The inventory with the latest complete version."""
        return self.head()

    def inventory_of(self, name: str) -> Inventory:
        """The inventory in the version's own folder, checked against its sidecar; neither ever changes."""
        path = f"{name}/{INVENTORY}"
        data, checksum = self.read(path), self.read(f"{name}/{SIDECAR}")
        if data is None or checksum is None:
            raise damaged(f"{self.location(path)} or its sidecar is missing")
        if checksum.split()[:1] != sidecar(data).split()[:1]:
            raise damaged(f"{self.location(path)} does not have the digest in {SIDECAR}: it is damaged")
        return parse(data, self.location(path))

    def has_inventories(self, number: int, data: bytes) -> bool:
        """Whether object and version have this inventory, byte by byte, and the version its sidecar."""
        expected = {f"v{number}/{INVENTORY}": data, f"v{number}/{SIDECAR}": sidecar(data), INVENTORY: data}
        return all(self.read(path) == text for path, text in expected.items())

    def compare_bytes(self, path: str, file: ContentFile | StoredFile, attempt: Attempt) -> None:
        """StepFailed unless the stored bytes have the file's size and digest."""
        actual = self.digest(path, lambda _: attempt.check())
        if actual != (file.size, file.sha512):
            raise self.damaged(path, describe_mismatch(file, actual) if actual else "it is missing")

    def existing_size(self, path: str) -> int:
        size = self.size(path)
        if size is None:
            raise self.damaged(path, "it is missing")
        return size

    def damaged(self, path: str, problem: str) -> DamagedObject:
        return damaged(f"{self.location(path)} is damaged: {problem}; restore it, then resume the job")

    def describe(
        self, inventory: Inventory, number: int, sizes: Mapping[str, int] = NOTHING_KNOWN
    ) -> StoredVersion:
        """A version of the inventory. `sizes`: by digest, of files that were read just now."""
        version = inventory.versions[f"v{number}"]
        files = []
        for path, sha512 in sorted(version.digests().items()):
            content_path = inventory.manifest[sha512][0]
            added = content_path.startswith(f"v{number}/")
            size = sizes[sha512] if sha512 in sizes else self.existing_size(content_path)
            files.append(StoredFile(path, size, sha512, added))
        url = self.version_url(number)
        jid, key = version.jid or "", version.key
        return StoredVersion(inventory.id, number, jid, version.created, tuple(files), url, key)


def inventory_problems(stored: StoredObject, number: int) -> Iterator[str]:
    """Damage of the files in which storage describes an object with `number` versions."""
    latest, root = f"v{number}", stored.read(INVENTORY)
    for name in (f"v{version}" for version in range(1, number + 1)):
        try:
            stored.inventory_of(name)
        except DamagedObject as damage:
            path = f"{name}/{INVENTORY}"
            if not (stored.may_be_unfinished and name == latest and stored.read(path) is None):
                yield damage.message
    if stored.read(f"{latest}/{INVENTORY}") not in (root, None):
        yield f"{stored.location(INVENTORY)} differs from its copy in {latest}"
    # A writer replaces the sidecar after the inventory, so the one of the version before is no damage.
    sidecars = {sidecar(root or b""), stored.read(f"v{number - 1}/{SIDECAR}")} - {None}
    for path, valid in ((SIDECAR, sidecars), (OBJECT_DECLARATION[0], {OBJECT_DECLARATION[1]})):
        data = stored.read(path)
        if data is None and not stored.may_be_unfinished:
            yield f"{stored.location(path)} is missing"
        elif data is not None and data not in valid:
            yield f"{stored.location(path)} was changed"


def pieces(stored: StoredObject, path: str) -> Iterator[bytes]:
    if not path:
        raise damaged(NOT_IN_MANIFEST)
    try:
        pieces = stored.pieces(path)
        if pieces is None:
            raise damaged(f"{stored.location(path)} is missing: {_RESTORE}")
        yield from pieces
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise damaged(f"{stored.location(path)} {problem}: {_RESTORE}") from error


def read_back_file(stored: StoredObject, path: str, on_read: OnRead) -> ReadBackFile:
    if not path:
        return ReadBackFile(0, "", now(), problem=NOT_IN_MANIFEST)
    location = stored.location(path)
    try:
        actual = stored.digest(path, on_read)
    except OSError as error:
        problem = f"{location} cannot be read: {error.strerror or error}"
        return ReadBackFile(0, "", now(), problem=problem, place=location)
    if actual is None:
        return ReadBackFile(0, "", now(), problem=f"{location} is missing", place=location)
    return ReadBackFile(0, "", now(), *actual, place=location)
