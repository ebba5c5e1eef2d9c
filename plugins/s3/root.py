"""OCFL objects in a bucket, where nothing can be renamed: writing the root inventory publishes a version.

Rule: content is written under free keys; then the root inventory is replaced, on condition that it has not
changed since it was read. That write publishes the version, and of two writers one wins. The other files that
OCFL requires (the sidecar, the version's own inventory, the object's declaration) follow from the root
inventory alone, so the next writer can add them, with identical bytes (docs/decisions/0024).

Keys of an unpublished version are never deleted or overwritten: a paused writer may still publish the
version. Once it is published, keys that its inventory does not name are unreferenced.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.fixity import OnRead
from pipeline.outcome import damaged, system
from pipeline.storage.ocfl import objects
from pipeline.storage.ocfl.objects import StoredObject
from plugins.s3.keys import Refused

if TYPE_CHECKING:
    from plugins.s3.bucket import S3Bucket

log = logging.getLogger(__name__)

CHECKSUM = "sha512"
"""Metadata with the root inventory's digest: the sidecar cannot be replaced in the same write."""

Keys = Mapping[str, int]
"""Sizes of files in bytes, by the path in the object."""


@dataclass(frozen=True)
class Head:
    """The root inventory as it was read or written."""

    inventory: objects.Inventory
    data: bytes
    etag: str
    has_checksum: bool
    """Whether the metadata has the digest."""


class BucketRoot:
    def __init__(self, bucket: "S3Bucket") -> None:
        self.bucket = bucket
        self.is_open = False

    def open(self) -> None:
        """Create the root if necessary, and test the server's conditional writes, once per process."""
        if self.is_open:
            return
        name, text = objects.DECLARATION, objects.DECLARATION_TEXT
        declared = self.bucket.get(name)
        if declared and declared.data.strip() != text.strip():
            raise system(
                f"{self.bucket.name} has other content in {name} than an OCFL root: check ARKLINE_S3_ROOT"
            )
        if declared is None:
            present = self.bucket.names(100)
            if name not in present:
                remedy = "set ARKLINE_S3_ROOT to an empty prefix or to an OCFL root"
                objects.check_free(present, self.bucket.url, remedy)
            for path, data in objects.root_files().items():
                write_once(self.bucket, path, data, None)
        configuration = self.bucket.get(objects.CONFIGURATION)
        objects.check_layout(configuration.data if configuration else None, self.bucket.url)
        for etag in (None, '"00000000000000000000000000000000"'):
            if write_once(self.bucket, name, text, etag):
                raise system(
                    f"{self.bucket.name} ignores conditional writes (If-None-Match and If-Match on "
                    "PutObject): use a server that honours them"
                )
        self.is_open = True


