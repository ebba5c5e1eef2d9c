from pathlib import Path

import pytest

from pipeline.settings import Settings
from tests.support.step_context import local_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a step that runs in this folder, without ZooKeeper and Redis."""
    return local_settings(tmp_path)
