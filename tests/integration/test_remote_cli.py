"""The command line over the API: the same answers as beside the stack, without ZooKeeper and Redis."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.principal import Role
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import JobState
from tests.support import cli
from tests.support.cli import Finished
from tests.support.planting import job_in
from tests.support.web import Caller, Web, serving
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.record import batches


@pytest.fixture
def web(settings: Settings) -> Iterator[Web]:
    with serving(settings) as running:
        yield running


def run(settings: Settings, caller: Caller, *arguments: str) -> Finished:
    return cli.run(settings, *arguments, ARKLINE_URL=f"{caller.url}/", ARKLINE_TOKEN=caller.token)


def test_a_depositor_uploads_a_folder_and_follows_the_batch(
    web: Web, session: Session, alone: Settings, tmp_path: Path
) -> None:
    ada = web.caller(Role.DEPOSITOR, ["demo"], name="ada")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a 1.jpg").write_bytes(b"light")

    submitted = run(alone, ada, "submit", str(tmp_path / "photos"), "--profile", "demo", "--json")
    assert submitted.code == 0, submitted.err
    bid = submitted.json()["bid"]
    status = run(alone, ada, "status", bid, "--json")
    refused = run(alone, ada, "pause", "--reason", "x")

    submission = batches.load(session, bid).submission
    assert (submission.owner, submission.type) == ("token:ada", SubmissionType.OBJECT_MANIFEST)
    assert status.json()["bid"] == bid
    assert (refused.code, "this needs the role operator" in refused.err) == (2, True)


def test_a_dry_run_of_local_files_is_judged_by_the_site(
    web: Web, alone: Settings, settings: Settings, tmp_path: Path
) -> None:
    ada = web.caller(Role.DEPOSITOR, ["demo"], name="ada-dry")
    (tmp_path / "a.jpg").write_bytes(b"light")
    asked = (
        "submit",
        str(tmp_path / "a.jpg"),
        "--profile",
        "demo",
        "--local-id",
        "box 1",
        "--dry-run",
        "--json",
    )

    here, there = cli.run(settings, *asked), run(alone, ada, *asked)
    unknown = run(alone, ada, *(word.replace("demo", "none") for word in asked))

    assert (there.code, there.json()) == (here.code, here.json())
    assert (there.json()["jobs"], there.json()["files"], there.json()["bytes"]) == (1, 1, 5)
    assert unknown.code == 2


def test_an_operator_reads_and_acts_with_the_same_result(
    web: Web, session: Session, settings: Settings, alone: Settings
) -> None:
    operator = web.caller(Role.OPERATOR, name="ola")
    failed = job_in(session, JobState.FAILED)

    for arguments in (("status", failed.jid), ("timeline", failed.jid), ("why", failed.jid)):
        here = cli.run(settings, *arguments, "--json")
        there = run(alone, operator, *arguments, "--json")
        # the sentence has an age, which passes between two commands
        facts_here, facts_there = here.json() | {"text": ""}, there.json() | {"text": ""}
        assert (there.code, facts_there) == (here.code, facts_here), arguments
    paused = run(alone, operator, "pause", "--reason", "inventory maintenance", "--json")
    resumed = run(alone, operator, "resume", failed.jid, "--reason", "repaired", "--json")

    assert paused.json()["changed"] is True
    pause = holds.paused(session)
    assert pause is not None
    assert (pause.by, pause.reason) == ("ola", "inventory maintenance")
    assert resumed.json()["done"][0]["id"] == failed.jid
    assert run(alone, operator, "resume", failed.jid).code != 0


def test_a_collection_whose_profile_is_gone_is_released(web: Web, alone: Settings, session: Session) -> None:
    holds.place(session, Hold(by="ann", reason="the agreement is renewed"), "gone")

    released = run(alone, web.caller(Role.OPERATOR, name="ola"), "release", "--collection", "gone")

    assert (released.code, holds.collection_hold(session, "gone")) == (0, None)


def test_a_reason_that_the_site_requires_is_named_with_its_option(
    web: Web, session: Session, alone: Settings
) -> None:
    done = run(alone, web.caller(Role.OPERATOR, name="ola"), "fail", job_in(session, JobState.PENDING).jid)

    assert (done.code, "add --reason WHY" in done.err) == (2, True)


def test_a_site_that_does_not_answer_and_half_a_setting_are_named(alone: Settings) -> None:
    away = cli.run(alone, "jobs", ARKLINE_URL="http://127.0.0.1:1", ARKLINE_TOKEN="x")
    half = cli.run(alone, "jobs", ARKLINE_URL="http://127.0.0.1:1")

    assert (away.code, "http://127.0.0.1:1 does not answer" in away.err) == (3, True)
    assert (half.code, "ARKLINE_URL is set without ARKLINE_TOKEN" in half.err) == (2, True)


SLOW = ("celery", "fastapi", "kombu", "opentelemetry", "redis", "requests", "sqlalchemy", "structlog")
"""Libraries that a command over the API has no use for."""

MODULES = 600
"""That a command loads at most: half of them took it twice as long to start."""

LOADED = (
    "import json, sys\n"
    "from entrypoints.cli.main import main\n"
    "try: main()\n"
    "except SystemExit: pass\n"
    "loaded = [name for name, module in sys.modules.items() if type(module) is type(sys)]\n"
    "print('loaded:', json.dumps(loaded))\n"
)


def test_a_command_over_the_api_loads_only_what_it_uses(
    web: Web, session: Session, alone: Settings, tmp_path: Path
) -> None:
    jid = job_in(session, JobState.FAILED).jid
    caller = web.caller(Role.OPERATOR, name="ola")
    site = {"ARKLINE_URL": caller.url, "ARKLINE_TOKEN": caller.token}
    submit = ("submit", "https://example.org/a.txt", "--profile", "demo")
    for command in (("status",), ("status", jid), ("why", jid), ("jobs",), submit):
        done = subprocess.run(
            [sys.executable, "-c", LOADED, *command],
            env=cli.variables(alone, **site),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        answer, _, loaded = done.stdout.rpartition("loaded: ")
        modules = json.loads(loaded)

        assert answer, done.stderr
        assert [name for name in modules if name in SLOW] == [], command
        assert len(modules) < MODULES, command


def test_tokens_are_created_listed_and_revoked_by_an_administrator_alone(web: Web, alone: Settings) -> None:
    admin, operator = web.caller(Role.ADMIN, name="ann"), web.caller(Role.OPERATOR, name="ola")
    some = web.caller(Role.ADMIN, ["demo"], name="some")
    create = ("token", "create", "scans", "--role", "depositor", "--collection", "demo", "--json")

    refused = [run(alone, caller, *create).code for caller in (operator, some)]
    made = run(alone, admin, *create)
    scans = Caller(web.url, made.json()["token"])
    accepted = scans.get("/v1").json()["caller"]
    listed = run(alone, admin, "token", "list", "--json").json()["tokens"]
    revoked = run(alone, admin, "token", "revoke", "scans", "--json").json()

    assert refused == [2, 2]
    assert (made.json()["created_by"], accepted["name"], accepted["role"]) == ("ann", "scans", "depositor")
    assert not any({"token", "hash"} & row.keys() for row in listed)
    assert "scans" in [row["name"] for row in listed]
    assert revoked["revoked_by"] == "ann"
    assert run(alone, admin, "token", "revoke", "nobody").code == 2
