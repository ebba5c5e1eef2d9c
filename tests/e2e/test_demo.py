import json
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoints.stack.home import running_pid

DEV = (sys.executable, "-m", "tools.dev")


def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DEV, *arguments], capture_output=True, text=True, check=False, timeout=280)


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
