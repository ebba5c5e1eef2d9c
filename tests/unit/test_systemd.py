"""The systemd units of deploy/systemd, judged by systemd's own tools."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoints.cli.command_table import ENTRIES
from entrypoints.cli.commands.program_commands import read_queues
from tests.support.fleet import PROJECT
from tests.support.requirements import unavailable

UNITS = PROJECT / "deploy" / "systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))
PROGRAM = "/opt/arkline/bin/arkline"
EXPOSURE = 20
"""In tenths; systemd calls a service with less than 25 well protected."""


def analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        unavailable("systemd-analyze is missing: apt-get install systemd")
    around = {**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:", "SYSTEMD_COLORS": "0"}
    command = [tool, *arguments]
    return subprocess.run(command, env=around, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units with a program that exists on this machine, and an instance of the template."""
    folder = tmp_path_factory.mktemp("systemd") / "units"
    shutil.copytree(UNITS, folder)
    for unit in folder.glob("*.service"):
        unit.write_text(unit.read_text().replace(PROGRAM, sys.executable))
    template = folder / "arkline-worker@.service"
    template.rename(folder / "arkline-worker@control.service")
    return folder


def units_of(folder: Path) -> list[str]:
    return [str(path) for path in sorted((*folder.glob("*.service"), *folder.glob("*.target")))]


def test_systemd_has_nothing_to_say_about_the_units(installed: Path) -> None:
    result = analyze(installed, "verify", "--man=no", *units_of(installed))

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_no_service_is_exposed_more_than_it_needs(installed: Path) -> None:
    services = [unit for unit in units_of(installed) if unit.endswith(".service")]
    result = analyze(
        installed, "security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE}", *services
    )

    assert result.returncode == 0, re.findall(r".*exposure level.*", result.stdout + result.stderr)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_starts_a_command_of_arkline(name: str) -> None:
    (started,) = re.findall(r"^ExecStart=(.*)$", (UNITS / name).read_text(), re.MULTILINE)
    program, command, *_ = started.split()

    assert program == PROGRAM
    assert command in {entry.name for entry in ENTRIES}


def test_a_worker_has_time_to_end_its_steps_as_in_the_compose_file() -> None:
    text = (UNITS / "arkline-worker@.service").read_text()

    assert {"KillMode=mixed", "TimeoutStopSec=120"} <= set(text.splitlines())


def test_a_worker_beside_clamd_is_as_well_protected(installed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(installed, tmp_path / "units")
    drop_ins = folder / "arkline-worker@.service.d"
    drop_ins.mkdir()
    shutil.copy(UNITS / "worker-clamav.conf", drop_ins / "20-clamav.conf")
    worker = str(folder / "arkline-worker@control.service")

    assert analyze(folder, "verify", "--man=no", worker).returncode == 0
    shown = analyze(folder, "security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE}", worker)
    assert shown.returncode == 0, re.findall(r".*exposure level.*", shown.stdout + shown.stderr)
    assert "SupplementaryGroups=" in shown.stdout


@pytest.mark.parametrize("queue", ["control", "split"])
def test_the_options_of_a_reserved_worker_name_its_queue(queue: str) -> None:
    name, _, options = (UNITS / f"worker-{queue}.env").read_text().strip().partition("=")

    assert name == "WORKER_OPTIONS"
    assert shlex.split(options)[:2] == ["--queues", read_queues(queue)]
