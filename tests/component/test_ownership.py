"""Which ARKs a depositor may name, and which objects a collection may change."""

import pytest
from sqlalchemy import update

from pipeline.inventory.tables import objects
from pipeline.outcome import StepFailed
from pipeline.records import Job, SubmissionMode
from pipeline.states import FailureKind
from pipeline.steps import process
from tests.support.records import jid
from tests.support.repository import OWNER, Repository

RIVAL = "ark:/99999/rival"


def profile(repository: Repository, name: str, owner: str, collection: str, **fields: str) -> None:
    lines = {"owner": owner, "collections": collection, **fields}
    text = "".join(f"{field}: {value}\n" for field, value in lines.items())
    (repository.settings.profiles / f"{name}.yaml").write_text(text)


def refusal(repository: Repository, job: Job, profile: str) -> str:
    with pytest.raises(StepFailed) as failed:
        process.work(job, repository.services(profile=profile))
    assert failed.value.kind is FailureKind.CONTENT
    return failed.value.message


def test_a_collection_names_new_objects_below_its_shoulder(repository: Repository) -> None:
    profile(repository, "maps", OWNER, "ark:/99999/maps", shoulder="m7")

    job = repository.job(1, primary_id="ark:/99999/m7-given")

    process.work(job, repository.services(profile="maps"))

    assert repository.jobs_of("ark:/99999/m7given") == [job.jid]


def test_a_name_outside_of_the_collections_prefixes_is_refused_with_the_prefixes(
    repository: Repository,
) -> None:
    profile(repository, "maps", OWNER, "ark:/99999/maps", shoulder="m7", given_arks="ark:/12345/x9")

    told = refusal(repository, repository.job(1, primary_id="ark:/99999/fk4next"), "maps")

    assert "ark:/99999/m7 or ark:/12345/x9" in told
    assert repository.jobs_of("ark:/99999/fk4next") == []


def test_a_rival_cannot_occupy_the_names_that_another_collection_mints_next(repository: Repository) -> None:
    profile(repository, "rival", RIVAL, "ark:/99999/rivals", shoulder="r1")
    minted = repository.work(repository.job(1))
    following = refusal(repository, repository.job(2, primary_id=minted.ark + "x"), "rival")

    assert "ark:/99999/r1" in following


def test_an_object_of_another_owner_is_refused_without_the_owners_name(repository: Repository) -> None:
    profile(repository, "rival", RIVAL, "ark:/99999/rivals")
    victim = repository.recorded(repository.job(1))

    told = refusal(repository, repository.job(2, primary_id=victim.ark), "rival")

    assert "belongs to another owner" in told
    assert OWNER not in told


@pytest.mark.parametrize("mode", list(SubmissionMode))
def test_another_collection_of_the_owner_changes_no_object_by_its_local_id(
    repository: Repository, mode: SubmissionMode
) -> None:
    profile(repository, "maps", OWNER, "ark:/99999/maps")
    victim = repository.recorded(repository.job(1, local_id=("loc-1",)))

    told = refusal(repository, repository.job(2, local_id=("loc-1",), submission_mode=mode), "maps")

    assert f"{victim.ark} is not in collection maps" in told
    assert repository.jobs_of(victim.ark) == [jid(1)]


def test_a_profile_with_a_collection_of_the_object_may_change_the_object(repository: Repository) -> None:
    profile(repository, "both", OWNER, "[ark:/99999/maps, ark:/99999/collection]")
    first = repository.recorded(repository.job(1, local_id=("loc-1",)))

    second = repository.job(2, local_id=("loc-1",))
    process.work(second, repository.services(profile="both"))

    assert repository.jobs_of(first.ark) == [jid(1), second.jid]


def test_an_object_that_was_entered_with_hyphens_is_found_by_that_name(repository: Repository) -> None:
    """Releases before 0.2.1 kept the hyphens."""
    older = repository.recorded(repository.job(1))
    hyphens = older.ark[:-2] + "-" + older.ark[-2:]
    rename = update(objects).values(ark=hyphens)
    repository.inventory.database.write(lambda connection: connection.execute(rename))

    job = repository.job(2, primary_id=hyphens)
    services = repository.services()
    process.identify(job, services.profile, services, ())

    assert repository.identifiers(job).primary_id == hyphens
