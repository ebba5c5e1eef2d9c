from pathlib import Path

import pytest
from typer.testing import CliRunner

from entrypoints.dev.app import app
from entrypoints.dev.checks import LOCK_FILES, lock_complaints
from entrypoints.stack.java import PROJECT

COMMANDS = ("demo", "up", "down", "check", "bench", "chaos", "lock")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    said = CliRunner().invoke(app, [command, "--help"]).stdout

    assert f"Example: ./dev {command}" in said


def test_an_unknown_benchmark_is_refused() -> None:
    done = CliRunner().invoke(app, ["bench", "no-such"])

    assert "no benchmark 'no-such'" in str(done.exception)


@pytest.mark.parametrize("name", LOCK_FILES)
def test_a_lock_file_has_no_address(name: str) -> None:
    assert lock_complaints(PROJECT / name) == ""


def test_an_address_in_a_lock_file_is_a_complaint(tmp_path: Path) -> None:
    path = tmp_path / "some.lock"
    path.write_text("one==1\ntwo @ https://example.org/two.whl\n")

    assert lock_complaints(path).startswith("some.lock:2: ")
