"""One object through adding, updating and resetting."""

import shutil

import pytest
from ocfl import StorageRoot

from pipeline.fixity import StoredVersion
from pipeline.outcome import DamagedObject, StepFailed
from pipeline.records import Job, PayloadType, SubmissionMode
from pipeline.states import FailureKind
from pipeline.steps import process
from pipeline.storage.ocfl.objects import object_path
from pipeline.working_storage.workspace import Workspace
from tests.support.repository import Repository

ADD, UPDATE, RESET = SubmissionMode.ADD, SubmissionMode.UPDATE, SubmissionMode.RESET


def submitted(repository: Repository, number: int, mode: SubmissionMode, files: dict[str, str]) -> Job:
    return repository.job(number, files, submission_mode=mode, local_id=("loc-1",))


def refused(repository: Repository, job: Job, says: str) -> None:
    with pytest.raises(StepFailed, match=says) as failed:
        process.work(job, repository.services())
    assert failed.value.kind is FailureKind.CONTENT


def producer(stored: StoredVersion) -> dict[str, bool]:
    """The depositor's files; True for those whose bytes came with this version."""
    return {
        file.path.removeprefix("producer/"): file.added
        for file in stored.files
        if file.path.startswith("producer/")
    }


def test_an_object_is_added_updated_reset_and_updated_again(repository: Repository) -> None:
    first = repository.work(submitted(repository, 1, ADD, {"a": "a", "b": "b", "c": "c"}))
    second = repository.work(submitted(repository, 2, UPDATE, {"c": "new", "mrt-delete.txt": "a\n"}))
    third = repository.work(submitted(repository, 3, RESET, {"a": "a", "d": "d"}))
    fourth = repository.work(submitted(repository, 4, UPDATE, {"e": "e"}))

    assert {version.ark for version in (first, second, third, fourth)} == {first.ark}
    assert [version.number for version in (first, second, third, fourth)] == [1, 2, 3, 4]
    assert producer(first) == {"a": True, "b": True, "c": True}
    assert producer(second) == {"b": False, "c": True}
    assert producer(third) == {"a": False, "d": True}
    assert producer(fourth) == {"a": False, "d": False, "e": True}
    assert repository.text(first, "producer/c") == "c"
    assert "reset by job jid0000000003" in repository.text(third, "system/mrt-premis.xml")
    root = StorageRoot(root=str(repository.settings.storage))
    assert root.validate()
    assert (root.errors, root.good_objects) == ([], 1)


def test_what_described_an_earlier_version_is_not_carried_into_the_next(repository: Repository) -> None:
    job = submitted(repository, 1, ADD, {"a": "a"})
    Workspace.of(job, repository.settings.working).manifest.write_text("#%checkm_0.7\n")
    repository.work(job)
    repository.work(submitted(repository, 2, UPDATE, {"b": "b", "mrt-delete.txt": "a"}))

    stored = repository.work(submitted(repository, 3, UPDATE, {"c": "c"}))

    names = {file.path for file in stored.files}
    assert names.isdisjoint({"system/mrt-submission-manifest.txt", "system/mrt-delete.txt"})
    assert producer(stored) == {"b": False, "c": True}


def test_a_container_may_bring_the_list_of_deletions(repository: Repository) -> None:
    repository.work(submitted(repository, 1, ADD, {"a": "a", "sub/b": "b"}))
    files = {"c": "c", "mrt-delete.txt": "sub/b\n"}
    job = repository.job(
        2, files, submission_mode=UPDATE, local_id=("loc-1",), payload_type=PayloadType.CONTAINER
    )

    assert producer(repository.work(job)) == {"a": False, "c": True}


def test_a_file_that_is_deleted_and_brought_is_the_one_brought(repository: Repository) -> None:
    repository.work(submitted(repository, 1, ADD, {"a": "a"}))

    stored = repository.work(submitted(repository, 2, UPDATE, {"a": "new", "mrt-delete.txt": "a"}))

    assert repository.text(stored, "producer/a") == "new"


def test_a_file_that_is_not_in_the_object_cannot_be_deleted(repository: Repository) -> None:
    ark = repository.work(submitted(repository, 1, ADD, {"a": "a"})).ark
    job = submitted(repository, 2, UPDATE, {"c": "c", "mrt-delete.txt": "gone"})

    refused(repository, job, f"'producer/gone' cannot be deleted: it is not in version 1 of {ark}")
    assert len(repository.jobs_of(ark)) == 1


def test_a_file_to_delete_whose_letters_are_composed_otherwise_is_told_as_one(repository: Repository) -> None:
    repository.work(submitted(repository, 1, ADD, {"U\u0308": "a"}))
    job = submitted(repository, 2, UPDATE, {"c": "c", "mrt-delete.txt": "\u00dc"})

    refused(repository, job, "it differs only in how a letter is composed .* from 'producer/U\u0308'")


def test_the_last_file_of_an_object_is_not_deleted(repository: Repository) -> None:
    ark = repository.work(submitted(repository, 1, ADD, {"a": "a"})).ark
    job = submitted(repository, 2, UPDATE, {"mrt-delete.txt": "a"})

    refused(repository, job, f"{ark} would have no files left: an object needs at least one")
    assert len(repository.jobs_of(ark)) == 1


def test_nothing_is_minted_for_a_reset_that_names_no_object(repository: Repository) -> None:
    job = repository.job(1, {"a": "a"}, submission_mode=RESET, local_id=())

    refused(repository, job, "the object to reset is not identified")
    assert not repository.job_record.counters


def test_a_reset_of_an_unknown_local_id_names_it(repository: Repository) -> None:
    job = repository.job(1, {"a": "a"}, submission_mode=RESET, local_id=("NOPE",))

    refused(repository, job, "no object of collection .* has the local id 'NOPE'")
    assert not repository.job_record.counters


def test_a_reset_of_an_ark_without_an_object_is_refused(repository: Repository) -> None:
    job = repository.job(1, {"a": "a"}, submission_mode=RESET, primary_id="ark:/99999/typo")

    refused(repository, job, "ark:/99999/typo cannot be reset, because it does not exist")
    assert repository.jobs_of("ark:/99999/typo") == []


def test_a_reset_that_is_done_again_after_a_crash_is_one_version(repository: Repository) -> None:
    repository.work(submitted(repository, 1, ADD, {"a": "a"}))
    job = submitted(repository, 2, RESET, {"b": "b"})

    assert repository.work(job) == repository.work(job)
    assert len(repository.jobs_of(repository.work(job).ark)) == 2


@pytest.mark.parametrize("mode", [ADD, UPDATE, RESET])
@pytest.mark.parametrize("left", [0, 1])
def test_no_version_follows_one_that_storage_has_lost(
    repository: Repository, mode: SubmissionMode, left: int
) -> None:
    """... as when a mount is away or an old copy was restored: the object would have two histories."""
    first = repository.recorded(submitted(repository, 1, ADD, {"a": "a"}))
    folder = repository.settings.storage / object_path(first.ark)
    shutil.copytree(folder, repository.settings.home / "copy")
    repository.recorded(submitted(repository, 2, UPDATE, {"b": "b"}))
    shutil.rmtree(folder)
    if left:
        shutil.copytree(repository.settings.home / "copy", folder)
    job = submitted(repository, 3, mode, {"c": "c"})

    says = f"storage has {left} of the 2 versions of {first.ark}"
    with pytest.raises(DamagedObject, match=says) as refusal:
        process.work(job, repository.services())

    assert refusal.value.kind is FailureKind.SYSTEM
    assert folder.exists() == bool(left)
    assert len(repository.services().storage.versions_of(first.ark)) == left
