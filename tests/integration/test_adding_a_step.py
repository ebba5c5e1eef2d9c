"""docs/adding-a-step.md, applied to a copy of the code; jobs of both releases on one record."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.settings import Settings
from pipeline.states import JOB, Event, JobState
from pipeline.working_storage import mount
from tasks import stores
from tests.servers.http_source import HttpSource
from tests.support import planting
from tests.support.fleet import LIMIT, batch_ended, environment, fleet, wait_for
from zkstate import paths
from zkstate.connection.session import connect
from zkstate.record import batches

pytestmark = pytest.mark.timeout(400)  # unit tests of the copy, and a fleet

PROJECT = Path(__file__).parent.parent.parent
PAGE = PROJECT / "docs" / "adding-a-step.md"
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "var", ".*_cache")
"""Bytecode is copied, so that the copy compiles only what the page changes."""

NEW = "scanning"
VIRUS = rb"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"

TESTS = (
    *("states", "chaos_checker", "docs", "json_page", "man_page", "web_routes", "pages_static", "ribbon"),
    *("records", "cli_words", "monitoring"),
)
"""Unit tests that have to do with states or with the generated pages."""


@dataclass(frozen=True)
class NewRelease:
    """The copy with the new step."""

    folder: Path

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        usual = {name: value for name, value in os.environ.items() if not name.startswith("ARKLINE_")}
        path = os.pathsep.join((str(Path(sys.executable).parent), usual["PATH"]))
        return subprocess.run(
            words,
            cwd=self.folder,
            env={**usual, "PATH": path, "PYTHONPATH": str(self.folder), **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    def arkline(self, settings: Settings, *words: str, code: int = 0) -> str:
        done = self.run(sys.executable, "-m", "arkline", *words, **environment(settings))
        assert done.returncode == code, (words, done)
        return done.stdout


def apply_diffs(folder: Path) -> None:
    """Apply every diff of the page; the lines that a diff names have to be there, once."""
    diffs = re.findall(r"```diff\n--- (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(diffs) == PAGE.read_text().count("```diff")
    for name, diff in diffs:
        file = folder / name
        lines = diff.splitlines(keepends=True)
        old = "".join(line[1:] or "\n" for line in lines if line[0] in " -")
        new = "".join(line[1:] or "\n" for line in lines if line[0] in " +")
        text = file.read_text() if file.exists() else ""
        assert not old or text.count(old) == 1, f"{name} has these lines {text.count(old)} times:\n{old}"
        file.write_text(text.replace(old, new) if old else new)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewRelease]:
    folder = tmp_path_factory.mktemp("release") / "checkout"
    shutil.copytree(PROJECT, folder, ignore=NOT_COPIED)
    if (bytecode := Path(f"{sys.pycache_prefix}{PROJECT}")).is_dir():
        shutil.copytree(bytecode, f"{sys.pycache_prefix}{folder}", ignore=NOT_COPIED)
    apply_diffs(folder)
    yield NewRelease(folder)
    shutil.rmtree(folder)


def test_the_page_leaves_no_test_and_no_check_that_fails(release: NewRelease) -> None:
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)

    written = release.run("bash", "-e", "-c", commands)
    assert (written.returncode, written.stdout) == (0, ""), written.stderr
    for name in ("docs/states.md", "docs/api/openapi.json", "entrypoints/cli/arkline.1"):
        assert NEW in (release.folder / name).read_text(), name

    for check in (("ruff", "check"), ("ruff", "format", "--check"), ("lint-imports",)):
        done = release.run(*check)
        assert done.returncode == 0, done.stdout
    tests = (f"tests/unit/test_{name}.py" for name in TESTS)
    done = release.run(sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout[-5000:]


def test_the_rows_of_review_on_the_page_are_those_of_the_table() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    table = (PROJECT / "pipeline" / "states.py").read_text()

    assert [line for line in shown.splitlines() if line not in table] == []
    rows = [row for row in JOB.table if JobState.REVIEW in (row.source, row.target)]
    assert shown.count("Transition(") == len(rows)


TIMELINES = """
import sys
from typer.testing import CliRunner
from entrypoints.cli.main import app
for jid in sys.argv[1:]:
    print(CliRunner().invoke(app, ["timeline", jid, "--json"]).stdout.replace("\\n", " "))