class BucketObject(StoredObject):
    may_be_unfinished = True

    def __init__(self, bucket: "S3Bucket", ark: str) -> None:
        self._bucket = bucket
        self._ark = ark
        self._prefix = f"{objects.object_path(ark).as_posix()}/"
        self._keys: Keys | None = None

    def key(self, path: str) -> str:
        return self._prefix + path

    def location(self, path: str) -> str:
        return f"{self._bucket.url}/{self.key(path)}"

    def version_url(self, number: int) -> str:
        return self.location(f"v{number}")

    def head(self) -> objects.Inventory | None:
        root = self.root_inventory()
        return root.inventory if root else None

    def read(self, path: str) -> bytes | None:
        stored = self._bucket.get(self.key(path))
        return stored.data if stored else None

    def size(self, path: str) -> int | None:
        return self.listing().get(path)

    def pieces(self, path: str, start: int = 0) -> Iterator[bytes] | None:
        return self._bucket.pieces(self.key(path), start)

    def digest(self, path: str, on_read: OnRead) -> tuple[int, str] | None:
        return self._bucket.digest(self.key(path), on_read)

    def listing(self) -> Keys:
        """The object's keys as they were when first listed."""
        if self._keys is None:
            listed = self._bucket.keys(self._prefix)
            self._keys = {key.removeprefix(self._prefix): size for key, size in listed.items()}
        return self._keys

    def root_inventory(self) -> Head | None:
        """The root inventory; None if there is none. The sidecar may be outdated, so it is not compared."""
        stored = self._bucket.get(self.key(objects.INVENTORY))
        if stored is None:
            return None
        url = self.location(objects.INVENTORY)
        checksum = stored.metadata.get(CHECKSUM)
        if checksum and checksum != hashlib.sha512(stored.data).hexdigest():
            raise damaged(
                f"{url} is damaged: its sha512 is not {checksum}; restore it from its version's folder"
            )
        inventory = objects.parse(stored.data, url)
        if inventory.id != self._ark:
            raise damaged(f"{url} belongs to {inventory.id}, not to {self._ark}")
        return Head(inventory, stored.data, stored.etag, has_checksum=checksum is not None)

    def head_for_writer(self) -> Head | None:
        """The root inventory; StepFailed if it was lost, changed or replaced by an older one.

        A version's own inventory is always written after the root inventory that names the version.
        """
        head = self.root_inventory() if objects.INVENTORY in self.listing() else None
        ahead = f"v{head.inventory.number + 1 if head else 1}/{objects.INVENTORY}"
        if ahead in self.listing():
            raise system(
                f"{self.location(objects.INVENTORY)} is missing or older than {ahead}: restore it from "
                "there, with its sidecar"
            )
        if head and f"{head.inventory.head}/{objects.INVENTORY}" in self.listing():
            self.check_copy(head.data, head.inventory.head)
        return head

    def repaired_head(self) -> Head | None:
        """The root inventory, after finishing the work of a writer that stopped."""
        head = self.head_for_writer()
        if head:
            self._repair(head)
        return head

    def commit(self, head: Head | None, inventory: objects.Inventory) -> None:
        """Publish the version; Refused if another version was published since `head`."""
        data = inventory.encode()
        checksum = {CHECKSUM: hashlib.sha512(data).hexdigest()}
        self._bucket.put(self.key(objects.INVENTORY), data, head.etag if head else None, checksum)

    def _repair(self, head: Head) -> None:
        """Write the files that follow from the root inventory, and delete unreferenced content.

        The object's declaration comes last: its readers see a new object completely or not at all.
        """
        sidecar = objects.sidecar(head.data)
        stored = self._bucket.get(self.key(objects.SIDECAR)) if objects.SIDECAR in self.listing() else None
        if stored is None or stored.data != sidecar:
            self._check_undamaged(head)
            write_once(self._bucket, self.key(objects.SIDECAR), sidecar, stored.etag if stored else None)
        for path in _unreferenced(head.inventory, self.listing()):
            log.warning("%s: deleting %s, left by an unfinished attempt", self._ark, path)
            self._bucket.delete(self.key(path))
        for path, data in (
            (f"{head.inventory.head}/{objects.INVENTORY}", head.data),
            (f"{head.inventory.head}/{objects.SIDECAR}", sidecar),
            objects.OBJECT_DECLARATION,
        ):
            if path not in self.listing():
                write_once(self._bucket, self.key(path), data, None)

    def _check_undamaged(self, head: Head) -> None:
        """Refuse a damaged inventory; one that only differs from its sidecar is a stopped writer's."""
        if not head.has_checksum and f"{head.inventory.head}/{objects.INVENTORY}" not in self.listing():
            raise self.unlike_sidecar("from a copy of the storage")


def write_once(bucket: "S3Bucket", key: str, data: bytes, etag: str | None) -> bool:
    """Write the key; False if another writer was faster: it wrote the same bytes, or newer ones."""
    with suppress(Refused):
        bucket.put(key, data, etag)
        return True
    return False


def _unreferenced(head: objects.Inventory, keys: Keys) -> Iterator[str]:
    """Content of published versions that the inventory does not name."""
    named = {path for paths in head.manifest.values() for path in paths}
    for path in keys:
        folder, _, rest = path.partition("/")
        if folder in head.versions and rest.startswith(f"{head.content_directory}/") and path not in named:
            yield path
