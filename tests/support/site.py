"""A web process for all tests of a module, as a fixture; a module that needs another one defines it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipeline.settings import Settings

if TYPE_CHECKING:
    from tests.support.web import Web


@pytest.fixture(scope="module")
def web(module_settings: Settings) -> Iterator["Web"]:
    """The application on the settings of the module, with its board filled: `.caller()`, `.context`."""
    from tests.support.web import serving_board  # FastAPI takes a second, which most tests need not spend

    with serving_board(module_settings) as running:
        yield running
