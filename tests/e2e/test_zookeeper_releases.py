"""The record on Debian 13's ZooKeeper 3.9, beside Debian 12's 3.8, which all other tests have here."""

from collections.abc import Iterator

import pytest

from operations.doctor import servers
from operations.doctor.line import Verdict
from pipeline.settings import Settings
from pipeline.states import BatchState
from tests.e2e.collection import put_collection, submit
from tests.servers import debian_zookeeper
from tests.servers import zookeeper as zookeeper_servers
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, batch_ended, quiet
from zkstate.connection.session import Session


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper_servers.Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOOKEEPER_CLASSPATH", debian_zookeeper.classpath("trixie"))
        with zookeeper_servers.running(tmp_path_factory.mktemp("zookeeper"), tick=500) as server:
            yield server


def test_a_batch_is_stored_and_reported_with_a_3_9_server(
    zookeeper: zookeeper_servers.Server,
    session: Session,
    settings: Settings,
    fleet: Fleet,
    source: HttpSource,
) -> None:
    assert zookeeper_servers.version(zookeeper.port)[:2] == (3, 9)
    fleet.worker()
    bid = submit(session, settings, put_collection(source, objects=3, files=2))

    batch = batch_ended(session, bid)
    quiet(session)

    assert batch.status.status is BatchState.COMPLETED, batch.status.message
    assert {line.verdict for line in servers.zookeeper(settings)} == {Verdict.OK}
