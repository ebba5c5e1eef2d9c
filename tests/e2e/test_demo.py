import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoints.stack.home import read_info, running_pid

DEV = (sys.executable, "-m", "tools.dev")


def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DEV, *arguments], capture_output=True, text=True, check=False, timeout=280)


def is_open_to_others(path: Path, below: Path) -> bool:
    """Whether another user can read the file: its own mode, and those of the folders around it."""
    folders = [folder for folder in path.parents if folder.is_relative_to(below) and folder != below]
    return bool(path.stat().st_mode & 0o004) and all(folder.stat().st_mode & 0o001 for folder in folders)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("zookeeper", "redis_server")  # skipped where these cannot run
def test_the_demo_completes_every_batch_and_prints_where_the_results_are(tmp_path: Path) -> None:
    done = dev("demo", "--json", f"--home={tmp_path / 'demo'}")

    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["status"] == "completed"
    assert [batch["status"] for batch in said["batches"]] == ["completed", "completed"]
    assert said["jobs"] == {"completed": 5, "failed": 0}
    assert said["files"] == 14
    assert Path(said["storage_root"], "0=ocfl_1.1").is_file()
    assert Path(said["inventory_url"].removeprefix("sqlite:///")).is_file()
    assert len(list(Path(said["outbox"]).glob("*report*"))) == 2
    assert running_pid(tmp_path / "demo") is None


def test_the_demo_empties_no_other_folder(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    done = dev("demo", f"--home={tmp_path}")

    assert done.returncode == 2
    assert "is not a demo's folder" in done.stderr
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.usefixtures("zookeeper", "redis_server")
def test_a_detached_stack_is_found_by_its_note_and_stopped_by_down(tmp_path: Path) -> None:
    home = f"--home={tmp_path}"
    started = dev("up", "--detach", "--workers=1", "--concurrency=1", home)
    try:
        assert started.returncode == 0, started.stderr
        assert started.stdout.split()[-4:] == ["./dev", "down", "--home", str(tmp_path)]
        note = read_info(tmp_path)
        assert note is not None
        pids = [service["pid"] for service in note.services.values()]
        refused = dev("up", home)
        readable = [
            path for path in tmp_path.rglob("*") if path.is_file() and is_open_to_others(path, tmp_path)
        ]
        log = (tmp_path / "log" / "standalone.log").read_text()
        shutil.rmtree(tmp_path / "run")
        refused_without_run = dev("up", home)
    finally:
        stopped = dev("down", home)

    assert readable == []
    assert note.token not in log
    assert note.flower_password not in log
    assert (tmp_path / "log" / "standalone.log").stat().st_mode & 0o777 == 0o600
    assert "runs in" in refused.stderr
    assert f"(process {note.pid})" in " ".join(refused_without_run.stderr.split())
    assert f"./dev down --home {tmp_path}" in " ".join(refused.stderr.split())
    assert stopped.returncode == 0, stopped.stderr
    assert running_pid(tmp_path) is None
    assert len(pids) >= 4
    assert not any(alive(pid) for pid in pids)
