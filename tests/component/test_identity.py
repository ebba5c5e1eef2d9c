import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pipeline.fixity import StoredVersion
from pipeline.identifiers.minter import Minter
from pipeline.inventory.tables import minted_arks
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profiles
from pipeline.records import Identifiers, Job, SubmissionMode
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
    job = repository.job(2, primary_id=recording().version.ark)

    refused(repository, job, FailureKind.CONTENT, "belongs to another owner")


@pytest.mark.parametrize("character", ["\0", "\n", "\x1b"])
def test_nothing_is_minted_for_a_local_id_with_a_control_character(
    repository: Repository, character: str
) -> None:
    job = repository.job(1, local_id=(f"MUE{character}003",))

    says = rf"'MUE\\u{ord(character):04x}003' has the control character U\+{ord(character):04X} in it"
    refused(repository, job, FailureKind.CONTENT, says)
    assert repository.identifiers(job).primary_id is None


def test_nothing_is_minted_for_a_local_id_that_is_too_long(repository: Repository) -> None:
    job = repository.job(1, local_id=("x" * 256,))

    refused(repository, job, FailureKind.CONTENT, "has 256 characters; 1 to 255 are allowed")
    assert not repository.job_record.counters


def test_what_is_no_ark_is_refused(repository: Repository) -> None:
    refused(repository, repository.job(1, primary_id="doi:10.5072/x"), FailureKind.CONTENT, "is not an ARK")


def test_a_counter_that_was_set_back_gives_no_ark_again(repository: Repository) -> None:
    given = [repository.work(repository.job(number)).ark for number in range(1, 9)]
    repository.job_record.counters.clear()

    ark = repository.work(repository.job(9)).ark

    assert ark not in given
    assert repository.jobs_of(ark) == [jid(9)]
    assert repository.job_record.counters.total() == 9


def test_an_ark_that_storage_alone_knows_is_not_given_again(repository: Repository) -> None:
    """The inventory was lost together with the counter: the next name that storage does not have is taken."""
    given = [repository.work(repository.job(number)).ark for number in range(1, 4)]
    repository.job_record.counters.clear()
    repository.lose_inventory()

    stored = repository.work(repository.job(4))

    assert stored.ark not in given
    assert [repository.jobs_of(ark) for ark in given] == [[jid(1)], [jid(2)], [jid(3)]]


@pytest.mark.parametrize("local_id", [(), ("shelf 1",)])
def test_an_ark_that_the_inventory_alone_knows_is_not_given_again(
    repository: Repository, local_id: tuple[str, ...]
) -> None:
    """The record was restored, and earlier releases entered no minted ARKs."""
    job = repository.job(1, local_id=local_id)
    given = repository.work(job).ark if local_id else repository.recorded(job).ark
    repository.inventory.database.write(lambda connection: connection.execute(minted_arks.delete()))
    repository.job_record.counters.clear()
    shutil.rmtree(repository.ocfl.root.object(given))

    stored = repository.work(repository.job(2))

    assert stored.ark != given
    assert (stored.number, repository.jobs_of(stored.ark)) == (1, [jid(2)])


@pytest.mark.parametrize("recorded", [True, False])
def test_a_job_whose_record_forgot_its_ark_keeps_the_ark(repository: Repository, *, recorded: bool) -> None:
    """The record was restored to a moment before the job was processed."""
    job = repository.job(1, key="a" * 32)
    first = repository.recorded(job) if recorded else repository.work(job)
    repository.job_record.forget(job)

    again = repository.work(job)

    assert (again.ark, again.number) == (first.ark, 1)
    assert repository.jobs_of(first.ark) == [jid(1)]


@pytest.mark.parametrize("ark", [None, "ark:/99999/given"])
def test_a_number_that_another_job_had_is_refused_before_anything_is_stored(
    repository: Repository, ark: str | None
) -> None:
    first = repository.recorded(repository.job(1, key="a" * 32, primary_id=ark))

    refused(repository, repository.job(1, key="b" * 32, primary_id=ark), FailureKind.SYSTEM, "another job")
    assert repository.jobs_of(first.ark) == [jid(1)]
    assert repository.job_record.counters.total() == (ark is None)


def test_storage_refuses_a_number_that_another_job_had(repository: Repository) -> None:
    ark = "ark:/99999/given"
    repository.work(repository.job(1, key="a" * 32, primary_id=ark))
    repository.lose_inventory()

    refused(repository, repository.job(1, key="b" * 32, primary_id=ark), FailureKind.SYSTEM, "another job")
    assert repository.jobs_of(ark) == [jid(1)]


def test_jobs_of_earlier_releases_are_known_by_batch_and_payload(repository: Repository) -> None:
    first = repository.recorded(repository.job(1))

    assert repository.work(repository.job(1)).number == first.number
    other = repository.job(1, payload_name="other.txt")
    refused(repository, other, FailureKind.SYSTEM, "another job")


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


def no_version(repository: Repository, number: int, **facts: Any) -> Job:
    """A job whose depositor has not allowed a new version."""
    return repository.job(number, new_version=False, **facts)


