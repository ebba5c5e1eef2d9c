"""The Merritt storage service as a witness: what it hands over, and what it would refuse."""

import dataclasses
import hashlib
import json

import pytest
from typer.testing import CliRunner

from entrypoints.cli.main import app
from pipeline.errors import UsageRefused
from pipeline.fixity import ReadBackFile
from pipeline.outcome import StepFailed
from pipeline.preservation.rebuild import recording_of
from pipeline.records import SubmissionMode
from pipeline.states import FailureKind
from pipeline.steps import record
from tests.plugins.merritt.repository import ARK, HERE, MerrittRepository

ADD, UPDATE = SubmissionMode.ADD, SubmissionMode.UPDATE


@pytest.fixture
def repository(kept: MerrittRepository) -> MerrittRepository:
    return kept


def read_back(repository: MerrittRepository, *numbers: int) -> list[ReadBackFile]:
    url = f"{repository.service.url}/manifest/7777/ark%3A%2F99999%2Fgiven"
    found = repository.kept.read_back(ARK, url, numbers)
    return [each for each in found if each.path.startswith("producer/")]


def test_every_file_is_handed_over_and_judged_by_its_bytes(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "alpha", "b|c": ""}))
    repository.process(repository.submitted(2, UPDATE, {"d": "delta"}))
    repository.service.handed["producer/d"] = b"other"

    found = read_back(repository)

    assert [(each.number, each.path, each.size) for each in found] == [
        (1, "producer/a", 5),
        (1, "producer/b|c", 0),
        (2, "producer/a", 5),
        (2, "producer/b|c", 0),
        (2, "producer/d", 5),
    ]
    assert found[0].sha512 == hashlib.sha512(b"alpha").hexdigest()
    assert found[4].sha512 == hashlib.sha512(b"other").hexdigest()
    assert found[4].place == (f"{repository.service.url}/content/7777/ark%3A%2F99999%2Fgiven/2/producer%2Fd")
    assert {each.number for each in read_back(repository, 2)} == {2}


def test_bytes_that_versions_share_are_fetched_once(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "x" * 1000}))
    repository.process(repository.submitted(2, UPDATE, {"b": "y"}))
    seen: list[int] = []

    list(repository.kept.read_back(ARK, repository.version(2).url, (), seen.append))

    files = {file.sha512: file.size for number in (1, 2) for file in repository.version(number).files}
    assert sum(seen) == sum(files.values())


def test_a_file_that_the_service_lists_and_does_not_have_is_missing(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "alpha"}))
    repository.service.lost.add("producer/a")

    (found,) = read_back(repository)

    assert (found.sha512, found.size) == (None, None)
    assert "answered 404" in found.problem


def test_an_outage_does_not_prove_a_loss(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "alpha"}))
    repository.service.unread = 1000

    with pytest.raises(StepFailed) as failed:
        read_back(repository)
    assert failed.value.kind is FailureKind.TRANSIENT
    with pytest.raises(UsageRefused, match="use the storage settings of the workers"):
        list(repository.kept.read_back(ARK, "file:///ocfl/427/v1"))


def test_a_file_is_read_from_the_latest_or_another_version(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "old"}))
    repository.process(repository.submitted(2, ADD, {"a": "new"}))

    read = repository.kept.read
    assert (read(ARK, "producer/a"), read(ARK, "producer/a", 1)) == (b"new", b"old")
    assert (read(ARK, "producer/b"), read(ARK, "producer/a", 3)) == (None, None)
    assert read("ark:/99999/none", "producer/a") is None
    repository.service.handed["producer/a"] = b"bad"
    with pytest.raises(StepFailed, match="delivers a damaged 'producer/a'"):
        read(ARK, "producer/a")


def test_an_update_keeps_the_description_that_the_service_holds(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "a"}, erc_what="Husky", local_id=("loc-1",)))
    repository.process(repository.submitted(2, UPDATE, {"b": "b"}, erc_who="Tracy"))

    erc = repository.service.objects[HERE][1]["system/mrt-erc.txt"].data.decode()

    assert erc == f"erc:\nwho: Tracy\nwhat: Husky\nwhen: (:unas)\nwhere: {ARK}\nwhere: loc-1\n"


def test_an_invalid_request_is_not_sent_to_the_service(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "a"}))
    refused = repository.submitted(2, UPDATE, {"b": "b", "mrt-delete.txt": "gone"})

    with pytest.raises(StepFailed, match="'producer/gone' cannot be deleted: it is not in"):
        repository.process(refused)
    assert len(repository.service.changes) == 1


def test_custody_is_proved_through_the_service(repository: MerrittRepository) -> None:
    job = repository.submitted(1, ADD, {"a": "alpha"})
    repository.process(job)
    known = job.model_copy(update={"identifiers": repository.identifiers(job)})
    record.work(known, dataclasses.replace(repository.services(), storage=repository.kept))
    environment = {
        "ARKLINE_HOME": str(repository.settings.home),
        "ARKLINE_STORAGE_SERVICE_URL": repository.service.url,
        "ARKLINE_STORAGE_SERVICE_NODE": "7777",
    }

    sound = CliRunner().invoke(app, ["object", ARK, "--json"], env=environment)
    repository.service.handed["producer/a"] = b"other"
    broken = CliRunner().invoke(app, ["object", ARK], env=environment)

    assert (sound.exit_code, json.loads(sound.stdout)["custody"]["agrees"]) == (0, True)
    assert broken.exit_code == 4
    assert "producer/a of version 1: storage has 5 bytes" in broken.stdout
    assert f"restore {repository.service.url}/content/7777/" in broken.stdout


def test_the_versions_of_an_object_are_listed_with_their_digests(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "alpha"}))
    repository.process(repository.submitted(2, UPDATE, {"d": "delta"}))

    first, second = repository.kept.versions_of(ARK)

    assert (first.number, second.number) == (1, 2)
    assert first.digests["producer/a"] == hashlib.sha512(b"alpha").hexdigest()
    assert second.digests["producer/d"] == hashlib.sha512(b"delta").hexdigest()
    assert repository.kept.versions_of(ARK, second.url) == (first, second)
    assert repository.kept.versions_of("ark:/99999/none") == ()


def test_an_entry_is_made_again_from_what_the_service_has(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "alpha"}))

    entry = recording_of(repository.kept, ARK, "jid0000000001")

    assert (entry.version.ark, entry.version.number) == (ARK, 1)
    assert (entry.jid, entry.bid, entry.profile) == ("jid0000000001", "bid0000000001", "demo")
    assert "producer/a" in {file.path for file in entry.version.files}
