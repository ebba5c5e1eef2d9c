"""What a step sees when working storage goes away, or loses files, while the step is at work."""

import shutil
from pathlib import Path

import pytest

from pipeline.outcome import Service, ServiceDown, StepFailed
from pipeline.settings import Settings
from pipeline.states import FailureKind
from pipeline.working_storage import mount
from tests.support.memory_record import MemoryJobRecord
from tests.support.step_context import local_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return local_settings(tmp_path)


def read_a_file(folder: Path) -> None:
    (folder / "bid0000000001" / "jid0000000001" / "part").read_bytes()


def test_a_file_that_vanishes_because_nothing_is_mounted_is_an_outage(settings: Settings) -> None:
    settings.working.mkdir()

    with pytest.raises(ServiceDown, match="mount it") as down, mount.losses(settings):
        read_a_file(settings.working)

    assert down.value.service is Service.WORKING_STORAGE


def test_a_file_that_vanishes_from_working_storage_is_worth_another_try(settings: Settings) -> None:
    mount.mark(settings.working)

    with pytest.raises(StepFailed, match="part is gone") as failure, mount.losses(settings):
        read_a_file(settings.working)

    assert failure.value.kind is FailureKind.TRANSIENT


def test_a_file_that_is_missing_elsewhere_is_no_loss_of_working_storage(
    settings: Settings, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError), mount.losses(settings):
        read_a_file(tmp_path / "elsewhere")


class MarkedMeanwhile(MemoryJobRecord):
    """Another process marks working storage, and its job reserves a part, before each answer."""

    def __init__(self, folder: Path, *, noted: bool) -> None:
        super().__init__()
        self._folder = folder
        self._noted = noted

    def was_marked(self) -> bool:
        mount.mark(self._folder)
        self.reserved["jid0000000009"] = 1
        return self._noted


@pytest.mark.parametrize("noted", [True, False])
def test_working_storage_that_another_process_marks_at_the_same_moment_is_there(
    settings: Settings, noted: bool
) -> None:
    mount.require(settings, MarkedMeanwhile(settings.working, noted=noted))


class RemovedMeanwhile(dict[str, int]):
    """Reservations of jobs; each lookup also removes all batches, as another process may do."""

    def __init__(self, folder: Path) -> None:
        super().__init__({"jid0000000009": 1})
        self._folder = folder

    def __contains__(self, jid: object) -> bool:
        for batch in self._folder.glob("bid*"):
            shutil.rmtree(batch)
        return super().__contains__(jid)


def test_batches_whose_folders_go_while_they_are_listed_are_no_content_of_working_storage(
    settings: Settings,
) -> None:
    for number in (1, 2):
        (settings.working / f"bid000000000{number}" / f"jid000000000{number}").mkdir(parents=True)
    record = MemoryJobRecord()
    record.reserved = RemovedMeanwhile(settings.working)

    with pytest.raises(ServiceDown) as down:
        mount.require(settings, record)

    assert down.value.service is Service.WORKING_STORAGE
    assert "mount it" in str(down.value)
