"""A repository on a disk or in a bucket whose stored files a test can damage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from operations.checks.deployment import initialize
from operations.site import Site
from pipeline.preservation.fixity import Schedule
from pipeline.profiles.profile import Profiles
from pipeline.settings import Settings
from tests.support.fleet import set_variables
from tests.support.repository import Repository
from zkstate.connection.session import Session
from zkstate.fleet import counters

if TYPE_CHECKING:
    from tests.servers.s3 import S3Fixture

STORES = ("disk", "bucket") if find_spec("plugins") else ("disk",)
"""Where a test may keep a repository; in a bucket, if the plugin is there."""

JOBS = 100
"""More than the tests store: to the record, their job numbers were given."""

Change = Callable[[bytes], bytes | None]
"""The new bytes of a stored file; None: the file is deleted."""


def flip(data: bytes) -> bytes:
    """One bit, as a disk might."""
    return bytes((data[0] ^ 1, *data[1:]))


def rewrite(path: Path, data: bytes) -> None:
    """Other bytes under the name of a stored file, which nobody may write to."""
    path.unlink()
    path.write_bytes(data)


@dataclass
class Store:
    repository: Repository
    bucket: S3Fixture | None = None

    def change(self, ark: str, path: str, change: Change) -> None:
        """Change a file of the object by its path in the object."""
        if self.bucket is None:
            self._change_on_disk(self.repository.ocfl.root.object(ark) / path, change)
            return
        key = self.bucket.storage.object(ark).key(path)
        where = {"Bucket": self.bucket.bucket, "Key": f"{self.bucket.prefix}/{key}"}
        data = change(self.bucket.client.get_object(**where)["Body"].read())
        if data is None:
            self.bucket.client.delete_object(**where)
        else:
            self.bucket.client.put_object(**where, Body=data)

    def _change_on_disk(self, path: Path, change: Change) -> None:
        data = change(path.read_bytes())
        path.unlink() if data is None else rewrite(path, data)

    def schedule(self) -> Schedule:
        made = self.repository
        return Schedule(
            made.inventory, made.storage, Profiles(made.settings.profiles), made.settings, "arkline test"
        )


def with_record(
    repository: Repository,
    session: Session,
    settings: Settings,
    bucket: S3Fixture | None = None,
    patch: pytest.MonkeyPatch | None = None,
) -> Store:
    """The repository, with ZooKeeper and Redis in its settings, and one deployment id in all stores.

    `patch`: sets the variables that choose the bucket.
    """
    own: dict[str, object] = {"home": repository.settings.home, "profiles": repository.settings.profiles}
    if bucket is not None and patch is not None:
        set_variables(patch, bucket.settings)
        repository.storage = bucket.storage
    repository.settings = settings.model_copy(update=own)
    initialize(Site(repository.settings, session))
    counters.raise_to(session, "job", JOBS)
    return Store(repository, bucket)
