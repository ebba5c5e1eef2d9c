"""Hosts in namespaces: a short run of `./dev chaos --hosts 3`, what can happen to one, and what stays."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.polling import eventually
from tests.support.tools import PROJECT, result_of
from tools.chaos.hosts.machine import why_not
from tools.chaos.problem import Category

pytestmark = [pytest.mark.timeout(1260)]


@pytest.fixture(autouse=True)
def _hosts() -> None:
    if reason := why_not():
        pytest.skip(f"not run: {reason}")


FAULTS = (
    *("host-loses-power", "host-cut-off-zookeeper-redis-storage"),
    *("host-200-ms-away", "host-slow-storage"),
)


def test_four_faults_of_hosts_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    asked = ("--seed", "8", "--jobs", "20", "--faults", "4", "--minutes", "0.6", "--hosts", "3")
    kept = ("--keep", str(tmp_path / "run"))

    result = result_of("tools.chaos", *asked, *kept, "--only", *FAULTS, timeout=1200)

    assert {sort: result[sort] for sort in Category} == dict.fromkeys(Category, 0)
    assert (result["faults"], result["hosts"]) == (4, 3)
    assert result["kinds"].keys() == set(FAULTS)
    assert result["completed"] + result["failed"] == 20
    assert result["failed"] == result["planted"]
    assert result["delay_by"] in {"netem", "relay"}
    assert _left(str(tmp_path)) == []


def test_hosts_share_storage_and_locks_lose_packets_and_what_was_not_synced(tmp_path: Path) -> None:
    program = (sys.executable, "-m", "tests.support.two_hosts", str(tmp_path / "run"))

    run = subprocess.run(
        ("unshare", "--mount", "--net", "--", *program),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    facts = json.loads(run.stdout)
    assert facts["read by the other host"] == facts["read by the other host meanwhile"] == "written"
    assert facts["a file created twice"].endswith("File exists")
    assert facts["a lock held by the other host"] == ""
    assert facts["a lock that was released"] == "locked"
    assert facts["read while storage fails"].endswith("Input/output error")
    assert facts["read after a stall"] == "written"
    assert facts["seconds of the stall"] >= 1
    assert "timed out" in facts["heard while the host hears nothing"]
    assert "timed out" in facts["heard behind a partition of the port"]
    assert facts["seconds of a delayed connection"] > 0.2 > facts["seconds of a connection"]
    assert (facts["synced"], facts["unsynced"]) == ("kept", "0")
    assert _left(str(tmp_path)) == []


def test_a_killed_run_leaves_no_process_no_mount_no_loop_device_and_no_namespace(tmp_path: Path) -> None:
    run = subprocess.Popen(
        (sys.executable, "-m", "tools.chaos", "--hosts", "3", "--jobs", "5", "--keep", str(tmp_path / "run")),
        cwd=PROJECT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    eventually(lambda: (tmp_path / "run" / "log" / "host3-zookeeper.log").exists(), seconds=300)
    assert _left(str(tmp_path)) != []

    run.send_signal(signal.SIGKILL)
    run.wait()

    eventually(lambda: _left(str(tmp_path)) == [])
    named = subprocess.run(("ip", "netns", "list"), capture_output=True, text=True, check=True)
    assert "host" not in named.stdout


def _left(folder: str) -> list[str]:
    """Loop devices and processes of a run in this folder, and what is mounted there."""
    loops = subprocess.run(("losetup", "--list", "--noheadings"), capture_output=True, text=True, check=True)
    left = [line for line in loops.stdout.splitlines() if folder in line]
    left += [line for line in Path("/proc/self/mounts").read_text().splitlines() if folder in line]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if folder in command:
                left.append(command)
    return left
