"""Servers on loopback that many tests talk to, as fixtures."""

from collections.abc import Iterator

import pytest

from tests.servers.http_source import HttpSource
from tests.servers.receiver import Receiver, receiving


@pytest.fixture
def source() -> Iterator[HttpSource]:
    """A depositor's web server: `.put()` makes it serve a file."""
    with HttpSource() as server:
        yield server


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A depositor's system that receives callbacks."""
    with receiving() as running:
        yield running
