"""The wheel, installed into an empty environment outside the checkout."""

from pathlib import Path

import pytest

from pipeline.errors import ServiceUnreachable
from tests.support.requirements import unavailable
from tools.dev import wheel
from tools.dev.release import project_version
from tools.dev.wheel import Installed


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    try:
        wheel.find_uv()
    except ServiceUnreachable as error:
        unavailable(error)
    built = wheel.build(tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("source"))
    wheel.check_contents(built)
    return wheel.install(built, tmp_path_factory.mktemp("installed"))


def test_the_command_and_the_import_say_the_version(installed: Installed) -> None:
    wheel.check_commands(installed, project_version())


@pytest.mark.usefixtures("zookeeper", "redis_server")  # skipped where these cannot run
def test_a_standalone_stack_of_the_wheel_ingests_a_file(installed: Installed) -> None:
    wheel.check_ingest(installed)

    assert list(Path(installed.folder, "home", "ocfl").rglob("hello.txt"))
