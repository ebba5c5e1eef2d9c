from pathlib import Path

import pytest
from typer.main import get_group
from typer.testing import CliRunner

from tools.checkout import PROJECT
from tools.commands import ENTRIES, USAGE
from tools.dev.app import app, spread_over
from tools.dev.checks import LOCK_FILES, lock_complaints

COMMANDS = [entry.name for entry in ENTRIES]


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "test"])
def test_help_has_an_example(command: str) -> None:
    output = CliRunner().invoke(app, [command, "--help"]).stdout

    assert f"Example: ./dev {command}" in output


def test_the_table_lists_the_commands_that_exist() -> None:
    assert sorted(get_group(app).commands) == sorted(COMMANDS)


def test_usage_lists_every_command() -> None:
    lines = USAGE.splitlines()

    assert [line.split()[0] for line in lines if line.startswith("  ")] == COMMANDS


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


@pytest.mark.parametrize(
    ("cores", "arguments", "processes"),
    [(1, [], "2"), (2, ["-k", "nothing"], "2"), (3, ["tests/unit"], "3"), (64, [], "4")],
)
def test_tests_run_in_several_processes(cores: int, arguments: list[str], processes: str) -> None:
    assert spread_over(cores, arguments)[:2] == ("-n", processes)


@pytest.mark.parametrize("argument", ["-n0", "--numprocesses=8", "--pdb"])
def test_the_number_of_processes_can_be_given(argument: str) -> None:
    assert spread_over(8, ["tests/unit", argument]) == ()
