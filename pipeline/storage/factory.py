"""Opens the storage that the settings name: the OCFL root on a disk, or what a plugin stores in."""

from collections.abc import Callable
from typing import TypeAlias

from pipeline import plugins
from pipeline.deployment import Expected
from pipeline.settings import Settings
from pipeline.storage.base import Storage
from pipeline.storage.ocfl.storage import OcflStorage

Opener: TypeAlias = Callable[[Settings, Expected | None], Storage]
"""What a plugin adds to the group `arkline.storage`."""


def open_storage(settings: Settings, expected: Expected | None = None) -> Storage:
    """`expected`: the deployment that an existing root must belong to; None: a missing root is created."""
    if settings.storage_service_url:
        opener: Opener = plugins.load(plugins.STORAGE, "merritt", "ARKLINE_STORAGE_SERVICE_URL")
    elif settings.s3_root:
        opener = plugins.load(plugins.STORAGE, "s3", "ARKLINE_S3_ROOT")
    else:
        return OcflStorage(settings.storage, expected=expected)
    return opener(settings, expected)
