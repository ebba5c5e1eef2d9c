import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.files import StoredVersion
from pipeline.identifiers.minter import LocalMinter
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profiles
from pipeline.records import Identifiers, Job
from pipeline.states import FailureKind
from pipeline.steps import process
from tests.support.recordings import recording
from tests.support.records import jid
from tests.support.repository import OWNER, Repository


def refused(repository: Repository, job: Job, kind: FailureKind, says: str) -> None:
    with pytest.raises(StepFailed, match=says) as failed:
        process.work(job, repository.services())
    assert failed.value.kind is kind


def test_an_ark_that_was_given_is_used_in_its_one_spelling(repository: Repository) -> None:
    job = repository.job(1, primary_id="ark:99999/given")

    assert repository.work(job).ark == "ark:/99999/given"
    assert repository.identifiers(job).primary_id == "ark:/99999/given"
    assert not repository.job_record.counters


def test_a_known_local_id_makes_a_new_version_of_its_object(repository: Repository) -> None:
    first = repository.work(repository.job(1, local_id=("loc-1",)))
    job = repository.job(2, local_id=("loc-1", "loc-2"))

    stored = repository.work(job)

    assert (stored.ark, stored.number) == (first.ark, 2)
    assert repository.identifiers(job).local_id == ("loc-1", "loc-2")
    assert repository.inventory.arks_of(OWNER, ("loc-2",)) == {"loc-2": first.ark}


def test_local_ids_in_the_depositors_erc_count(repository: Repository) -> None:
    first = repository.work(repository.job(1, local_id=("loc-1",)))
    job = repository.job(
        2, {"mrt-erc.txt": "erc:\nwho: Own\nwhere: loc-1\nwhere: loc-9\n"}, local_id=("loc-5",)
    )

    assert repository.work(job).ark == first.ark
    assert repository.identifiers(job).local_id == ("loc-5", "loc-1", "loc-9")


def test_a_local_id_of_another_object_than_the_ark_given_is_refused(repository: Repository) -> None:
    first = repository.work(repository.job(1, local_id=("loc-1",)))
    job = repository.job(2, primary_id="ark:/99999/other", local_id=("loc-1",))

    refused(
        repository,
        job,
        FailureKind.CONTENT,
        rf"'loc-1' belongs to {first.ark}, but .* is "
        "ark:/99999/other",
    )
    assert repository.jobs_of("ark:/99999/other") == []


def test_local_ids_of_two_objects_are_refused(repository: Repository) -> None:
    repository.work(repository.job(1, local_id=("loc-1",), primary_id="ark:/99999/one"))
    repository.work(repository.job(2, local_id=("loc-2",), primary_id="ark:/99999/two"))
    job = repository.job(3, local_id=("loc-1", "loc-2"))

    refused(
        repository,
        job,
        FailureKind.CONTENT,
        "'loc-1' belongs to ark:/99999/one, 'loc-2' belongs to ark:/99999/two",
    )


def test_an_object_of_another_owner_is_refused(repository: Repository) -> None:
    repository.inventory.record(recording())
    job = repository.job(1, primary_id=recording().version.ark)

    refused(repository, job, FailureKind.CONTENT, f"belongs to owner {recording().owner}")


def test_what_is_no_ark_is_refused(repository: Repository) -> None:
    refused(repository, repository.job(1, primary_id="doi:10.5072/x"), FailureKind.CONTENT, "is not an ARK")


def test_an_ark_that_is_minted_again_does_not_reach_the_object_it_named(repository: Repository) -> None:
    ark = repository.work(repository.job(1)).ark
    repository.job_record.counters.clear()

    refused(repository, repository.job(2), FailureKind.SYSTEM, "counter of minted identifiers was reset")
    assert repository.jobs_of(ark) == [jid(1)]


def test_two_jobs_with_one_new_local_id_are_two_versions_of_one_object(repository: Repository) -> None:
    jobs = [repository.job(number, local_id=("loc-1", f"own-{number}")) for number in range(1, 7)]
    ready = threading.Barrier(len(jobs))

    def work(job: Job) -> StoredVersion:
        ready.wait()
        return repository.work(job)

    with ThreadPoolExecutor(len(jobs)) as threads:
        stored = list(threads.map(work, jobs))

    assert len({version.ark for version in stored}) == 1
    assert sorted(version.number for version in stored) == [1, 2, 3, 4, 5, 6]
    assert repository.job_record.counters.total() == 1


def test_a_job_overtaken_between_its_ark_and_its_local_id_takes_the_other_ark(repository: Repository) -> None:
    job = repository.job(1, local_id=("loc-1",))
    ark = LocalMinter().mint(job, Profiles(repository.settings.profiles).get("demo"), repository.job_record)
    repository.job_record.write_identifiers(
        job, Identifiers(primary_id=ark, local_id=("loc-1",), assigned=True)
    )
    other = repository.work(repository.job(2, local_id=("loc-1",)))

    stored = repository.work(job)

    assert (stored.ark, stored.number) == (other.ark, 2)
    assert other.ark != ark
    assert repository.identifiers(job).primary_id == other.ark
