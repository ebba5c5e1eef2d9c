"""OCFL objects in a bucket, where nothing can be renamed: the root inventory is what makes a version.

Rule: content is written under keys that were free; then the root inventory is replaced, if it still is what
was read. That write is the version, for us: before it there is none, and of two writers one wins. All else
that OCFL wants - the sidecar, the version's own inventory, the object's declaration - follows from the root
inventory alone, so whoever comes next can write it, and writes the same (docs/decisions/0024).

Keys of a version that is not there yet are never deleted and never written over: a writer that was stopped
may still make that version of them. Once it is there, what its inventory does not name is nobody's.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pipeline.outcome import system
from pipeline.storage.ocfl import layout, objects
from pipeline.storage.ocfl.bucket import Bucket, Conflict, Held

log = logging.getLogger(__name__)

VOUCHER = "sha512"
"""Name of the root inventory's metadata that has its digest: the sidecar cannot be replaced with it."""

Keys = Mapping[str, Held]


@dataclass(frozen=True)
class Head:
    """The root inventory as it was read or written."""

    inventory: objects.Inventory
    data: bytes
    etag: str
    vouched: bool
    """Whether its metadata has its digest."""


class BucketRoot:
    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.is_open = False

    def open(self) -> None:
        """Once in a process: make the root if need be, and see that the server keeps writers apart."""
        if self.is_open:
            return
        name, text = objects.ROOT_DECLARATION
        declared = self.bucket.get(name)
        if declared and declared.data.strip() != text.strip():
            raise system(
                f"{self.bucket.name} has something else in {name} than an OCFL root: is it the right one?"
            )
        if declared is None:
            there = self.bucket.names(100)
            if name not in there:
                remedy = "let ARKLINE_S3_ROOT name an empty place or an OCFL root"
                layout.check_free(there, self.bucket.url, remedy)
            for path, data in layout.files().items():
                self._write(path, data, None)
        configuration = self.bucket.get(layout.CONFIGURATION)
        layout.check(configuration.data if configuration else None, self.bucket.url)
        for seen in (None, '"00000000000000000000000000000000"'):
            if self._write(name, text, seen):
                raise system(
                    f"{self.bucket.name} writes over what is there although it is told not to (If-None-Match "
                    "and If-Match on PutObject): its server does not keep writers apart; use one that does"
                )
        self.is_open = True

    def place(self, ark: str, path: str = "") -> str:
        """The key of a file of the object, by its path in it."""
        return f"{objects.object_path(ark).as_posix()}/{path}"

    def url(self, ark: str, path: str) -> str:
        return f"{self.bucket.url}/{self.place(ark, path)}"

    def keys(self, ark: str) -> dict[str, Held]:
        """All that lies in the object, by its path in it."""
        folder = self.place(ark)
        return {key.removeprefix(folder): held for key, held in self.bucket.keys(folder).items()}

    def head(self, ark: str) -> Head | None:
        """The root inventory, None if there is no such object; its sidecar may be late and is not asked."""
        got = self.bucket.get(self.place(ark, objects.INVENTORY))
        if got is None:
            return None
        where = self.url(ark, objects.INVENTORY)
        voucher = got.metadata.get(VOUCHER)
        if voucher and voucher != hashlib.sha512(got.data).hexdigest():
            raise system(
                f"{where} is damaged: its sha512 is not {voucher}; restore it from its version's folder"
            )
        inventory = objects.parse(got.data, where)
        if inventory.id != ark:
            raise system(f"{where} is of {inventory.id}, not of {ark}")
        return Head(inventory, got.data, got.etag, vouched=voucher is not None)

    def survey(self, ark: str) -> tuple[Head | None, dict[str, Held]]:
        """Head and keys for a writer; StepFailed if the inventory was lost, or an older one put in its place.

        A version's own inventory is written after the root inventory that names the version.
        """
        keys = self.keys(ark)
        head = self.head(ark) if objects.INVENTORY in keys else None
        latest = head.inventory.number if head else 0
        ahead = f"v{latest + 1}/{objects.INVENTORY}"
        if ahead in keys:
            raise system(
                f"{self.url(ark, objects.INVENTORY)} is missing or older than {ahead} beside it: restore it "
                "from there, with its sidecar"
            )
        return head, keys

    def commit(self, ark: str, head: Head | None, inventory: objects.Inventory) -> None:
        """The moment at which the version is there. Conflict if another one was made since `head`."""
        data = inventory.encode()
        voucher = {VOUCHER: hashlib.sha512(data).hexdigest()}
        self.bucket.put(self.place(ark, objects.INVENTORY), data, head.etag if head else None, voucher)

    def settle(self, ark: str, head: Head, keys: Keys) -> None:
        """Write what follows from the root inventory, drop what nobody names.

        The object's declaration comes last: readers who go by it see a new object whole or not at all.
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
        held = self.bucket.get(self.place(ark, objects.SIDECAR)) if objects.SIDECAR in keys else None
        if held is None or held.data != sidecar:
            self._vouch(ark, head)
            self._write(self.place(ark, objects.SIDECAR), sidecar, held.etag if held else None)
        for path in _strays(head.inventory, keys):
            log.warning("%s: deleting %s, which an unfinished attempt left", ark, path)
            self.bucket.delete(self.place(ark, path))
        for path, data in missing:
            self._write(self.place(ark, path), data, None)

    def _vouch(self, ark: str, head: Head) -> None:
        """An inventory without its sidecar's digest is a writer's that stopped, or damaged."""
        if head.vouched:
            return
        copy = self.bucket.get(self.place(ark, f"{head.inventory.head}/{objects.INVENTORY}"))
        if copy is None or copy.data != head.data:
            raise system(
                f"{self.url(ark, objects.INVENTORY)} does not have the digest in {objects.SIDECAR}: it is "
                f"damaged; restore it from {self.url(ark, head.inventory.head)}"
            )

    def _write(self, key: str, data: bytes, seen: str | None) -> bool:
        """False if another writer was faster: it wrote the same, or what replaces it."""
        with suppress(Conflict):
            self.bucket.put(key, data, seen)
            return True
        return False


def _strays(head: objects.Inventory, keys: Keys) -> Iterator[str]:
    """Content of versions that are there, which the inventory does not name."""
    named = {path for paths in head.manifest.values() for path in paths}
    for path in keys:
        folder, _, rest = path.partition("/")
        if folder in head.versions and rest.startswith(f"{head.content_directory}/") and path not in named:
            yield path
