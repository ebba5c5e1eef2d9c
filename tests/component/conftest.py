from pathlib import Path

import pytest

from pipeline.settings import Settings
from tests.support.step_context import marked_settings


@pytest.fixture(autouse=True)
def _no_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find none, whatever runs on this machine: nobody listens on port 1."""
    monkeypatch.setenv("ARKLINE_ZK_HOSTS", "127.0.0.1:1")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a step that runs in this folder, without ZooKeeper and Redis."""
    return marked_settings(tmp_path)
