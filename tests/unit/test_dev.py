import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_group
from typer.testing import CliRunner

from tools.checkout import PROJECT, VAR, stop_command
from tools.commands import ENTRIES, USAGE
from tools.dev.app import app, spread_over
from tools.dev.checks import LOCK_FILES, lock_complaints

COMMANDS = [entry.name for entry in ENTRIES]


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("chaos", "test")])
def test_help_has_an_example(command: str) -> None:
    output = CliRunner().invoke(app, [command, "--help"]).stdout

    assert f"Example: ./dev {command}" in output


def test_the_help_of_chaos_is_that_of_its_own_process_and_has_an_example() -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "tools.dev", "chaos", "--help"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert "Example: ./dev chaos" in asked.stdout
    assert "--soak" in asked.stdout


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


def test_the_stack_of_a_checkout_is_stopped_by_dev_down() -> None:
    assert stop_command(VAR) == "./dev down"
    assert stop_command(VAR / "demo") == f"./dev down --home {VAR / 'demo'}"
