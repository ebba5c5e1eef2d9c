"""The tape library as the suite gets it: `pytest --arkline-storage=conforming:place`."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from archive_guest.tape import open_storage

from pipeline.deployment import Expected
from pipeline.settings import Settings
from pipeline.storage.ocfl.storage import OcflStorage
from plugins.conformance.subjects import Change, StoragePlace


@contextmanager
def place(folder: Path) -> Iterator[StoragePlace]:
    root, unmounted = folder / "tape", folder / "unmounted"
    os.environ["ARKLINE_TAPE_ROOT"] = str(root)

    def opened(expected: Expected | None) -> OcflStorage:
        return open_storage(Settings(), expected)

    def change(ark: str, path: str, change: Change) -> None:
        """Change a file on the tape, behind the back of the storage."""
        stored = opened(None).object(ark)
        inventory = stored.head()
        assert inventory is not None
        digest = inventory.versions[inventory.head].digests()[path]
        file = Path(stored.location(inventory.manifest[digest][0]))
        data = change(file.read_bytes())
        file.unlink()
        if data is not None:
            file.write_bytes(data)

    @contextmanager
    def away() -> Iterator[None]:
        root.rename(unmounted)
        yield
        shutil.rmtree(root, ignore_errors=True)
        unmounted.rename(root)

    yield StoragePlace(opened, change, away, working=folder / "working")
