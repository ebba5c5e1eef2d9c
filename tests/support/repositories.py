"""Repositories in separate folders, real except for the record."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ocfl_fixture import memory
from tests.support.repository import Repository, empty_inventory


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An inventory without an entry."""
    return empty_inventory(tmp_path_factory.mktemp("inventory"))


@pytest.fixture
def repository(tmp_path: Path, template: Path) -> Iterator[Repository]:
    """With an OCFL root as its storage."""
    with memory(tmp_path) as home:
        made = Repository(home, template)
        yield made
        made.close()
