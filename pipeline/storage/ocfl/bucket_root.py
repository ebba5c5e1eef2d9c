"""OCFL objects in a bucket, where nothing can be renamed: writing the root inventory publishes a version.

Rule: content is written under free keys; then the root inventory is replaced, on condition that it has not
changed since it was read. That write publishes the version, and of two writers one wins. The other files
that OCFL requires (the sidecar, the version's own inventory, the object's declaration) follow from the root
inventory alone, so the next writer can add them, and writes the same bytes (docs/decisions/0024).

Keys of an unpublished version are never deleted or overwritten: a paused writer may still publish the
version. Once it is published, keys that its inventory does not name belong to nobody.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pipeline.outcome import system
from pipeline.storage.ocfl import layout, objects
from pipeline.storage.ocfl.bucket import Bucket, Conflict, KeyInfo

log = logging.getLogger(__name__)

CHECKSUM = "sha512"
"""Metadata with the root inventory's digest: the sidecar cannot be replaced in the same write."""

Keys = Mapping[str, KeyInfo]


@dataclass(frozen=True)
class Head:
    """The root inventory as it was read or written."""

    inventory: objects.Inventory
    data: bytes
    etag: str
    has_checksum: bool
    """Whether the metadata has the digest."""


class BucketRoot:
    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.is_open = False

    def open(self) -> None:
        """Once per process: create the root if necessary, and test the server's conditional writes."""
        if self.is_open:
            return
        name, text = objects.ROOT_DECLARATION
        declared = self.bucket.get(name)
        if declared and declared.data.strip() != text.strip():
            raise system(
                f"{self.bucket.name} has other content in {name} than an OCFL root: check ARKLINE_S3_ROOT"
            )
        if declared is None:
            present = self.bucket.names(100)
            if name not in present:
                remedy = "set ARKLINE_S3_ROOT to an empty prefix or to an OCFL root"
                layout.check_free(present, self.bucket.url, remedy)
            for path, data in layout.files().items():
                self._write(path, data, None)
        configuration = self.bucket.get(layout.CONFIGURATION)
        layout.check(configuration.data if configuration else None, self.bucket.url)
        for etag in (None, '"00000000000000000000000000000000"'):
            if self._write(name, text, etag):
                raise system(
                    f"{self.bucket.name} ignores conditional writes (If-None-Match and If-Match "
                    "on PutObject): use "
                    "a server that honours them"
                )
        self.is_open = True

    def key(self, ark: str, path: str = "") -> str:
        """The key of a file of the object by its path in the object."""
        return f"{objects.object_path(ark).as_posix()}/{path}"

    def url(self, ark: str, path: str) -> str:
        return f"{self.bucket.url}/{self.key(ark, path)}"

    def keys(self, ark: str) -> dict[str, KeyInfo]:
        """The keys of the object by path in the object."""
        folder = self.key(ark)
        return {key.removeprefix(folder): info for key, info in self.bucket.keys(folder).items()}

    def head(self, ark: str) -> Head | None:
        """The root inventory; None if there is no such object. The sidecar may be outdated: not compared."""
        stored = self.bucket.get(self.key(ark, objects.INVENTORY))
        if stored is None:
            return None
        url = self.url(ark, objects.INVENTORY)
        checksum = stored.metadata.get(CHECKSUM)
        if checksum and checksum != hashlib.sha512(stored.data).hexdigest():
            raise system(
                f"{url} is damaged: its sha512 is not {checksum}; restore it from its version's folder"
            )
        inventory = objects.parse(stored.data, url)
        if inventory.id != ark:
            raise system(f"{url} belongs to {inventory.id}, not to {ark}")
        return Head(inventory, stored.data, stored.etag, has_checksum=checksum is not None)

    def head_and_keys(self, ark: str) -> tuple[Head | None, dict[str, KeyInfo]]:
        """Head and keys for a writer; StepFailed if the root inventory was lost or replaced by an older one.

        A version's own inventory is always written after the root inventory that names the version.
        """
        keys = self.keys(ark)
        head = self.head(ark) if objects.INVENTORY in keys else None
        latest = head.inventory.number if head else 0
        ahead = f"v{latest + 1}/{objects.INVENTORY}"
        if ahead in keys:
            raise system(
                f"{self.url(ark, objects.INVENTORY)} is missing or older than {ahead}: restore it "
                "from there, "
                "with its sidecar"
            )
        return head, keys

    def commit(self, ark: str, head: Head | None, inventory: objects.Inventory) -> None:
        """Publish the version; Conflict if another version was published since `head`."""
        data = inventory.encode()
        checksum = {CHECKSUM: hashlib.sha512(data).hexdigest()}
        self.bucket.put(self.key(ark, objects.INVENTORY), data, head.etag if head else None, checksum)

    def repair(self, ark: str, head: Head, keys: Keys) -> None:
        """Write the files that follow from the root inventory, and delete unreferenced content.

        The object's declaration comes last: its readers see a new object completely or not at all.
        """
        sidecar = objects.sidecar(head.data)
        missing = [
            (path, data)
            for path, data in (
                (f"{head.inventory.head}/{objects.INVENTORY}", head.data),
                (f"{head.inventory.head}/{objects.SIDECAR}", sidecar),
                objects.OBJECT_DECLARATION,
            )
            if path not in keys
        ]
        stored = self.bucket.get(self.key(ark, objects.SIDECAR)) if objects.SIDECAR in keys else None
        if stored is None or stored.data != sidecar:
            self._check_undamaged(ark, head)
            self._write(self.key(ark, objects.SIDECAR), sidecar, stored.etag if stored else None)
        for path in _unreferenced(head.inventory, keys):
            log.warning("%s: deleting %s, left by an unfinished attempt", ark, path)
            self.bucket.delete(self.key(ark, path))
        for path, data in missing:
            self._write(self.key(ark, path), data, None)

    def _check_undamaged(self, ark: str, head: Head) -> None:
        """An inventory that differs from its sidecar was written by a writer that stopped, or is damaged."""
        if head.has_checksum:
            return
        copy = self.bucket.get(self.key(ark, f"{head.inventory.head}/{objects.INVENTORY}"))
        if copy is None or copy.data != head.data:
            raise system(
                f"{self.url(ark, objects.INVENTORY)} does not have the digest in {objects.SIDECAR}: it is "
                f"damaged; restore it from {self.url(ark, head.inventory.head)}"
            )

    def _write(self, key: str, data: bytes, etag: str | None) -> bool:
        """False if another writer was faster: it wrote the same bytes, or newer ones."""
        with suppress(Conflict):
            self.bucket.put(key, data, etag)
            return True
        return False


class BucketObject:
    """The files of an object in a bucket; satisfies `reading.ObjectFiles`."""

    def __init__(self, root: BucketRoot, ark: str, keys: Keys | None = None) -> None:
        self._root = root
        self._ark = ark
        self._keys = keys
        """The object's keys if they were listed; needed for `size` alone."""

    def location(self, path: str) -> str:
        return self._root.url(self._ark, path)

    def read(self, path: str) -> bytes | None:
        stored = self._root.bucket.get(self._root.key(self._ark, path))
        return stored.data if stored else None

    def size(self, path: str) -> int | None:
        if self._keys is None:
            self._keys = self._root.keys(self._ark)
        info = self._keys.get(path)
        return info.size if info else None

    def digest(self, path: str, on_read: Callable[[int], None]) -> tuple[int, str] | None:
        return self._root.bucket.digest(self._root.key(self._ark, path), on_read)


def _unreferenced(head: objects.Inventory, keys: Keys) -> Iterator[str]:
    """Content of published versions that the inventory does not name."""
    named = {path for paths in head.manifest.values() for path in paths}
    for path in keys:
        folder, _, rest = path.partition("/")
        if folder in head.versions and rest.startswith(f"{head.content_directory}/") and path not in named:
            yield path
