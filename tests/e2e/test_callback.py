"""Callbacks report completed and failed jobs to the depositor's system, as the batch's profile asks."""

import hashlib
import hmac
import json
import threading
from pathlib import Path

import pytest

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, FailureKind, JobState
from tests.e2e.collection import submit
from tests.e2e.test_pipeline import rows
from tests.servers.http_source import HttpSource
from tests.servers.receiver import CallbackRequest, Receiver
from tests.support.fleet import Fleet, batch_ended, quiet, wait_for
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.record import batches, jobs

SECRET = "known to both of us"

CALLS_IN_A_TRY = 3


@pytest.fixture
def settings(settings: Settings, receiver: Receiver, tmp_path: Path) -> Settings:
    """A collection with a callback and a secret."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "demo.yaml").write_text(
        f"owner: ark:/99999/fk4o\ncollections: ark:/99999/fk4c\ncallback_url: {receiver.url()}\n"
    )
    (folder / "demo.secret").write_text(SECRET)
    return settings.model_copy(update={"profiles": folder})


def reported_status(request: CallbackRequest) -> tuple[str, str]:
    signed = hmac.digest(SECRET.encode(), request.raw, hashlib.sha256).hex()
    assert request.headers["Arkline-Signature"] == f"sha256={signed}"
    state = json.loads(request.raw)["job:jobState"]
    return state["job:jobStatus"], state.get("job:jobStatusMessage", "")


def test_completed_and_failed_jobs_are_called_back_however_long_the_receiver_fails(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, receiver: Receiver
) -> None:
    fleet.worker()
    fleet.beat()
    good = submit(session, settings, source.put("/good.txt", b"good"), SubmissionType.FILE)
    assert batch_ended(session, good).status.status is BatchState.COMPLETED
    quiet(session)
    receiver.answers += [(500, {})] * (CALLS_IN_A_TRY + 1)

    bad = submit(session, settings, source.url("/missing.txt"), SubmissionType.FILE)
    assert batch_ended(session, bad).status.status is BatchState.FAILED

    completed, *failed = receiver.wait_for_requests(1 + CALLS_IN_A_TRY + 2)
    assert reported_status(completed) == ("COMPLETED", "")
    assert len({request.headers["Arkline-Delivery"] for request in failed}) == 1
    for request in failed:
        status, message = reported_status(request)
        assert status == "FAILED"
        assert "404" in message
    (jid,) = batches.all_jobs(session, bad)
    job = jobs.load(session, jid)
    assert (job.status.status, job.status.kind) == (JobState.FAILED, FailureKind.CONTENT)
    owed = paths.owed_callback(jid, job.status.epoch)
    wait_for(session, owed, lambda: session.exists(owed) is None, 20, lambda: "a callback is owed")
    noted = jobs.load(session, jid).history[-1]
    assert (noted.state, noted.event, noted.message) == (
        JobState.FAILED,
        None,
        "failure callback delivered to 127.0.0.1",
    )


def test_a_running_batch_keeps_the_profile_that_it_started_with(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, receiver: Receiver
) -> None:
    let_go = threading.Event()
    profile = settings.profiles / "demo.yaml"
    profile.write_text(f"{profile.read_text()[:-1]}?token=first\n")
    fleet.worker()
    before = submit(session, settings, source.put("/a.txt", b"abc", hold=let_go), SubmissionType.FILE)
    source.await_request("/a.txt")

    # the secret is not of the record: that of today is used
    changed = profile.read_text().replace("fk4o", "fk4changed").replace("first", "second")
    profile.write_text(changed)
    let_go.set()
    after = submit(session, settings, source.put("/b.txt", b"abc"), SubmissionType.FILE)
    for bid in (before, after):
        assert batch_ended(session, bid).status.status is BatchState.COMPLETED

    owners = rows(
        settings,
        "select i.batch_id, w.ark from inv_ingests i join inv_objects o on o.id = i.inv_object_id "
        "join inv_owners w on w.id = o.inv_owner_id",
    )
    assert sorted(owners) == [(before, "ark:/99999/fk4o"), (after, "ark:/99999/fk4changed")]
    assert {request.path for request in receiver.wait_for_requests(2)} == {"/callback?token=second"}
    assert b"first" not in session.get(paths.profile_snapshot(before))[0]
