from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.settings import Settings
from tests.servers import zookeeper as zookeeper_servers
from tests.support.fleet import Fleet
from tests.support.fleet import fleet as running_fleet


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Quick retries and short sessions, so that a test of recovery takes seconds."""
    quick = {"backoff": 0.5, "max_tries": 3, "fetch_tries": 2, "stop_grace": 1, "zk_session_timeout": 4}
    return settings.model_copy(update=quick)


@pytest.fixture
def fleet(settings: Settings) -> Iterator[Fleet]:
    with running_fleet(settings) as opened:
        yield opened


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[zookeeper_servers.Server]:
    """A ZooKeeper of this test's own, whose data it may lose or replace."""
    with zookeeper_servers.running(tmp_path / "zookeeper", tick=500) as server:
        yield server


@pytest.fixture
def own_fleet(settings: Settings, own_zookeeper: zookeeper_servers.Server) -> Iterator[Fleet]:
    """A fleet whose record is in `own_zookeeper`."""
    with running_fleet(settings.model_copy(update={"zk_hosts": own_zookeeper.hosts})) as opened:
        yield opened
