import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.outcome import AttemptOver, StepFailed
from pipeline.records import Job, SubmissionMode
from pipeline.services.kit import open_kit
from pipeline.services.merritt_http import LOOK_AGAIN
from pipeline.services.merritt_storage import MerrittStorage
from pipeline.services.storage import StoredVersion
from pipeline.settings import Settings
from pipeline.states import FailureKind
from pipeline.steps import process
from tests.depot import memory
from tests.http_source import HttpSource
from tests.merritt_server import Fault, Held, Merritt, merritt
from tests.records import jid
from tests.repository import Repository, empty_inventory

ADD, UPDATE, RESET = SubmissionMode.ADD, SubmissionMode.UPDATE, SubmissionMode.RESET
ARK = "ark:/99999/given"
HERE = ("7777", ARK)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return empty_inventory(tmp_path_factory.mktemp("inventory"))


@pytest.fixture
def service() -> Iterator[Merritt]:
    with merritt() as running:
        yield running


class Kept(Repository):
    """A repository whose objects the storage service keeps; it shares the disk."""

    service: Merritt

    def keep(self, service: Merritt, **settings: Any) -> None:
        self.service = service
        given = {"storage_service_url": service.url, "storage_service_node": 7777, "read_timeout": 5}
        self.settings = self.settings.model_copy(update={**given, **settings})
        self.kept = MerrittStorage(self.settings, pause=0.01)

    def process(self, job: Job, alive: Callable[[], None] = lambda: None) -> str | None:
        return process.work(job, dataclasses.replace(self.services(alive), storage=self.kept)).message

    def submitted(self, number: int, mode: SubmissionMode, files: dict[str, str], **facts: Any) -> Job:
        return self.job(number, files, **{"primary_id": ARK, "submission_mode": mode, **facts})

    def version(self, number: int) -> StoredVersion:
        """The version that a job made."""
        found = self.kept.version_of(ARK, jid(number))
        assert found is not None
        return found

    def producer(self, version: int, where: tuple[str, str] = HERE) -> dict[str, bytes]:
        """The depositor's files of a version, as the service has them."""
        files = self.service.objects[where][version - 1]
        return {
            path.removeprefix("producer/"): held.data
            for path, held in files.items()
            if path.startswith("producer/")
        }


@pytest.fixture
def repository(tmp_path: Path, template: Path, service: Merritt) -> Iterator[Kept]:
    with memory(tmp_path) as home:
        made = Kept(home, template)
        made.keep(service)
        yield made
        made.close()


def refused(repository: Kept, job: Job, kind: FailureKind, says: str) -> StepFailed:
    with pytest.raises(StepFailed, match=says) as failed:
        repository.process(job)
    assert failed.value.kind is kind
    return failed.value


def test_a_version_is_made_of_the_files_in_working_storage(repository: Kept) -> None:
    said = repository.process(repository.submitted(1, ADD, {"a name.txt": "a", "sub/ü|b": ""}))

    assert said == f"stored as version 1 of {ARK}, 10 files new"
    assert repository.producer(1) == {"a name.txt": b"a", "sub/ü|b": b""}
    assert (repository.service.changes[0].jid, repository.service.changes[0].action) == (jid(1), "add")
    assert repository.version(1).url == f"{repository.service.url}/manifest/7777/ark%3A%2F99999%2Fgiven"


def test_an_object_is_updated_and_reset(repository: Kept) -> None:
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


def test_an_update_of_what_is_not_there_adds_it(repository: Kept) -> None:
    repository.process(repository.submitted(1, UPDATE, {"a": "a"}))

    assert repository.service.changes[0].action == "add"


def test_the_profiles_node_is_where_the_object_goes(repository: Kept) -> None:
    with (repository.settings.profiles / "demo.yaml").open("a") as profile:
        profile.write("storage_node: 42\n")
    job = repository.submitted(1, ADD, {"a": "a"})

    repository.process(job)

    assert repository.producer(1, ("42", ARK)) == {"a": b"a"}
    assert repository.kept.version_of(ARK, job.jid, 42) is not None


