"""What a page spells beside a button does what the button does, once its words in capitals are replaced."""

import json
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import requests

from operations.board.values import EVERYTHING
from pipeline.principal import Role
from pipeline.records import SubmissionType
from pipeline.states import Event, FailureKind, JobState
from tests.support import planting
from tests.support.boards import until
from tests.support.requirements import unavailable
from tests.support.web import OWN_FORM, Caller, Web
from zkstate.connection.session import Session
from zkstate.record import batches, jobs

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session(web: Web) -> Session:
    return web.context.session


def spelled(caller: Caller, path: str, **fields: str) -> list[str]:
    """The commands and requests that the page shows, or the one that follows its form."""
    browser = requests.Session()
    browser.post(
        f"{caller.url}/login", data={"token": caller.token, "next": "/"}, headers=OWN_FORM, timeout=30
    )
    address = f"{caller.url}{path}"
    answer = (
        browser.post(address, data=fields, headers=OWN_FORM, timeout=30)
        if fields
        else browser.get(address, timeout=30)
    )
    assert answer.status_code == 200, answer.text
    return [unescape(line) for line in re.findall(r"<pre>(.*?)</pre>", answer.text)]


def run(caller: Caller, line: str, folder: Path) -> Any:
    if shutil.which("curl") is None:
        unavailable("curl is not installed: apt-get install curl")
    site = {"ARKLINE_URL": caller.url, "ARKLINE_TOKEN": caller.token}
    words = ["bash", "-c", line]
    environment = {**os.environ, **site}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_the_form_of_a_deposit_spells_an_upload_and_a_deposit(
    web: Web, session: Session, tmp_path: Path
) -> None:
    dora = web.caller(Role.DEPOSITOR, ["demo"], name="dora")
    (tmp_path / "photo.txt").write_bytes(b"bytes")
    command, upload, deposit = (line.replace("FILE", "photo.txt") for line in spelled(dora, "/deposits/new"))
    assert command == "arkline submit photo.txt --profile demo --what TITLE"

    identifier = run(dora, upload, tmp_path)["id"]
    bid = run(dora, deposit.replace("ID", identifier), tmp_path)["bid"]

    assert batches.load(session, bid).submission.payload_filename == "photo.txt"


def test_a_preview_for_one_cause_spells_the_dry_run_and_the_verb(
    web: Web, session: Session, tmp_path: Path
) -> None:
    board = web.context.board
    jid = planting.job_in(session, JobState.FAILED).jid
    until(board, lambda: any(group.example == jid for group in board.failures(EVERYTHING)))
    (cause,) = [group.id for group in board.failures(EVERYTHING) if group.example == jid]
    olga = web.caller(Role.OPERATOR, name="olga")
    command, dry_run, verb = spelled(olga, f"/bulk?cause={cause}&verb=resume")[:3]
    assert command == f"arkline resume --cause {cause}"
    assert spelled(olga, f"/failures/{cause}")[:2] == [f"{command} --dry-run", dry_run]

    token = run(olga, dry_run, tmp_path)["token"]
    receipt = run(olga, verb.replace('"TOKEN"', f'"{token}"'), tmp_path)

    assert [one["id"] for one in receipt["done"]] == [jid]
    assert jobs.load(session, jid).history[-1].message.endswith("WHY")


def test_a_deposit_that_is_corrected_spells_a_deposit_and_then_the_deposit_of_what_the_preview_shows(
    web: Web, session: Session, tmp_path: Path
) -> None:
    dora = web.caller(Role.DEPOSITOR, ["demo"], name="dore")
    job = planting.owned_job(session, "token:dore")
    planting.apply_event(session, job, Event.FAIL, FailureKind.CONTENT)
    page = f"/batches/{job.bid}/again"
    assert spelled(dora, page)[0] == "arkline submit FILE --profile demo --what TITLE"

    command, deposit = spelled(dora, page, **{f"changed-{job.jid}": "1"})
    by_command = f"{Path(sys.executable).parent}/{command} --json"

    for bid in [run(dora, line, tmp_path)["bid"] for line in (deposit, by_command)]:
        given = batches.load(session, bid).submission
        assert (given.owner, given.type) == ("token:dore", SubmissionType.SINGLE_FILE_BATCH_MANIFEST)


def test_the_two_requests_of_the_readme_deposit_a_file_with_nothing_but_a_token(
    web: Web, session: Session, tmp_path: Path
) -> None:
    scripts = re.findall(r"```sh\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    (both,) = [script for script in scripts if "/v1/uploads" in script]
    upload, deposit = both.split("\ncurl ", 1)
    (tmp_path / "photo.tif").write_bytes(b"bytes")
    dora = web.caller(Role.DEPOSITOR, ["demo"], name="dorb")

    identifier = run(dora, upload, tmp_path)["id"]
    bid = run(dora, "curl " + deposit.replace("upload:ID", f"upload:{identifier}"), tmp_path)["bid"]

    given = batches.load(session, bid).submission
    assert (given.owner, given.payload_filename) == ("token:dorb", "photo.tif")
