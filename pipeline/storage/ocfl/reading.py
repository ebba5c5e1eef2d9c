"""Reading of OCFL objects on disk or in an S3 bucket; takes no locks."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeVar

from pydantic import ValidationError

from pipeline.attempt import UNATTENDED, Attempt, throttled
from pipeline.deployment import Deployment, Expected, StorageStore, check_marker
from pipeline.fixity import OnRead, ReadBackFile, StoredFile, StoredVersion, ignore
from pipeline.outcome import Service, ServiceDown, StepFailed, system
from pipeline.storage.base import NOTHING_READ, OutgoingFile, VersionEntry
from pipeline.storage.ocfl.objects import (
    INVENTORY,
    Inventory,
    StoredObject,
    pieces,
    problems,
    read_back_file,
)

MARKER = "extensions/arkline/deployment.json"
"""The file with the deployment id; OCFL lets an extension keep any files in its folder."""

T = TypeVar("T")
R = TypeVar("R")


@lru_cache(maxsize=8)  # the same bytes are read several times per job
def _deployment(data: bytes) -> Deployment:
    return Deployment.model_validate_json(data)


def _as_text(said: str) -> str:
    """Names on a disk may be no UTF-8, which neither databases nor messages can have."""
    return said.encode(errors="backslashreplace").decode()


class OcflReader(ABC):
    """The methods of Storage that only read, shared by roots on disk and in S3 buckets."""

    expected: Expected | None = None
    """The deployment that the root must belong to; None: not checked, and a missing root is created."""

    @abstractmethod
    def object(self, ark: str) -> StoredObject: ...

    @property
    @abstractmethod
    def place(self) -> str:
        """The root's folder, or the bucket's URL."""

    @abstractmethod
    def inventories(self) -> Iterator[tuple[str, Inventory | StepFailed]]:
        """(place, inventory) of every object, read one by one; a fault instead of an unreadable one."""

    @abstractmethod
    def read_root_file(self, path: str) -> bytes | None:
        """Read a file of the storage root; None if it does not exist."""

    @abstractmethod
    def add_root_file(self, path: str, data: bytes) -> None:
        """Add a file to the storage root, which is created if it does not exist; one that is there stays."""

    @abstractmethod
    def failures(self) -> AbstractContextManager[None]:
        """Translate errors of the file system or the server into StepFailed or ServiceDown."""

    @abstractmethod
    def check_readable(self, ark: str, url: str) -> None:
        """UsageRefused if the url belongs to another kind of storage, StepFailed if the root is missing."""

    def for_all(self, work: Callable[[T, Attempt], R], files: Iterable[T], attempt: Attempt) -> list[R]:
        """The results of `work` for all files; the first failure stops the others."""
        return [work(file, attempt) for file in files]

    def node_of(self, node: int | None) -> None:
        del node

    def version_of(self, ark: str, jid: str, node: int | None = None, key: str = "") -> StoredVersion | None:
        self.confirm()
        with self.failures():
            stored = self.object(ark)
            head = stored.head()
            number = head.number_of(jid, key) if head else None
            return stored.describe(head, number) if head and number else None

    def has_object(self, ark: str, node: int | None = None) -> bool:
        self.confirm()
        with self.failures():
            return self.object(ark).head() is not None

    def has_version(self, ark: str, jid: str) -> bool:
        with self.failures():
            head = self.object(ark).head()
            return head is not None and any(version.jid == jid for version in head.versions.values())

    def versions(self) -> Iterator[VersionEntry]:
        self.confirm()
        for place, inventory in self.inventories():
            if isinstance(inventory, StepFailed):
                yield VersionEntry(_as_text(place), problem=_as_text(inventory.message))
                continue
            yield from self._entries(inventory)
        self.confirm()  # a mount that has disappeared looks like the end of the listing

    def versions_of(self, ark: str, url: str = "") -> tuple[VersionEntry, ...]:
        self.confirm()
        with self.failures():
            head = self.object(ark).head()
        return tuple(self._entries(head)) if head else ()

    def _entries(self, inventory: Inventory) -> Iterator[VersionEntry]:
        stored = self.object(inventory.id)
        for name, version in inventory.versions.items():
            number = int(name[1:])
            yield VersionEntry(
                inventory.id,
                number,
                version.jid or "",
                version.key,
                version.created,
                stored.version_url(number),
                version.digests(),
            )

    def deployment_store(self) -> StorageStore:
        return self

    @property
    def service(self) -> Service:
        return Service.STORAGE

    def read_deployment(self) -> Deployment | None:
        with self.failures():
            data = self.read_root_file(MARKER)
        try:
            return _deployment(data) if data is not None else None
        except ValidationError as error:
            raise ServiceDown(
                Service.STORAGE, f"{MARKER} in {self.place} is damaged: restore it from a copy of the root"
            ) from error

    def write_deployment(self, deployment: Deployment) -> None:
        """Write the id without the mark, which a storage root does not have."""
        data = deployment.model_copy(update={"mark": 0}).model_dump_json(indent=1).encode()
        with self.failures():
            self.add_root_file(MARKER, data + b"\n")

    def is_empty(self) -> bool:
        with self.failures():
            return next(iter(self.inventories()), None) is None

    def confirm(self) -> None:
        """ServiceDown unless the root exists and belongs to the expected deployment."""
        if self.expected is not None:
            check_marker(Service.STORAGE, self.place, self.read_deployment(), self.expected())

    def read(
        self, ark: str, path: str, number: int | None = None, node: int | None = None, url: str = ""
    ) -> bytes | None:
        self.confirm()
        with self.failures():
            stored = self.object(ark)
            latest = stored.latest()
            version = latest.versions.get(latest.head if number is None else f"v{number}") if latest else None
            sha512 = version.digests().get(path) if version else None
            if latest is None or sha512 is None:
                return None
            content_path = stored.listed_path(latest, sha512)
            data = stored.read(content_path)
            if data is None:
                raise stored.damaged(content_path, "it is missing")
            if hashlib.sha512(data).hexdigest() != sha512:
                raise stored.damaged(content_path, f"its sha512 is not {sha512}")
            return data

    def verify(self, version: StoredVersion, attempt: Attempt = UNATTENDED) -> None:
        """The version's own inventory and the object's inventory must also match what was stored."""
        self.confirm()
        with self.failures():
            own, stored = self.check_inventories(version), self.object(version.ark)
            checked = throttled(attempt)
            for file in version.files:
                content_path = stored.listed_path(own, file.sha512)
                if not file.added and (size := stored.existing_size(content_path)) != file.size:
                    raise stored.damaged(content_path, f"it has {size} bytes, not {file.size}")
                checked.check()

            def compare(file: StoredFile, attempt: Attempt) -> None:
                stored.compare_bytes(stored.listed_path(own, file.sha512), file, attempt)

            self.for_all(compare, (file for file in version.files if file.added), checked)

    def check_inventories(self, version: StoredVersion) -> Inventory:
        """The version's own inventory; StepFailed unless it and the object's list what was stored."""
        name, stored = f"v{version.number}", self.object(version.ark)
        own, head = stored.inventory_of(name), stored.head()
        if head is None or name not in own.versions or head.versions.get(name) != own.versions[name]:
            raise system(f"{version.url} differs from what the {INVENTORY} of {version.ark} says of {name}")
        if own.versions[name].digests() != {file.path: file.sha512 for file in version.files}:
            raise system(f"{version.url} does not have the files that were stored for {version.jid}")
        return own

    def read_back(
        self,
        ark: str,
        url: str,
        numbers: Collection[int] = (),
        on_read: OnRead = ignore,
        already: Mapping[str, ReadBackFile] = NOTHING_READ,
    ) -> Iterator[ReadBackFile]:
        """Bytes shared by several files are read once."""
        stored, head = self._opened(ark, url)
        if head is None:
            return
        results: dict[str, ReadBackFile] = {}
        for number in range(1, head.number + 1):
            if numbers and number not in numbers:
                continue
            for path, sha512 in sorted(head.versions[f"v{number}"].digests().items()):
                content_path = head.content_path(sha512)
                if content_path not in results:
                    results[content_path] = already.get(stored.location(content_path)) or read_back_file(
                        stored, content_path, on_read
                    )
                yield replace(results[content_path], number=number, path=path)

    def read_out(self, ark: str, url: str, number: int, path: str = "") -> Iterator[OutgoingFile]:
        stored, head = self._opened(ark, url)
        version = head.versions.get(f"v{number}") if head else None
        if head is None or version is None:
            return
        digests = version.digests()
        for one in digests.keys() & {path} if path else sorted(digests):
            content_path = head.content_path(digests[one])
            yield OutgoingFile(one, pieces(stored, content_path), partial(pieces, stored, content_path))

    def problems_of(self, ark: str, url: str) -> tuple[str, ...]:
        stored, head = self._opened(ark, url)
        with self.failures():
            return tuple(map(_as_text, problems(stored, head))) if head else ()

    def _opened(self, ark: str, url: str) -> tuple[StoredObject, Inventory | None]:
        self.check_readable(ark, url)
        self.confirm()
        stored = self.object(ark)
        with self.failures():
            return stored, stored.head()
