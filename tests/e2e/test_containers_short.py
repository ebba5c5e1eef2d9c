"""The image and the compose file on a real container engine, in short; `./dev containers` does more."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from entrypoints.cli import exit_codes
from tests.support.fleet import PROJECT

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="containers need Linux"),
]


def drill(environment: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """The exit code of the short form, and its result."""
    done = subprocess.run(
        (sys.executable, "-W", "ignore", "-m", "tools.containers", "--short", "--json"),
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)} | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_the_compose_file_runs_is_as_it_says_survives_a_kill_and_keeps_its_volumes() -> None:
    code, result = drill({})

    if result["not_run"]:
        pytest.skip(f"./dev containers was not run: {result['not_run']}")
    assert (code, result["problem"]) == (0, "")
    steps = ["before_healthy", "all_healthy", "as_the_file_says", "deposit", "kills", "restart"]
    assert list(result["seconds"]) == ["images", *steps, "down"]
    assert set(result["versions"]) == {"podman", "python", "zookeeper", "valkey", "postgres"}


def test_a_machine_that_refuses_containers_is_told_from_a_failure(tmp_path: Path) -> None:
    refusing = tmp_path / "bin" / "podman"
    refusing.parent.mkdir()
    refusing.write_text("#!/bin/sh\necho 'cannot clone: Operation not permitted' >&2\nexit 125\n")
    refusing.chmod(0o755)
    environment = {
        "PATH": f"{refusing.parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path),
    }

    code, result = drill(environment)

    assert code == exit_codes.UNREACHABLE
    assert not result["ok"]
    assert not result["problem"]
    if os.geteuid() == 0:
        assert "Operation not permitted" in result["not_run"]
    assert result["not_run"]