def test_files_are_fetched_by_url_where_the_disk_is_not_shared(repository: Kept, tmp_path: Path) -> None:
    with HttpSource(repository.settings.working) as web:
        repository.keep(repository.service, working_storage_url=web.url("/"))
        repository.process(repository.submitted(1, ADD, {"a name%.txt": "a"}))

        assert repository.producer(1) == {"a name%.txt": b"a"}
        assert web.count(f"/{jid(1)}/producer/a%20name%25.txt") == 1


def test_a_large_manifest_is_fetched_too(repository: Kept) -> None:
    with HttpSource(repository.settings.working) as web:
        repository.keep(repository.service, working_storage_url=web.url(""))
        name = "x" * 200
        files = {f"{number:04d}{name}": "same" for number in range(2000)}

        repository.process(repository.submitted(1, ADD, files))

    assert repository.service.changes[0].form["url"] == web.url(f"/{jid(1)}/storage.checkm")
    assert len(repository.producer(1)) == 2000


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(cut=True), "broke off; what it did is looked at by the next try"),
        (Fault(hold=True), "did not answer in time; what it did is looked at"),
        (Fault(500, b"<h1>Oops</h1>", done=True), "answered 500 .*what it did is looked at"),
        (Fault(200, b"{}", done=True), "is not the state of a version; what it did"),
        (Fault(200, b"<xml/>", done=True), "is not the state of a version; what it did"),
    ],
    ids=["cut", "slow", "500", "other JSON", "no JSON"],
)
def test_a_version_whose_answer_was_lost_is_found_and_not_made_again(
    repository: Kept, fault: Fault, says: str
) -> None:
    repository.keep(repository.service, storage_service_timeout=0.5)
    repository.service.faults = [fault]
    job = repository.submitted(1, ADD, {"a": "a"})
    assert refused(repository, job, FailureKind.TRANSIENT, says).retry_after == LOOK_AGAIN

    assert repository.process(job) == f"stored as version 1 of {ARK}, 9 files new"
    assert len(repository.service.changes) == len(repository.service.objects[HERE]) == 1


def test_a_service_that_is_busy_is_asked_again(repository: Kept) -> None:
    repository.service.faults = [Fault(503, b"busy")]
    repository.service.unread = 2

    repository.process(repository.submitted(1, ADD, {"a": "a"}))

    assert len(repository.service.objects[HERE]) == 1


def test_a_service_that_is_away_is_a_passing_fault(repository: Kept) -> None:
    repository.keep(repository.service, storage_service_url="http://me:hidden@127.0.0.1:1/store")

    failure = refused(
        repository, repository.submitted(1, ADD, {"a": "a"}), FailureKind.TRANSIENT, "cannot be reached"
    )

    assert "hidden" not in failure.message


def test_what_the_service_refuses_is_told_in_its_words(repository: Kept) -> None:
    job = repository.submitted(1, ADD, {"a": "a"})
    (Path(job.configuration.working_dir) / "producer" / "a").write_text("changed")

    refused(repository, job, FailureKind.SYSTEM, r"answered 400 \(fixity of producer/a differs\)")


def test_a_version_that_is_not_what_was_asked_for_is_no_success(repository: Kept) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "a"}))
    answer = b'{"ver:versionState": {"ver:identifier": 1, "ver:objectID": "ark:/99999/given"}}'
    repository.service.faults = [Fault(200, answer)]

    refused(
        repository,
        repository.submitted(2, ADD, {"b": "b"}),
        FailureKind.SYSTEM,
        "has nothing for 'producer/b' in version 1",
    )


def test_a_name_that_the_service_would_change_is_refused(repository: Kept) -> None:
    job = repository.submitted(1, ADD, {"a%20b": "a"})

    refused(repository, job, FailureKind.CONTENT, "'producer/a%20b' has '%20' or '%7c' in it")


