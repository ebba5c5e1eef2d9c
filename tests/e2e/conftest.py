from collections.abc import Iterator

import pytest

from pipeline.settings import Settings
from tests.support.fleet import Fleet
from tests.support.fleet import fleet as running_fleet


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Quick retries, so that a test of recovery takes seconds."""
    return settings.model_copy(update={"backoff": 0.5, "max_tries": 3, "fetch_tries": 2, "stop_grace": 1})


@pytest.fixture
def fleet(settings: Settings) -> Iterator[Fleet]:
    with running_fleet(settings) as opened:
        yield opened
