from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.sources.fetch import HttpFetcher
from tests.support.fetching import DownloadFactory, impatient


@pytest.fixture
def fetcher() -> Iterator[HttpFetcher]:
    with impatient() as opened:
        yield opened


@pytest.fixture
def a_download(tmp_path: Path) -> DownloadFactory:
    return DownloadFactory(tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def inventory(request: pytest.FixtureRequest) -> SqlInventory:
    """An empty inventory, in each of both databases."""
    if request.param == "sqlite":
        return open_inventory(f"sqlite:///{request.getfixturevalue('tmp_path')}/inventory.sqlite")
    new_database: Callable[[], str] = request.getfixturevalue("postgresql_server").new_database
    return open_inventory(new_database())
