from pathlib import Path
from typing import Any

import pytest

from pipeline.outcome import Done, Promised, Reservation, Service, ServiceDown, StepFailed, Wait
from pipeline.records import Job, PayloadType
from pipeline.settings import Settings
from pipeline.states import FailureKind, JobState
from pipeline.steps import provision
from pipeline.working_storage import mount
from tests.support.memory_record import MemoryJobRecord
from tests.support.step_context import UNUSED, local_settings, services, working_job


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Working storage of 1000 bytes, of which 800 may be used."""
    settings = local_settings(tmp_path, working_capacity=1000, working_threshold=80)
    mount.mark(settings.working)
    return settings


def job_that_needs(settings: Settings, need: int) -> Job:
    job = working_job(settings, JobState.PROVISIONING, PayloadType.FILE, "http://example.org/a")
    return job.model_copy(update={"space_needed": need})


def provisioned(
    settings: Settings,
    need: int,
    reserved: dict[str, int] | None = None,
    record: MemoryJobRecord | None = None,
) -> Done | Wait:
    job_record = record or MemoryJobRecord()
    job_record.reserved = reserved or {}
    job_record.space = Promised(bytes=sum(job_record.reserved.values()), version=7)
    return provision.work(job_that_needs(settings, need), services(settings, job_record, UNUSED))


def use(settings: Settings, count: int, jid: str = "jid0000000002") -> None:
    folder = settings.working / "bid0000000001" / jid / "producer"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a").write_bytes(b"x" * count)


OTHER = "jid0000000002"
THIRD = "jid0000000003"


def test_a_job_that_fits_reserves_its_bytes_on_top_of_what_was_seen(settings: Settings) -> None:
    outcome = provisioned(settings, need=300, reserved={OTHER: 500})

    assert isinstance(outcome, Done)
    assert outcome.reservation == Reservation(bytes=300, seen=Promised(bytes=500, version=7))


def test_a_job_that_does_not_fit_waits_with_the_numbers(settings: Settings) -> None:
    outcome = provisioned(settings, need=301, reserved={OTHER: 500})

    assert isinstance(outcome, Wait)
    assert "needs 301 bytes" in outcome.reason
    assert "500 bytes reserved" in outcome.reason


def test_promised_bytes_that_have_arrived_are_counted_once(settings: Settings) -> None:
    use(settings, 400)

    assert isinstance(provisioned(settings, need=300, reserved={OTHER: 500}), Done)


def test_promised_bytes_that_have_not_arrived_are_counted(settings: Settings) -> None:
    use(settings, 400)

    assert isinstance(provisioned(settings, need=301, reserved={OTHER: 500}), Wait)


def test_what_a_job_has_without_a_promise_does_not_use_up_the_promise_of_another(settings: Settings) -> None:
    use(settings, 400)

    outcome = provisioned(settings, need=1, reserved={OTHER: 0, THIRD: 400})

    assert isinstance(outcome, Wait)


def test_what_a_job_has_beyond_its_promise_does_not_use_up_the_promise_of_another(settings: Settings) -> None:
    use(settings, 400)

    outcome = provisioned(settings, need=101, reserved={OTHER: 100, THIRD: 300})

    assert isinstance(outcome, Wait)
    assert isinstance(provisioned(settings, need=100, reserved={OTHER: 100, THIRD: 300}), Done)


def test_what_a_job_has_on_the_disk_already_counts_as_its_own(settings: Settings) -> None:
    use(settings, 500, job_that_needs(settings, 0).jid)

    assert isinstance(provisioned(settings, need=800), Done)


@pytest.mark.parametrize(("used", "outcome"), [(800, Done), (801, Wait)])
def test_a_job_of_unknown_size_waits_while_usage_is_over_the_threshold(
    settings: Settings, used: int, outcome: type[Any]
) -> None:
    use(settings, used)

    assert isinstance(provisioned(settings, need=0), outcome)


def test_a_job_that_can_never_fit_fails_and_says_what_to_do(settings: Settings) -> None:
    with pytest.raises(StepFailed, match="it can never fit; an operator enlarges") as failure:
        provisioned(settings, need=801)

    assert failure.value.kind is FailureKind.SYSTEM


def test_the_file_system_decides_when_no_capacity_is_set(tmp_path: Path) -> None:
    assert isinstance(provisioned(local_settings(tmp_path, working_threshold=100), need=1), Done)
    with pytest.raises(StepFailed, match="never fit"):
        provisioned(local_settings(tmp_path), need=1 << 60)


@pytest.mark.parametrize(
    "reserved", [{}, {OTHER: 500, THIRD: 100}], ids=["no job has a part", "jobs have parts"]
)
def test_once_working_storage_was_marked_a_folder_without_the_mark_is_an_outage(
    tmp_path: Path, reserved: dict[str, int]
) -> None:
    settings = local_settings(tmp_path, working_capacity=1000, working_threshold=80)
    record = MemoryJobRecord()
    provisioned(settings, need=100, record=record)
    settings.working.rename(tmp_path / "elsewhere")
    # an attempt that was at work when the mount went away
    (settings.working / "bid0000000001" / THIRD).mkdir(parents=True)

    with pytest.raises(ServiceDown, match="mount it"):
        provisioned(settings, need=100, reserved=reserved, record=record)

    assert not mount.is_marked(settings.working)


def test_a_mark_that_a_process_did_not_note_is_noted_when_a_process_starts(settings: Settings) -> None:
    record = MemoryJobRecord()

    mount.note_mark(settings, record)

    assert record.was_marked()


def test_a_folder_without_a_mark_is_not_noted(tmp_path: Path) -> None:
    record = MemoryJobRecord()

    mount.note_mark(local_settings(tmp_path), record)

    assert not record.was_marked()


def test_a_missing_mount_is_an_outage_of_working_storage_and_nothing_is_written_there(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    settings.working.mkdir()

    with pytest.raises(ServiceDown, match="mount it") as down:
        provisioned(settings, need=1, reserved={OTHER: 0})

    assert down.value.service is Service.WORKING_STORAGE
    assert list(settings.working.iterdir()) == []


def test_a_missing_folder_is_not_made_while_jobs_have_content_in_it(
    tmp_path: Path,
) -> None:
    settings = local_settings(tmp_path)

    with pytest.raises(ServiceDown, match="mount it"):
        provisioned(settings, need=1, reserved={OTHER: 5})

    assert not settings.working.exists()


def test_working_storage_of_an_earlier_release_is_taken_as_it_is(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    use(settings, 100)

    assert isinstance(provisioned(settings, need=1, reserved={OTHER: 100}), Done)


def test_lost_working_storage_is_used_again_once_somebody_marks_it(tmp_path: Path) -> None:
    settings = local_settings(tmp_path)
    mount.mark(settings.working)

    assert isinstance(provisioned(settings, need=1, reserved={OTHER: 100}), Done)
