"""Completed and failed jobs are told to the depositor's system, signed; a failure stays what it is."""

import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, FailureKind, JobState
from tests.e2e.collection import submit
from tests.fleet import Fleet, batch_ended, quiet
from tests.http_source import HttpSource
from tests.receiver import Receiver, Told, receiving
from zkstate import batches, jobs
from zkstate.session import Session

pytestmark = [pytest.mark.e2e, pytest.mark.integration]

SECRET = "known to both of us"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


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


def status_told(told: Told) -> tuple[str, str]:
    signed = hmac.digest(SECRET.encode(), told.raw, hashlib.sha256).hex()
    assert told.headers["Arkline-Signature"] == f"sha256={signed}"
    state = json.loads(told.raw)["job:jobState"]
    return state["job:jobStatus"], state.get("job:jobStatusMessage", "")


def test_completed_and_failed_jobs_are_told_and_a_deaf_receiver_changes_no_failure(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, receiver: Receiver
) -> None:
    fleet.worker()
    good = submit(session, settings, source.put("/good.txt", b"good"), SubmissionType.FILE)
    assert batch_ended(session, good).status.status is BatchState.COMPLETED
    quiet(session)
    receiver.answers += [(500, {})] * 3

    bad = submit(session, settings, source.url("/missing.txt"), SubmissionType.FILE)
    assert batch_ended(session, bad).status.status is BatchState.FAILED

    completed, *failed = receiver.await_told(4)
    assert status_told(completed) == ("COMPLETED", "")
    assert len(failed) == 3
    for told in failed:
        status, message = status_told(told)
        assert status == "FAILED"
        assert "404" in message
    (jid,) = batches.all_jobs(session, bad)
    job = jobs.load(session, jid)
    assert (job.status.status, job.status.kind) == (JobState.FAILED, FailureKind.CONTENT)
    assert job.history[-1].state is JobState.FAILED
