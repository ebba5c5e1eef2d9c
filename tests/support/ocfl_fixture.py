"""An OCFL storage root and a folder with files to store, for tests of storage."""

import hashlib
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from ocfl import StorageRoot
from ocfl.validator import Validator

from pipeline.fixity import ContentFile, StoredVersion
from pipeline.records import SubmissionMode
from pipeline.storage.base import Storage, StoreRequest
from pipeline.storage.ocfl import objects
from pipeline.storage.ocfl.objects import object_path
from pipeline.storage.ocfl.storage import OcflStorage

ARK = "ark:/99999/fk4000000011"


@contextmanager
def memory(otherwise: Path) -> Iterator[Path]:
    """A folder in memory if the system offers one, for tests that sync often and check only the order."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=shared) as name:
        yield Path(name)


def fork() -> int:
    """A child that continues here; it needs nothing that other threads of the test run hold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns if there are such threads
        return os.fork()


S = TypeVar("S", bound=Storage)


class StorageFixture(Generic[S]):
    """A storage root of any kind, and the files that jobs store in it."""

    sources: Path
    storage: S

    @property
    def folder(self) -> Path:
        """The root as a folder that a test can read."""
        raise NotImplementedError

    def request(
        self,
        jid: str,
        files: dict[str, str],
        mode: SubmissionMode = SubmissionMode.ADD,
        delete: tuple[str, ...] = (),
        ark: str = ARK,
    ) -> StoreRequest:
        """Store `files`, path -> text."""
        return StoreRequest(
            ark=ark,
            jid=jid,
            mode=mode,
            files=tuple(self.handed(jid, path, text) for path, text in files.items()),
            delete=delete,
            message="as submitted",
            user="depositor@example.edu",
        )

    def handed(self, jid: str, path: str, text: str) -> ContentFile:
        source = self.sources / jid / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        data = text.encode()
        return ContentFile(path, source, len(data), hashlib.sha512(data).hexdigest())

    def store(
        self,
        jid: str,
        files: dict[str, str],
        mode: SubmissionMode = SubmissionMode.ADD,
        delete: tuple[str, ...] = (),
        ark: str = ARK,
    ) -> StoredVersion:
        return self.storage.store(self.request(jid, files, mode, delete, ark), lambda: None)

    def object(self, ark: str = ARK) -> Path:
        return self.folder / object_path(ark)

    def head(self, ark: str = ARK) -> objects.Inventory | None:
        raise NotImplementedError

    def names(self, number: int, ark: str = ARK) -> set[str]:
        """Logical paths of a version."""
        inventory = self.head(ark)
        assert inventory is not None
        return set(inventory.versions[f"v{number}"].digests())

    def jobs(self, ark: str = ARK) -> list[str | None]:
        """The job of each version, in order."""
        inventory = self.head(ark)
        return [version.jid for version in inventory.versions.values()] if inventory else []

    def content(self) -> set[str]:
        """Stored files of the object, by their path in it."""
        folder = self.object()
        return {
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if path.is_file() and "content" in path.parts
        }

    def leftovers(self) -> list[Path]:
        """Paths that writers left outside the objects."""
        return list(self.folder.glob("extensions/arkline/*/*"))


class OcflFixture(StorageFixture[OcflStorage]):
    """A storage root on disk."""

    def __init__(self, folder: Path, lock_wait: float = 0.2) -> None:
        self.sources = folder / "working"
        self.storage = OcflStorage(folder / "ocfl", lock_wait)

    @property
    def folder(self) -> Path:
        return self.storage.root.folder

    def head(self, ark: str = ARK) -> objects.Inventory | None:
        return self.storage.object(ark).head()


def assert_valid(depot: StorageFixture[Any], objects: int = 1) -> None:
    """The errors of an independent validator for the root and every object in it."""
    root = StorageRoot(root=str(depot.folder))
    assert root.validate(), root.log.status_str()
    assert root.errors == []
    assert (root.num_objects, root.good_objects) == (objects, objects)


def invalid_objects(root: Path) -> list[str]:
    """The objects below an OCFL root that an independent validator refuses; there must be an object."""
    objects = [path.parent for path in root.rglob("0=ocfl_object_1.1")]
    assert objects, f"{root} has no object to validate"
    return [str(path) for path in objects if not Validator().validate_object(str(path))]
