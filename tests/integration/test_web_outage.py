import time
from collections.abc import Iterator

import pytest

from pipeline.principal import Role
from pipeline.settings import Settings
from tests.servers.proxy import Proxy
from tests.support.web import Web, serving_board

MOST_SECONDS = 3.0
"""Seconds after which a request that needs ZooKeeper is refused."""


@pytest.fixture
def shaky_web(settings: Settings, zookeeper_proxy: Proxy) -> Iterator[Web]:
    with serving_board(settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})) as running:
        yield running
        zookeeper_proxy.accept()
        assert running.context.session.wait_connected(time.monotonic() + 30)


def test_while_zookeeper_is_away_lists_are_read_and_the_rest_is_503_within_seconds(
    shaky_web: Web, zookeeper_proxy: Proxy
) -> None:
    viewer = shaky_web.caller(Role.VIEWER)
    zookeeper_proxy.refuse()
    zookeeper_proxy.cut()

    answer = viewer.get("/v1/jobs/jid0000000001")

    assert shaky_web.context.session.answer_timeout <= MOST_SECONDS
    assert (answer.status_code, answer.json()["code"]) == (503, "service-unreachable")
    assert int(answer.headers["Retry-After"]) > 0
    assert viewer.get("/v1/board").json()["freshness"]["stale"]
    assert viewer.get("/health/ready").status_code == 503
    assert viewer.get("/health/live").status_code == 200


def test_the_front_page_names_zookeeper_what_stands_still_what_is_safe_and_what_helps(
    shaky_web: Web, zookeeper_proxy: Proxy
) -> None:
    viewer = shaky_web.caller(Role.VIEWER)
    assert "All systems work" not in viewer.get("/").text
    zookeeper_proxy.refuse()
    zookeeper_proxy.cut()
    assert viewer.get("/v1/jobs/jid0000000001").status_code == 503

    page = viewer.get("/").text

    assert f"ZooKeeper at {zookeeper_proxy.hosts} does not answer" in page
    for part in ("What stands still:", "What is safe:", "start ZooKeeper"):
        assert part in page
    assert 'aria-labelledby="health"' not in page
    assert "Nothing is recorded" not in viewer.get("/stops").text
