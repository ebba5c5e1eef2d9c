"""A storage root in a bucket is what it would be on a disk."""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.deployment import Deployment
from pipeline.fixity import ReadBackFile, StoredVersion
from pipeline.outcome import AttemptOver, DamagedObject, ServiceDown, StepFailed
from pipeline.records import SubmissionMode
from pipeline.states import FailureKind
from pipeline.steps import process, record
from pipeline.storage.factory import open_storage
from pipeline.storage.ocfl.objects import sidecar
from pipeline.working_storage.workspace import Workspace, read_stored
from plugins.s3.storage import S3Storage
from tests.servers.s3 import S3Fixture, Server
from tests.support.fleet import set_variables
from tests.support.ocfl_fixture import ARK, OcflFixture, assert_valid, memory
from tests.support.repository import Repository, empty_inventory

ADD, UPDATE, RESET = SubmissionMode.ADD, SubmissionMode.UPDATE, SubmissionMode.RESET

HISTORY = (
    (
        ADD,
        {"producer/a.txt": "a", "producer/equal.txt": "a", "producer/b.txt": "b", "system/erc.txt": "1"},
        (),
    ),
    (
        UPDATE,
        {"producer/größe/日本 %20.txt": "", "producer/b.txt": "new", "system/erc.txt": "2"},
        ("producer/a.txt",),
    ),
    (RESET, {"producer/renamed.txt": "b", "producer/.hidden": "?"}, ()),
    (ADD, {"producer/a.txt": "a"}, ()),
)
"""Mode, files and deletions of each version."""


@pytest.fixture
def depot(s3_server: Server, tmp_path: Path) -> Iterator[S3Fixture]:
    with memory(tmp_path) as folder:
        yield S3Fixture(s3_server.settings(), s3_server.client, folder)


def replayed(depot: OcflFixture | S3Fixture) -> tuple[StoredVersion, ...]:
    return tuple(
        depot.storage.store(
            dataclasses.replace(
                depot.request(f"jid{number}", files, mode, delete),
                created=datetime(2026, 9, number, tzinfo=UTC),
            ),
            lambda: None,
        )
        for number, (mode, files, delete) in enumerate(HISTORY, 1)
    )


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_history_makes_the_same_root_byte_for_byte_in_a_bucket_and_on_a_disk(
    depot: S3Fixture, tmp_path: Path
) -> None:
    disk = OcflFixture(tmp_path)

    told, expected = replayed(depot), replayed(disk)

    assert tree(depot.folder) == tree(disk.folder)
    assert [dataclasses.replace(each, url="") for each in told] == [
        dataclasses.replace(each, url="") for each in expected
    ]
    assert told[0].url == f"{depot.settings.s3_root}/{depot.object().relative_to(depot.folder).as_posix()}/v1"
    assert_valid(depot)
    for each in told:
        depot.storage.verify(each)
        assert depot.storage.version_of(ARK, each.jid) == each
    assert depot.storage.version_of(ARK, "jid9") is None
    found = list(depot.storage.read_back(ARK, told[0].url, (1, 2)))
    assert [alike(each) for each in found] == [
        alike(each) for each in disk.storage.read_back(ARK, expected[0].url, (1, 2))
    ]
    assert depot.storage.read(ARK, "system/erc.txt", 1) == b"1"
    assert (depot.storage.read(ARK, "producer/a.txt"), depot.storage.read(ARK, "no")) == (b"a", None)


def alike(found: ReadBackFile) -> tuple[object, ...]:
    return found.number, found.path, found.size, found.sha512, found.problem


def test_a_root_that_was_copied_from_a_disk_goes_on_in_a_bucket(depot: S3Fixture, tmp_path: Path) -> None:
    disk = OcflFixture(tmp_path)
    replayed(disk)
    for key, data in tree(disk.folder).items():
        depot.client.put_object(Bucket=depot.bucket, Key=f"{depot.prefix}/{key}", Body=data)

    depot.store("jid5", {"producer/c.txt": "c"}, UPDATE)

    assert depot.jobs() == ["jid1", "jid2", "jid3", "jid4", "jid5"]
    assert depot.names(5) == {"producer/a.txt", "producer/c.txt"}
    assert_valid(depot)


