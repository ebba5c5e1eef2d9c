from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.sources.fetch import HttpFetcher
from tests.support.fetching import DownloadFactory, impatient


@pytest.fixture
def fetcher() -> Iterator[HttpFetcher]:
    with impatient() as opened:
        yield opened


@pytest.fixture
def a_download(tmp_path: Path) -> DownloadFactory:
    return DownloadFactory(tmp_path)
