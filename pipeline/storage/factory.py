"""Opening of the storage that the settings name: the OCFL root on disk, or a plugin's storage."""

from collections.abc import Callable
from typing import TypeAlias

from pipeline import plugins
from pipeline.deployment import Expected
from pipeline.settings import Settings
from pipeline.storage.base import Storage
from pipeline.storage.ocfl.storage import OcflStorage

Opener: TypeAlias = Callable[[Settings, Expected | None], Storage]
"""The type of the plugins in the group `arkline.storage`."""


def open_storage(settings: Settings, expected: Expected | None = None) -> Storage:
    """`expected`: the deployment that the root must belong to; None: a missing root is created."""
    opener: Opener | None = plugins.chosen(plugins.STORAGE)
    return opener(settings, expected) if opener else OcflStorage(settings.storage, expected=expected)