def test_a_job_that_has_its_version_gets_it_again_and_nothing_is_sent(depot: S3Fixture) -> None:
    first = depot.store("jid1", {"producer/a.txt": "a"})
    depot.store("jid2", {"producer/b.txt": "b"})
    before = depot.listed()
    changes: list[int] = []
    storage = depot.opened(changes.append)
    storage.root.is_open = True

    assert storage.store(depot.request("jid1", {"producer/a.txt": "a"}), lambda: None) == first
    assert (depot.listed(), changes) == (before, [])


def test_an_invalid_request_is_refused_before_anything_is_sent(depot: S3Fixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    before = depot.listed()
    request = depot.request("jid2", {"producer/b.txt": "b"}, UPDATE, ("producer/x.txt",))

    for ask in (depot.storage.check, lambda request: depot.storage.store(request, lambda: None)):
        with pytest.raises(StepFailed, match=r"'producer/x\.txt' cannot be deleted: it is not in"):
            ask(request)
        with pytest.raises(StepFailed, match="counter of minted identifiers was reset"):
            ask(dataclasses.replace(request, delete=(), new=True))
    assert depot.listed() == before


def test_an_attempt_that_is_over_makes_no_version(depot: S3Fixture) -> None:
    asked: list[bool] = []

    def over() -> None:
        """The last question, when all content is there."""
        asked.append(any("content" in key for key in depot.listed()))
        if asked[-1]:
            raise AttemptOver("the lock is lost")

    with pytest.raises(AttemptOver):
        depot.storage.store(depot.request("jid1", {"producer/a.txt": "a"}), over)

    assert asked[-1]
    assert depot.storage.version_of(ARK, "jid1") is None


def test_a_name_too_long_for_a_key_is_kept_in_the_inventory_alone(depot: S3Fixture) -> None:
    name = "producer/" + "/".join(["x" * 200] * 5)
    stored = depot.store("jid1", {name: "a", "producer/b.txt": "b"})

    assert depot.names(1) == {name, "producer/b.txt"}
    assert depot.storage.read(ARK, name) == b"a"
    assert [file.added for file in stored.files] == [True, True]
    assert_valid(depot)


def test_a_file_that_changed_since_its_download_is_not_stored(depot: S3Fixture) -> None:
    request = depot.request("jid1", {"producer/a.txt": "aaa", "producer/b.txt": "b"})
    request.files[0].source.write_text("aab")

    with pytest.raises(
        StepFailed,
        match=r"producer/a\.txt changed after it was "
        "downloaded.*sha512",
    ) as failed:
        depot.storage.store(request, lambda: None)
    assert failed.value.kind is FailureKind.SYSTEM
    assert depot.storage.version_of(ARK, "jid1") is None


@pytest.mark.parametrize(
    ("path", "data", "says"),
    [
        ("v1/content/producer/a.txt", b"A", "sha512"),
        ("v1/content/producer/a.txt", None, "missing"),
        ("v1/inventory.json", b"{}", "damaged"),
        ("inventory.json", b"{", "damaged"),
    ],
)
def test_damage_is_named_by_whoever_reads(depot: S3Fixture, path: str, data: bytes | None, says: str) -> None:
    stored = depot.store("jid1", {"producer/a.txt": "a"})
    depot.put(path, data)

    with pytest.raises(StepFailed, match=rf"s3://.*{path}.*{says}") as failed:
        depot.storage.verify(stored)
    assert failed.value.kind is FailureKind.SYSTEM
    if "content" in path:
        with pytest.raises(StepFailed, match=rf"s3://.*{path}.*{says}"):
            depot.store("jid2", {"producer/renamed.txt": "a"})
        (found,) = depot.storage.read_back(ARK, stored.url)
        assert found.sha512 != stored.files[0].sha512
        assert ("missing" in found.problem) == (says == "missing")


def test_a_lost_or_outdated_inventory_is_not_overwritten(depot: S3Fixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    first = (depot.object() / "inventory.json").read_bytes()
    depot.store("jid2", {"producer/b.txt": "b"})

    for data, version in ((None, "v1"), (first, "v2")):
        depot.put("inventory.json", data)
        with pytest.raises(StepFailed, match=f"missing or older than {version}/inventory.json: restore"):
            depot.store("jid3", {"producer/c.txt": "c"})


def test_damage_of_the_inventory_is_not_taken_for_a_writer_that_stopped(depot: S3Fixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    data = (depot.object() / "inventory.json").read_bytes()
    depot.put("inventory.json.sha512", b"0  inventory.json\n")
    depot.store("jid2", {"producer/b.txt": "b"})
    assert_valid(depot)
    depot.put("inventory.json", data.replace(b"jid1", b"jid8"))
    depot.put("v2/inventory.json", None)

    with pytest.raises(StepFailed, match=r"does not have the digest in .* damaged; restore it from .*/v1$"):
        depot.store("jid3", {"producer/c.txt": "c"})
    depot.put("v1/inventory.json", None)
    with pytest.raises(StepFailed, match=r"does not have the digest in .* damaged; restore it from a copy"):
        depot.store("jid3", {"producer/c.txt": "c"})


def test_an_inventory_that_was_changed_with_its_sidecar_costs_no_file_of_the_object(depot: S3Fixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a", "producer/b.txt": "b"})
    stored = (depot.object() / "inventory.json").read_bytes()
    changed = stored.replace(b"v1/content/producer/a.txt", b"v1/content/producer/b.txt")
    depot.put("inventory.json", changed)
    depot.put("inventory.json.sha512", sidecar(changed))

    with pytest.raises(DamagedObject, match=r"inventory\.json differs from its copy in v1: restore"):
        depot.store("jid2", {"producer/c.txt": "c"})
    assert (depot.object() / "v1/content/producer/a.txt").read_text() == "a"


def test_a_job_is_processed_and_recorded_from_a_bucket(
    s3_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with memory(tmp_path) as home:
        repository = Repository(home, empty_inventory(tmp_path))
        given = s3_server.settings()
        depot = S3Fixture(given, s3_server.client, home)
        set_variables(monkeypatch, given)
        services = dataclasses.replace(repository.services(), storage=open_storage(repository.settings))
        job = repository.job(1, {"a name.txt": "a"}, erc_who="Tracy")

        process.work(job, services)
        stored, _ = read_stored(Workspace.of(job, repository.settings.working))
        assert stored is not None
        known = job.model_copy(update={"identifiers": repository.identifiers(job)})
        record.work(known, services)
        found = repository.inventory.describe_object(stored.ark)
        repository.close()

        assert isinstance(services.storage, S3Storage)
        assert found is not None
        assert [version.storage_url for version in found.versions] == [stored.url]
        assert stored.url.startswith(f"{given.s3_root}/")
        assert b"who: Tracy" in (services.storage.read(stored.ark, "system/mrt-erc.txt") or b"")
        assert_valid(depot)


def test_a_bucket_has_a_deployment_id_and_lists_every_version(depot: S3Fixture) -> None:
    deployment = Deployment()
    assert (depot.storage.read_deployment(), depot.storage.is_empty()) == (None, True)
    depot.storage.write_deployment(deployment)
    for number in (1, 2):
        request = depot.request(f"jid{number}", {"a.txt": str(number)})
        depot.storage.store(dataclasses.replace(request, key=str(number) * 32), lambda: None)

    entries = [(entry.ark, entry.number, entry.jid, entry.key) for entry in depot.storage.versions()]

    assert depot.storage.read_deployment() == deployment
    assert entries == [(ARK, 1, "jid1", "1" * 32), (ARK, 2, "jid2", "2" * 32)]
    assert_valid(depot)
    depot.storage.expected = lambda: "f" * 32
    with pytest.raises(ServiceDown, match="belongs to deployment"):
        depot.store("jid3", {"a.txt": "3"})
