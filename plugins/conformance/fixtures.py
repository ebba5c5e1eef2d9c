"""Fixtures of the suites; registered where an option names a backend."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins.conformance.entering import Entering
from plugins.conformance.given import subject
from plugins.conformance.minting import Minting
from plugins.conformance.storing import Place
from plugins.conformance.subjects import CheckSubject


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty place of the storage that --arkline-storage names."""
    with subject(request.config, "storage")(tmp_path) as given:
        yield Place(given)


@pytest.fixture
def every(request: pytest.FixtureRequest) -> int:
    """1, or N to let a writer die at every Nth moment alone."""
    given: int = request.config.getoption("--arkline-every")
    return given


@pytest.fixture
def entering(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Entering]:
    """The inventory with the service that --arkline-inventory names."""
    with subject(request.config, "inventory")(tmp_path) as given:
        yield Entering(given)


@pytest.fixture
def minting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Minting]:
    """The minter that --arkline-minter names, and a record without jobs."""
    with subject(request.config, "minter")(tmp_path) as given:
        yield Minting(given)


@pytest.fixture
def check(request: pytest.FixtureRequest) -> CheckSubject:
    """The check that --arkline-check names."""
    subject_of_site: CheckSubject = subject(request.config, "check")()
    return subject_of_site