"""
"""One process for all: a new interpreter for each would load the whole release each time."""


def histories(release: NewRelease, settings: Settings, *jids: str) -> dict[str, list[tuple[str, str]]]:
    """JID -> the states of the job and their messages, as the new release tells them."""
    done = release.run(sys.executable, "-c", TIMELINES, *jids, **environment(settings))
    assert done.returncode == 0, done
    shown = zip(jids, map(json.loads, done.stdout.splitlines()), strict=True)
    return {jid: [(step["state"], step["message"]) for step in told["steps"]] for jid, told in shown}


def test_a_worker_takes_jobs_of_both_releases_through_the_new_step(
    settings: Settings, release: NewRelease
) -> None:
    with HttpSource() as source, connect(settings) as session:
        stores.compare(session, settings)  # gives the three stores their deployment id
        settings.working.mkdir(parents=True)
        mount.mark(settings.working)  # the release before has used it
        clean, infected = source.put("/clean.txt", b"content"), source.put("/virus.txt", VIRUS)
        facts = {"working": settings.working, "payload_url": clean, "payload_name": "clean.txt"}
        before = planting.job_in(session, JobState.DOWNLOADING, JobState.PROVISIONING, **facts)
        after = planting.job_in(session, JobState.NOTIFY, JobState.RECORDING, **facts)
        failed = planting.job_in(session, JobState.PROCESSING, JobState.DOWNLOADING, **facts)
        failed = planting.apply_event(session, failed, Event.FAIL)
        reviewed = planting.job_in(session, JobState.REVIEW, JobState.PROVISIONING, **facts)
        with fleet(settings, release.folder) as started:
            started.worker()
            started.beat()
            new, refused = (
                release.arkline(settings, "submit", url, "--profile", "demo").split()[0]
                for url in (clean, infected)
            )
            release.arkline(settings, "resume", failed.jid)
            release.arkline(settings, "approve", reviewed.jid)
            for bid in (new, refused, before.bid, after.bid, reviewed.bid):
                batch_ended(session, bid)
            status = paths.job_status(failed.jid)
            wait_for(session, status, lambda: b'"completed"' in session.get(status)[0], LIMIT, lambda: status)
            stored, virus = (batches.all_jobs(session, bid)[0] for bid in (new, refused))
            release.arkline(settings, "resume", virus, "--from", NEW)

        shown = (stored, virus, before.jid, after.jid, failed.jid, reviewed.jid)
        told = histories(release, settings, *shown)
        audited = json.loads(release.arkline(settings, "audit", "--json", code=1))

    assert audited["findings"] == []  # the planted job after the step is in neither store
    assert {finding["jid"] for finding in audited["stores"]} == {after.jid}

    path = [state for state, _ in told[stored]]
    assert path[path.index(NEW) - 1 : path.index(NEW) + 2] == ["downloading", NEW, "processing"]
    assert ("processing", "files without a virus: 1") in told[stored]
    assert ("failed", "'virus.txt' has a virus: remove the file, then submit again") in told[virus]
    assert [state for state, _ in told[before.jid]].count(NEW) == 1
    assert NEW not in [state for state, _ in told[after.jid]]
    resumed = [state for state, _ in told[failed.jid]]
    approved = [state for state, _ in told[reviewed.jid]]
    assert approved[approved.index("review") :][:4] == ["review", NEW, "provisioning", "downloading"]
    again = resumed[resumed.index("failed") :]  # nothing was on the disk
    assert again[:5] == ["failed", NEW, "provisioning", "downloading", NEW]
