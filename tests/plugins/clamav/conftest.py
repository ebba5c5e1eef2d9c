"""Clamd's servers, files of a deposit, and the check as its process drives it."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pipeline.checks import CheckedFile, CheckFinding
from plugins.clamav.check import ClamavCheck
from plugins.clamav.settings import ClamavSettings
from tests.servers import clamd
from tests.support.requirements import unavailable

Site = Callable[..., clamd.Server]


class Context:
    """The work goes on."""

    def __init__(self) -> None:
        self.asked = 0

    def alive(self) -> None:
        self.asked += 1


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clamd.Server]:
    """A clamd that no test stops."""
    try:
        with clamd.running(tmp_path_factory.mktemp("clamd")) as server:
            yield server
    except clamd.ClamdMissing as error:
        unavailable(error)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Starts a clamd of the test's own; arguments as of `clamd.running`."""
    with ExitStack() as servers:

        def start(**arguments: Any) -> clamd.Server:
            (tmp_path / "clamd").mkdir()
            try:
                return servers.enter_context(clamd.running(tmp_path / "clamd", **arguments))
            except clamd.ClamdMissing as error:
                unavailable(error)

        yield start


def file(folder: Path, content: bytes, name: str = "a") -> CheckedFile:
    source = folder / name
    source.write_bytes(content)
    return CheckedFile(f"deposit/{name}", source, len(content), hashlib.sha512(content).hexdigest())


def check(address: str) -> ClamavCheck:
    return ClamavCheck(ClamavSettings(clamd=address))


def scanned(address: str, *files: CheckedFile) -> list[CheckFinding]:
    return list(check(address).run(files, Context()))
