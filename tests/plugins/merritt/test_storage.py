from pathlib import Path

import pytest

from pipeline.records import SubmissionMode
from pipeline.states import FailureKind
from tests.plugins.merritt.repository import ARK, HERE, MerrittRepository, refused
from tests.servers.http_source import HttpSource
from tests.servers.merritt import Fault, Held
from tests.support.records import BID, jid

ADD, UPDATE, RESET = SubmissionMode.ADD, SubmissionMode.UPDATE, SubmissionMode.RESET


@pytest.fixture
def repository(kept: MerrittRepository) -> MerrittRepository:
    return kept


def test_a_version_is_made_of_the_files_in_working_storage(repository: MerrittRepository) -> None:
    said = repository.process(repository.submitted(1, ADD, {"a name.txt": "a", "sub/ü|b": ""}))

    assert said == f"stored as version 1 of {ARK}, 10 new files"
    assert repository.producer(1) == {"a name.txt": b"a", "sub/ü|b": b""}
    assert (repository.service.changes[0].jid, repository.service.changes[0].action) == (jid(1), "add")
    assert repository.version(1).url == f"{repository.service.url}/manifest/7777/ark%3A%2F99999%2Fgiven"


def test_an_object_is_updated_and_reset(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "a", "b": "b"}))
    repository.process(repository.submitted(2, UPDATE, {"b": "new", "mrt-delete.txt": "a"}))
    repository.process(repository.submitted(3, UPDATE, {"c": "c"}))
    repository.process(repository.submitted(4, RESET, {"d": "d"}))

    assert [repository.producer(number) for number in (2, 3, 4)] == [
        {"b": b"new"},
        {"b": b"new", "c": b"c"},
        {"d": b"d"},
    ]
    assert "system/mrt-delete.txt" not in repository.service.objects[HERE][2]
    added = {file.path: file.added for file in repository.version(3).files}
    assert (added["producer/b"], added["producer/c"], added["system/mrt-ingest.txt"]) == (False, True, True)


def test_an_update_of_what_is_not_there_adds_it(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, UPDATE, {"a": "a"}))

    assert repository.service.changes[0].action == "add"


def test_the_profiles_node_is_where_the_object_goes(repository: MerrittRepository) -> None:
    with (repository.settings.profiles / "demo.yaml").open("a") as profile:
        profile.write("storage_node: 42\n")
    job = repository.submitted(1, ADD, {"a": "a"})

    repository.process(job)

    assert repository.producer(1, ("42", ARK)) == {"a": b"a"}
    assert repository.kept.version_of(ARK, job.jid, 42) is not None


def test_files_are_fetched_by_url_where_the_disk_is_not_shared(
    repository: MerrittRepository, tmp_path: Path
) -> None:
    with HttpSource(repository.settings.working) as web:
        repository.keep(repository.service, working_storage_url=web.url("/"))
        repository.process(repository.submitted(1, ADD, {"a name%.txt": "a"}))

        assert repository.producer(1) == {"a name%.txt": b"a"}
        assert web.count(f"/{BID}/{jid(1)}/producer/a%20name%25.txt") == 1


def test_a_large_manifest_is_fetched_too(repository: MerrittRepository) -> None:
    with HttpSource(repository.settings.working) as web:
        repository.keep(repository.service, working_storage_url=web.url(""))
        name = "x" * 200
        files = {f"{number:04d}{name}": "same" for number in range(2000)}

        repository.process(repository.submitted(1, ADD, files))

    assert repository.service.changes[0].form["url"] == web.url(f"/{BID}/{jid(1)}/storage.checkm")
    assert len(repository.producer(1)) == 2000


def test_what_the_service_refuses_is_told_in_its_words(repository: MerrittRepository) -> None:
    job = repository.submitted(1, ADD, {"a": "a"})
    (Path(job.configuration.working_dir) / "producer" / "a").write_text("b")

    refused(repository, job, FailureKind.SYSTEM, r"answered 400 \(fixity of producer/a differs\)")


def test_a_version_that_differs_from_the_request_is_a_failure(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "a"}))
    answer = b'{"ver:versionState": {"ver:identifier": 1, "ver:objectID": "ark:/99999/given"}}'
    repository.service.faults = [Fault(200, answer)]

    refused(
        repository,
        repository.submitted(2, ADD, {"b": "b"}),
        FailureKind.SYSTEM,
        "lists nothing for 'producer/b' in version 1",
    )


def test_a_name_that_the_service_would_change_is_refused(repository: MerrittRepository) -> None:
    job = repository.submitted(1, ADD, {"a%20b": "a"})

    refused(repository, job, FailureKind.CONTENT, "'producer/a%20b' contains '%20' or '%7c'")


def test_a_missing_object_or_file_is_neither_reset_nor_deleted(repository: MerrittRepository) -> None:
    refused(
        repository,
        repository.submitted(1, RESET, {"a": "a"}),
        FailureKind.CONTENT,
        "because it does not exist",
    )
    refused(
        repository,
        repository.submitted(2, UPDATE, {"a": "a", "mrt-delete.txt": "b"}),
        FailureKind.CONTENT,
        f"'producer/b' cannot be deleted: it is not in {ARK}",
    )


def test_the_last_file_of_an_object_is_not_deleted(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "a"}))

    refused(
        repository,
        repository.submitted(2, UPDATE, {"mrt-delete.txt": "a"}),
        FailureKind.CONTENT,
        "would have no file",
    )


def test_a_file_without_sha512_is_not_carried_over(repository: MerrittRepository) -> None:
    repository.service.objects[HERE] = [{"producer/old": Held(b"old", 1, "SHA-256")}]

    refused(
        repository,
        repository.submitted(1, UPDATE, {"a": "a"}),
        FailureKind.SYSTEM,
        "'producer/old' of ark:/99999/given has a sha256 digest, not sha512",
    )


def test_a_counter_that_was_set_back_gives_no_ark_again(repository: MerrittRepository) -> None:
    first, second = repository.job(1), repository.job(2)
    repository.process(first)
    repository.job_record.counters.clear()

    repository.process(second)

    assert repository.identifiers(first).primary_id != repository.identifiers(second).primary_id


def test_the_service_refuses_a_number_that_another_job_had(repository: MerrittRepository) -> None:
    ark = "ark:/99999/given"
    repository.process(repository.job(1, key="a" * 32, primary_id=ark))

    again = repository.job(1, key="b" * 32, primary_id=ark)
    refused(repository, again, FailureKind.SYSTEM, "another job")
