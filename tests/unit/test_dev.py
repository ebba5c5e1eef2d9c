import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.main import get_group
from typer.testing import CliRunner

from entrypoints.stack.child import free_ports
from tools.checkout import PROJECT, VAR, stop_command
from tools.commands import ENTRIES, USAGE
from tools.dev import audit, secret_scan
from tools.dev.app import app, spread_over
from tools.dev.benches import FOLDER, names
from tools.dev.checks import LOCK_FILES, lock_complaints

COMMANDS = [entry.name for entry in ENTRIES]


@pytest.mark.parametrize(
    "command",
    [name for name in COMMANDS if name not in ("chaos", "simulate", "storm", "load", "containers", "test")],
)
def test_help_has_an_example(command: str) -> None:
    output = CliRunner().invoke(app, [command, "--help"]).stdout

    assert f"Example: ./dev {command}" in output


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("chaos", "--soak"),
        ("simulate", "--trace"),
        ("storm", "--hostile"),
        ("load", "--seconds"),
        ("containers", "--short"),
    ],
)
def test_the_help_of_a_long_run_is_that_of_its_own_process_and_has_an_example(
    command: str, option: str
) -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "tools.dev", command, "--help"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert f"Example: ./dev {command}" in asked.stdout
    assert option in asked.stdout


def test_the_table_lists_the_commands_that_exist() -> None:
    assert sorted(get_group(app).commands) == sorted(COMMANDS)


def test_usage_lists_every_command() -> None:
    lines = USAGE.splitlines()

    assert [line.split()[0] for line in lines if line.startswith("  ")] == COMMANDS


@pytest.mark.parametrize("name", names())
def test_each_benchmark_prints_its_docstring_for_help_instead_of_running(name: str) -> None:
    code = (FOLDER / f"{name}.py").read_text()

    assert code.startswith('"""')
    assert code.endswith('if __name__ == "__main__":\n    run(main, __doc__)\n')


def test_further_arguments_are_those_of_the_benchmark() -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "tools.dev", "bench", "endurance", "--minutes", "4", "--help"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert asked.stdout.startswith("Deposits without a pause")
    assert "`--minutes`" in asked.stdout


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
    "secret",
    [
        b"-----BEGIN RSA " + b"PRIVATE KEY-----",
        b"AKIA" + b"A1" * 8,
        b"ghp_" + b"a" * 36,
        b"https://me:" + b"a1" * 12 + b"@x.edu/",
    ],
)
def test_a_secret_in_the_tree_is_a_complaint(secret: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n" + secret)

    (complaint,) = secret_scan.in_file(path)

    assert complaint.startswith("a.txt:2: has a")
    assert secret.decode() not in complaint


def test_no_secret_is_in_the_tree() -> None:
    assert secret_scan.complaints() == ""


def test_an_audit_without_a_network_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    monkeypatch.setattr(audit, "LOCKS", ("tools/installer.lock",))

    assert audit.audit(Console(width=1000)) == 0
    assert "tools/installer.lock: skipped: " in capsys.readouterr().out


def test_a_package_that_could_not_be_asked_for_is_not_called_free_of_faults() -> None:
    known = {"name": "a", "version": "1", "vulns": []}
    faulty = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1"}]}
    unknown = {"name": "c", "skip_reason": "not found"}

    faults, result = audit.judge(json.dumps({"dependencies": [known, faulty, unknown]}), "")

    assert faults == ["b 2: PYSEC-1"]
    assert result == "2 of 3 packages could be asked for, 1 known to have a fault"


@pytest.mark.parametrize("name", audit.LOCKS)
def test_the_audit_is_of_files_that_there_are(name: str) -> None:
    assert (PROJECT / name).is_file()
    assert name in audit.command("uv", name)


@pytest.mark.parametrize(
    ("cores", "arguments", "processes"),
    [(1, [], "2"), (2, ["-k", "nothing"], "4"), (3, ["tests/unit"], "6"), (64, [], "6")],
)
def test_tests_run_in_several_processes(cores: int, arguments: list[str], processes: str) -> None:
    assert spread_over(cores, arguments)[:2] == ("-n", processes)


@pytest.mark.parametrize("argument", ["-n0", "--numprocesses=8", "--pdb"])
def test_the_number_of_processes_can_be_given(argument: str) -> None:
    assert spread_over(8, ["tests/unit", argument]) == ()


def test_the_stack_of_a_checkout_is_stopped_by_dev_down() -> None:
    assert stop_command(VAR) == "./dev down"
    assert stop_command(VAR / "demo") == f"./dev down --home {VAR / 'demo'}"


def test_a_checkout_and_a_release_are_built_by_a_package_with_a_known_digest() -> None:
    checkout = (PROJECT / "tools" / "bootstrap.py").read_text()
    release = (PROJECT / "tools" / "dev" / "wheel.py").read_text()

    assert 'install("--require-hashes", "-r", "tools/build.lock")' in checkout
    assert re.findall(r"install\(.*--editable.*\)", checkout) == [
        'install("--no-build-isolation", "--no-deps", "--editable", ".")'
    ]
    assert '"--build-constraints", PROJECT / "tools" / "build.lock", "--require-hashes"' in release
