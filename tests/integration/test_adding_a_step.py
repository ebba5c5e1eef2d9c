"""docs/adding-a-step.md, applied to a copy of the code; jobs of both releases on one record."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tasks import stores
from tests.support import planting
from zkstate.session import connect

PROJECT = Path(__file__).parent.parent.parent
PAGE = PROJECT / "docs" / "adding-a-step.md"
CODE = ("pipeline", "zkstate", "tasks", "operations", "celeryconfig.py", "tests")
NEW = "indexing"

RUN = """
import json, sys
from pipeline.settings import Settings
from pipeline.states import JOB, Event, JobState
from tasks import app, job
from tests.support import planting
from zkstate import jobs, queue, record
from zkstate.audit import audit
from zkstate.session import connect

settings = Settings()
left_behind = sys.argv[1:]
context = app.make_context(settings)

def proceed(found):
    "Take a job to its end: the new step by the worker's own code, the others by their moves alone."
    if found.status.status is JobState.FAILED:
        found = planting.apply_event(session, found, Event.RESUME)
    while found.status.status in JOB.working():
        if found.status.status is JobState.INDEXING:
            job.run(context, record.ticket(found))
            found = jobs.load(session, found.jid)
        else:
            pending = found.status.status is JobState.PENDING
            found = planting.apply_event(session, found, Event.ACQUIRE if pending else Event.SUCCEED)
    return found

with connect(settings) as session:
    before = [str(finding) for finding in audit(session)]
    new = planting.one_job(session)
    ended = [proceed(jobs.load(session, jid)) for jid in (new.jid, *left_behind)]
    print(json.dumps({
        "version": JOB.version,
        "route": context.app.conf.task_routes[JOB.task(JobState.INDEXING).name]["queue"],
        "registered": JOB.task(JobState.INDEXING).name in context.app.tasks,
        "queued": queue.counts(session)[JobState.INDEXING],
        "audit": before + [str(finding) for finding in audit(session)],
        "ended": [
            {
                "state": done.status.status,
                "states": [entry.state for entry in done.history],
                "versions": sorted({entry.table for entry in done.history}),
                "messages": [entry.message for entry in done.history if "search index" in entry.message],
            }
            for done in ended
        ],
    }))
"""


def apply_page(checkout: Path) -> None:
    """Apply every diff of the page; the lines that a diff names have to be there, once."""
    diffs = re.findall(r"```diff\n--- (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(diffs) == 7
    for name, diff in diffs:
        file = checkout / name
        lines = diff.splitlines(keepends=True)
        old = "".join(line[1:] or "\n" for line in lines if line[0] in " -")
        new = "".join(line[1:] or "\n" for line in lines if line[0] in " +")
        text = file.read_text() if file.exists() else ""
        assert not old or text.count(old) == 1, f"{name} has these lines {text.count(old)} times:\n{old}"
        file.write_text(text.replace(old, new) if old else new)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in CODE:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    apply_page(folder)
    return folder


def run_new_release(checkout: Path, settings: Settings, left_behind: list[str]) -> dict[str, Any]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ARKLINE_")},
        "PYTHONPATH": str(checkout),
        "ARKLINE_ZK_HOSTS": settings.zk_hosts,
        "ARKLINE_ZK_ROOT": settings.zk_root,
        "ARKLINE_BROKER_URL": settings.broker_url,
        "ARKLINE_BROKER_PREFIX": settings.broker_prefix,
        "ARKLINE_HOME": str(settings.home),
        "ARKLINE_PROFILES": str(settings.profiles),
    }
    command = [sys.executable, "-c", RUN, *left_behind]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_jobs_of_both_releases_go_through_a_step_added_as_the_page_says(
    settings: Settings, checkout: Path
) -> None:
    with connect(settings) as session:
        stores.compare(session, settings)  # gives the three stores their deployment id
        completed = planting.job_in(session, JobState.COMPLETED, JobState.NOTIFY)
        recording = planting.job_in(session, JobState.RECORDING, JobState.PROCESSING)
        notify = planting.job_in(session, JobState.NOTIFY, JobState.RECORDING)
        failed = planting.apply_event(session, planting.job_in(session, JobState.NOTIFY), Event.FAIL)

    result = run_new_release(checkout, settings, [job.jid for job in (completed, recording, notify, failed)])

    assert result["audit"] == []
    assert (result["version"], result["route"], result["registered"], result["queued"]) == (3, "io", True, 0)
    assert [ended["state"] for ended in result["ended"]] == ["completed"] * 5
    new, old, through, after, resumed = result["ended"]
    assert [state for state in new["states"] if state in ("recording", NEW, "notify")] == [
        "recording",
        NEW,
        "notify",
    ]
    assert new["messages"] == ["jid0000000005 is in the search index"]
    assert old["versions"] == [1, 2]  # the creation of a job is no move
    assert [NEW in job["states"] for job in (old, through, after, resumed)] == [False, True, False, True]
