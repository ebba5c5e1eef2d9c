"""What the operator is told of EZID when it cannot even be asked, or refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.identifiers.ezid import EzidMinter
from pipeline.outcome import ServiceDown, StepFailed
from pipeline.profiles.profile import Profile
from pipeline.states import FailureKind, JobState
from tests.servers.ezid import PASSWORD, USER, Ezid, Fault, ezid
from tests.servers.http_source import HttpSource
from tests.support.memory_record import MemoryJobRecord
from tests.support.records import a_job
from tests.support.repository import OWNER
from tests.support.step_context import local_settings

PROFILE = Profile(name="demo", owner=OWNER, collections=("ark:/99999/collection",))


@pytest.mark.parametrize(
    ("scheme", "says"),
    [
        ("https://", "or does not speak TLS: check ARKLINE_EZID_URL"),
        ("", "cannot be contacted (InvalidSchema): check ARKLINE_EZID_URL"),
    ],
)
def test_an_ezid_that_cannot_be_asked_is_the_operators_to_mend(
    scheme: str, says: str, source: HttpSource, tmp_path: Path
) -> None:
    settings = local_settings(tmp_path, ezid_url=source.url("").replace("http://", scheme))
    with pytest.raises(ServiceDown) as failed:
        EzidMinter(settings).mint(a_job(1, JobState.PROCESSING, primary_id=None), PROFILE, MemoryJobRecord())

    assert says in failed.value.message


def refused_by(service: Ezid, faults: list[Fault], ask: Callable[[], object]) -> str:
    service.faults = faults
    with pytest.raises(StepFailed) as failed:
        ask()
    assert failed.value.kind is FailureKind.SYSTEM
    return failed.value.message


def test_what_ezid_refuses_after_the_first_request_is_told_too(tmp_path: Path) -> None:
    job_record = MemoryJobRecord()
    job = a_job(1, JobState.PROCESSING, primary_id=None)
    refusal = Fault(400, b"error: bad request - invalid metadata")
    with ezid() as service:
        settings = local_settings(tmp_path, ezid_url=service.url, ezid_user=USER, ezid_password=PASSWORD)
        minter = EzidMinter(settings, pause=0.01)
        ark = minter.mint(job, PROFILE, job_record)
        exists = Fault(400, b"error: bad request - identifier already exists")

        minted = refused_by(service, [exists, refusal], lambda: minter.mint(job, PROFILE, job_record))
        announced = refused_by(service, [Fault(), refusal], lambda: minter.announce(ark, PROFILE, ()))

    assert minted.endswith(f"refused {ark}: bad request - invalid metadata")
    assert announced == minted
