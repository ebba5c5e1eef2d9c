from pathlib import Path
from typing import Any

import pytest

from pipeline.outcome import Done, Promised, Reservation, Wait
from pipeline.records import Job, PayloadType
from pipeline.settings import Settings
from pipeline.states import JobState
from pipeline.steps import provision
from tests.support.job_record import MemoryJobRecord
from tests.support.step_context import UNUSED, local_settings, services, working_job


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Working storage of 1000 bytes, of which 800 may be used."""
    return local_settings(tmp_path, working_capacity=1000, working_threshold=80)


def job_that_needs(settings: Settings, need: int) -> Job:
    job = working_job(settings, JobState.PROVISIONING, PayloadType.FILE, "http://example.org/a")
    return job.model_copy(update={"space_needed": need})


def provisioned(settings: Settings, need: int, promised: int = 0) -> Done | Wait:
    job_record = MemoryJobRecord()
    job_record.space = Promised(bytes=promised, version=7)
    return provision.work(job_that_needs(settings, need), services(settings, job_record, UNUSED))


def use(settings: Settings, count: int) -> None:
    folder = settings.working / "jid0000000002" / "producer"
    folder.mkdir(parents=True)
    (folder / "a").write_bytes(b"x" * count)


def test_a_job_that_fits_reserves_its_bytes_on_top_of_what_was_seen(settings: Settings) -> None:
    outcome = provisioned(settings, need=300, promised=500)

    assert isinstance(outcome, Done)
    assert outcome.reservation == Reservation(bytes=300, seen=Promised(bytes=500, version=7))


def test_a_job_that_does_not_fit_waits_with_the_numbers(settings: Settings) -> None:
    outcome = provisioned(settings, need=301, promised=500)

    assert isinstance(outcome, Wait)
    assert "needs 301 bytes" in outcome.reason
    assert "500 bytes reserved" in outcome.reason


def test_promised_bytes_that_have_arrived_are_counted_once(settings: Settings) -> None:
    use(settings, 400)

    assert isinstance(provisioned(settings, need=300, promised=500), Done)


def test_promised_bytes_that_have_not_arrived_are_counted(settings: Settings) -> None:
    use(settings, 400)

    assert isinstance(provisioned(settings, need=301, promised=500), Wait)


@pytest.mark.parametrize(("used", "outcome"), [(800, Done), (801, Wait)])
def test_a_job_of_unknown_size_waits_while_usage_is_over_the_threshold(
    settings: Settings, used: int, outcome: type[Any]
) -> None:
    use(settings, used)

    assert isinstance(provisioned(settings, need=0), outcome)


def test_a_job_that_can_never_fit_waits_and_says_what_to_do(settings: Settings) -> None:
    outcome = provisioned(settings, need=801)

    assert isinstance(outcome, Wait)
    assert "never fit" in outcome.reason


def test_the_file_system_decides_when_no_capacity_is_set(tmp_path: Path) -> None:
    assert isinstance(provisioned(local_settings(tmp_path, working_threshold=100), need=1), Done)
    assert isinstance(provisioned(local_settings(tmp_path), need=1 << 60), Wait)
