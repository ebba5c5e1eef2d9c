from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.merritt.repository import MerrittRepository
from tests.servers.merritt import Merritt, merritt
from tests.support.ocfl_fixture import memory


@pytest.fixture
def storage_service() -> Iterator[Merritt]:
    with merritt() as running:
        yield running


@pytest.fixture
def kept(tmp_path: Path, template: Path, storage_service: Merritt) -> Iterator[MerrittRepository]:
    """With the Merritt storage service as its storage."""
    with memory(tmp_path) as home:
        made = MerrittRepository(home, template)
        made.keep(storage_service)
        yield made
        made.close()
