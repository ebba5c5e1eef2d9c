"""A process that is paused in the removal of a folder, and goes on when the test says so."""

import shutil
from pathlib import Path
from threading import Event
from typing import Any

import pytest

WAIT = 30.0


class PausedRemoval:
    """Every `shutil.rmtree` waits for `resumed`, and tells by `paused` that it does."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.paused, self.resumed = Event(), Event()
        self._remove = shutil.rmtree
        patch.setattr(shutil, "rmtree", self._pause)

    def await_pause(self) -> None:
        assert self.paused.wait(WAIT)

    def _pause(self, folder: Path, **options: Any) -> None:
        self.paused.set()
        assert self.resumed.wait(WAIT)
        self._remove(folder, **options)