def test_what_is_not_there_is_neither_reset_nor_deleted_from(repository: Kept) -> None:
    refused(
        repository, repository.submitted(1, RESET, {"a": "a"}), FailureKind.CONTENT, "there is no such object"
    )
    refused(
        repository,
        repository.submitted(2, UPDATE, {"a": "a", "mrt-delete.txt": "b"}),
        FailureKind.CONTENT,
        f"'producer/b' is to be deleted, but it is not in {ARK}",
    )


def test_the_last_file_of_an_object_is_not_taken_out(repository: Kept) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "a"}))

    refused(
        repository,
        repository.submitted(2, UPDATE, {"mrt-delete.txt": "a"}),
        FailureKind.CONTENT,
        "would have no file",
    )


def test_a_file_kept_by_another_digest_is_not_carried_on_unproved(repository: Kept) -> None:
    repository.service.objects[HERE] = [{"producer/old": Held(b"old", 1, "SHA-256")}]

    refused(
        repository,
        repository.submitted(1, UPDATE, {"a": "a"}),
        FailureKind.SYSTEM,
        "'producer/old' of ark:/99999/given is kept with sha256 and not sha512",
    )


def test_an_ark_that_is_minted_again_does_not_reach_the_object_it_named(repository: Kept) -> None:
    repository.process(repository.job(1))
    repository.ledger.counters.clear()

    refused(repository, repository.job(2), FailureKind.SYSTEM, "counter of minted identifiers was reset")


def test_damage_in_storage_is_found_when_a_version_is_read_back(repository: Kept) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "a"}))
    version = repository.version(1)
    repository.kept.verify(version)
    files = repository.service.objects[HERE][0]

    files["producer/a"] = dataclasses.replace(files["producer/a"], data=b"b")

    with pytest.raises(StepFailed, match=f"lists another 'producer/a' of {ARK}"):
        repository.kept.verify(version)


def test_bytes_that_are_not_those_in_the_manifest_are_found(repository: Kept) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "a"}))
    version = repository.version(1)
    repository.service.handed["producer/a"] = b"b"

    with pytest.raises(
        StepFailed, match=f"hands over 'producer/a' of {ARK} version 1 with 1 bytes"
    ) as failed:
        repository.kept.verify(version)

    assert failed.value.kind is FailureKind.SYSTEM


def test_a_manifest_that_is_none_is_the_operators_to_look_at(repository: Kept, template: Path) -> None:
    with HttpSource() as web:
        web.put("/manifest/7777/ark%3A%2F99999%2Fgiven", b"<!DOCTYPE x><x/>")
        repository.keep(repository.service, storage_service_url=web.url(""))

        refused(
            repository,
            repository.submitted(1, ADD, {"a": "a"}),
            FailureKind.SYSTEM,
            "has a manifest of ark:/99999/given that cannot be used: it has a declaration",
        )


def test_a_job_that_is_interrupted_anywhere_is_stored_once(repository: Kept) -> None:
    for last in range(1, 40):
        calls = iter(range(1, 1000))
        job = repository.job(last, primary_id=f"ark:/99999/x{last}")

        def alive(calls: Iterator[int] = calls, last: int = last) -> None:
            if next(calls) == last:
                raise AttemptOver("the lock is lost")

        interrupted = False
        try:
            repository.process(job, alive)
        except AttemptOver:
            interrupted = True
        repository.process(job)

        assert len(repository.service.objects["7777", f"ark:/99999/x{last}"]) == 1
        if not interrupted:
            break
    assert last > 6


def test_the_service_is_used_if_the_settings_name_it(repository: Kept) -> None:
    kit = open_kit(Settings(**repository.settings.model_dump(exclude={"allow_networks"})))

    assert isinstance(kit.storage, MerrittStorage)
    kit.inventory.database.close()
