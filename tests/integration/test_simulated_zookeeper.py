"""The simulated ZooKeeper answers as the real ones: results, errors, versions, watches and their order."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pipeline.settings import Settings
from tests.servers import debian_zookeeper
from tests.servers import zookeeper as zookeeper_servers
from tests.servers.proxy import Proxy
from tests.support import compared, nightly
from tools.checkout import PROJECT
from tools.simulation import comparison

SEEDS = (6, 7, 10, 21, 28, 20_267, 40_074, *range(10_000, 10_000 + nightly.often(10, 400)))
"""Of requests whose answers once differed, and others. COMPARED=20000-20500 compares those."""

if asked := os.environ.get("COMPARED"):
    SEEDS = tuple(range(*map(int, asked.split("-"))))

LENGTH = 60
"""Requests of a sequence."""

PATIENCE = 10
"""Seconds of a session that no load may end."""

LAG = 0.02
"""Seconds by which what the other servers say is late."""

RELEASES = {"3.8": "", "3.9": "trixie"}
"""Release of ZooKeeper -> the release of Debian that has it, if it is not that of the other tests."""


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(
    release: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[zookeeper_servers.Server]:
    if not RELEASES[release]:
        yield request.getfixturevalue("zookeeper")
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOOKEEPER_CLASSPATH", debian_zookeeper.classpath(RELEASES[release]))
        with zookeeper_servers.running(tmp_path_factory.mktemp("zookeeper"), tick=500) as running:
            yield running


def simulated(what: str, release: str, *seeds: int) -> dict[int, str]:
    """Seed -> a line of JSON; in a process of its own, as this one has threads."""
    command = [sys.executable, "-m", "tools.simulation.comparison", what, release, str(LENGTH)]
    done = subprocess.run(
        [*command, *map(str, seeds)], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=1800
    )
    return dict(zip(seeds, done.stdout.splitlines(), strict=True))


@pytest.fixture(scope="module")
def answers(release: str) -> dict[int, str]:
    """Seed -> the answers of the simulated one."""
    return simulated("answers", release, *SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_requests_get_the_same_answers_and_events(
    settings: Settings, server: zookeeper_servers.Server, answers: dict[int, str], seed: int
) -> None:
    patient = settings.model_copy(update={"zk_session_timeout": PATIENCE})
    ports = [server.port] * comparison.SESSIONS
    with compared.recorded(patient, ports, comparison.root_of(seed)) as recorder:
        recorder.run(comparison.sequence_of(seed, LENGTH))

        assert answers[seed] == comparison.text_of(recorder)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper_servers.Server]:
    """Three servers; the first one gets what the others agree on some milliseconds later."""
    folder = tmp_path_factory.mktemp("ensemble")
    commands = zookeeper_servers.prepare(folder, 3, tick=500)
    configuration = folder / "1" / "zoo.cfg"
    with ExitStack() as opened:

        def delayed(line: re.Match[str]) -> str:
            proxy = opened.enter_context(Proxy(int(line[2])))
            proxy.delay(LAG)
            return f"{line[1]}{proxy.port}:"

        text = re.sub(r"(server\.[23]=[^:]+:)(\d+):", delayed, configuration.read_text())
        configuration.write_text(text)
        for number in range(1, 4):  # a server that leads nobody joins the others before sessions end
            known = folder / str(number) / "zoo.cfg"
            known.write_text(known.read_text().replace("initLimit=20", "initLimit=6"))
        servers = zookeeper_servers.Server(commands)
        opened.callback(servers.stop)
        servers.start()
        yield servers


def test_a_server_that_lags_shows_each_session_old_states_but_none_older_than_before(
    settings: Settings, ensemble: zookeeper_servers.Server
) -> None:
    with compared.recorded(settings, ensemble.ports, "/behind") as recorder:
        real = comparison.behind(recorder)
    assumed = [json.loads(line) for line in simulated("behind", "3.8", *range(6)).values()]

    assert real[0] > 0
    assert any(old for old, _ in assumed)
    assert [wrong for _, wrong in (real, *assumed) if wrong] == []


def test_without_a_majority_nothing_is_answered_and_no_session_ends(
    settings: Settings, ensemble: zookeeper_servers.Server
) -> None:
    def lose() -> None:
        for process in ensemble.processes[1:]:
            process.kill()

    session = 10.0  # the longest with these ticks: its clients have time to find the servers again
    settings = settings.model_copy(update={"zk_session_timeout": session})
    with compared.recorded(settings, ensemble.ports, "/outage") as recorder:
        real = comparison.without_majority(recorder, lose, ensemble.start, session)

    assert json.loads(simulated("outage", "3.8", 1)[1]) == real
    assert real["its node"]