def test_a_job_that_may_not_add_a_version_is_refused_and_names_the_object(repository: Repository) -> None:
    first = repository.recorded(repository.job(1, local_id=("loc-1",), erc_what="Harbour"))
    job = no_version(repository, 2, local_id=("loc-1", "loc-2"))

    refused(repository, job, FailureKind.CONTENT, f"{first.ark}, 'Harbour', is in collection demo already")
    assert repository.jobs_of(first.ark) == [jid(1)]
    assert repository.inventory.arks_of(OWNER, ("loc-2",)) == {}, "the new id is bound to no object"
    assert repository.identifiers(job).primary_id is None


@pytest.mark.parametrize("known_by", [{"primary_id": "ark:99999/gi-ven"}, {"local_id": ("loc-1",)}])
def test_every_identifier_of_an_object_needs_the_yes(
    repository: Repository, known_by: dict[str, Any]
) -> None:
    repository.work(repository.job(1, primary_id="ark:/99999/given", local_id=("loc-1",)))

    refused(
        repository, no_version(repository, 2, **known_by), FailureKind.CONTENT, "ark:/99999/given was stored"
    )
    assert repository.jobs_of("ark:/99999/given") == [jid(1)]


def test_an_id_in_the_depositors_own_erc_needs_the_yes(repository: Repository) -> None:
    repository.work(repository.job(1, local_id=("loc-1",)))
    job = no_version(repository, 2, files={"mrt-erc.txt": "erc:\nwho: Own\nwhere: loc-1\n"})

    refused(repository, job, FailureKind.CONTENT, "next version")
    refused(repository, job, FailureKind.CONTENT, "of its own in place of the local id 'loc-1'")


def test_a_given_ark_and_not_a_local_id_is_what_names_the_object(repository: Repository) -> None:
    ark = repository.work(repository.job(1, primary_id="ark:/99999/given", local_id=("loc-1",))).ark
    job = no_version(repository, 2, primary_id=ark, local_id=("loc-1",))

    refused(repository, job, FailureKind.CONTENT, "give this object an identifier of its own$")


def test_a_consent_is_to_one_version_of_one_object(repository: Repository) -> None:
    ark = repository.work(repository.job(1, local_id=("loc-1",))).ark
    repository.job_record.agreed[ark] = 1
    agreed = no_version(repository, 2, local_id=("loc-1",))

    assert repository.work(agreed).number == 2
    assert repository.work(agreed).number == 2, "an attempt that is repeated meets its own version"
    refused(
        repository,
        no_version(repository, 3, local_id=("loc-1",)),
        FailureKind.CONTENT,
        f"you agreed that this deposit becomes version 2 of {ark}, whose current version is 2 now",
    )


@pytest.mark.parametrize("mode", [SubmissionMode.UPDATE, SubmissionMode.RESET])
def test_to_update_or_to_reset_is_a_yes(repository: Repository, mode: SubmissionMode) -> None:
    repository.work(repository.job(1, local_id=("loc-1",)))

    assert repository.work(no_version(repository, 2, local_id=("loc-1",), submission_mode=mode)).number == 2


def test_the_profile_may_allow_new_versions(repository: Repository) -> None:
    repository.work(repository.job(1, local_id=("loc-1",)))
    with (repository.settings.profiles / "demo.yaml").open("a") as file:
        file.write("new_versions: true\n")

    assert repository.work(no_version(repository, 2, local_id=("loc-1",))).number == 2


def test_a_version_that_the_job_stored_itself_is_none_that_it_would_add(repository: Repository) -> None:
    job = no_version(repository, 1, local_id=("loc-1",))
    first = repository.recorded(job)
    repository.recorded(repository.job(2, local_id=("loc-1",)))

    again = repository.work(job)

    assert (again.ark, again.number) == (first.ark, 1)


@pytest.mark.parametrize("known_by", [{"primary_id": "ark:/99999/given"}, {"local_id": ("loc-1",)}])
def test_of_two_jobs_in_flight_with_one_new_identifier_one_makes_the_object(
    repository: Repository, known_by: dict[str, Any]
) -> None:
    jobs = [no_version(repository, number, **known_by) for number in range(1, 5)]
    ready = threading.Barrier(len(jobs))

    def work(job: Job) -> StoredVersion | StepFailed:
        ready.wait()
        try:
            return repository.work(job)
        except StepFailed as failure:
            return failure

    with ThreadPoolExecutor(len(jobs)) as threads:
        ended = list(threads.map(work, jobs))

    (stored,) = [one for one in ended if isinstance(one, StoredVersion)]
    failures = [one for one in ended if isinstance(one, StepFailed)]
    assert len(repository.jobs_of(stored.ark)) == 1
    assert {failure.kind for failure in failures} == {FailureKind.CONTENT}
    assert all(stored.ark in failure.message for failure in failures)


def test_a_job_overtaken_between_its_ark_and_its_local_id_takes_the_other_ark(repository: Repository) -> None:
    job = repository.job(1, local_id=("loc-1",))
    ark = Minter().mint(job, Profiles(repository.settings.profiles).get("demo"), repository.job_record)
    repository.job_record.write_identifiers(
        job, Identifiers(primary_id=ark, local_id=("loc-1",), assigned=True)
    )
    other = repository.work(repository.job(2, local_id=("loc-1",)))

    stored = repository.work(job)

    assert (stored.ark, stored.number) == (other.ark, 2)
    assert other.ark != ark
    assert repository.identifiers(job).primary_id == other.ark
