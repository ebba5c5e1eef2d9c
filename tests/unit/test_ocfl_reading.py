"""What storage says of an object before it is changed, and when it is read back."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import attempt
from pipeline.attempt import UNATTENDED, CheckedAttempt
from pipeline.errors import UsageRefused
from pipeline.fixity import READ_CHUNK, ReadBackFile
from pipeline.outcome import AttemptOver, DamagedObject, StepFailed
from pipeline.records import SubmissionMode
from pipeline.states import FailureKind
from pipeline.storage.ocfl import disk
from tests.support.ocfl_fixture import ARK, OcflFixture, assert_valid, memory

ADD, UPDATE, RESET = SubmissionMode.ADD, SubmissionMode.UPDATE, SubmissionMode.RESET


@pytest.fixture
def depot(tmp_path: Path) -> Iterator[OcflFixture]:
    with memory(tmp_path) as folder:
        yield OcflFixture(folder)


def sha512(text: str) -> str:
    return hashlib.sha512(text.encode()).hexdigest()


def url(depot: OcflFixture) -> str:
    return (depot.object() / "v1").as_uri()


def read_back(depot: OcflFixture, *numbers: int) -> list[ReadBackFile]:
    return list(depot.storage.read_back(ARK, url(depot), numbers))


def stop_between_its_renames(depot: OcflFixture) -> None:
    """Leave the object as a writer does that dies before the root inventory follows its version."""
    folder = depot.object()
    for name in ("inventory.json", "inventory.json.sha512"):
        shutil.copyfile(folder / "v1" / name, folder / name)


def test_every_file_of_every_version_is_read(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a": "alpha", "producer/b": "beta"})
    depot.store("jid2", {"producer/b": "new"}, UPDATE)

    found = read_back(depot)

    assert [(each.number, each.path, each.size, each.sha512) for each in found] == [
        (1, "producer/a", 5, sha512("alpha")),
        (1, "producer/b", 4, sha512("beta")),
        (2, "producer/a", 5, sha512("alpha")),
        (2, "producer/b", 3, sha512("new")),
    ]
    assert {each.problem for each in found} == {""}
    assert found[2].place == str(depot.object() / "v1/content/producer/a")


def test_only_the_versions_asked_for_are_read(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a": "alpha"})
    depot.store("jid2", {"producer/b": "beta"})
    (depot.object() / "v1/content/producer/a").unlink()

    assert [(each.number, each.problem) for each in read_back(depot, 2)] == [(2, "")]


def test_bytes_that_files_and_versions_share_are_read_once(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a": "alpha", "producer/same": "alpha"})
    depot.store("jid2", {"producer/b": "beta"}, UPDATE)
    seen: list[int] = []

    assert len(list(depot.storage.read_back(ARK, url(depot), (), seen.append))) == 5
    assert sum(seen) == len("alpha") + len("beta")


def test_of_a_large_file_it_is_told_while_it_is_read(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a": "x" * (READ_CHUNK + 1)})
    seen: list[int] = []

    list(depot.storage.read_back(ARK, url(depot), (), seen.append))

    assert seen == [READ_CHUNK, 1]


def test_what_cannot_be_read_comes_with_its_reason_and_the_rest_is_read(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a": "alpha", "producer/b": "beta", "producer/c": "gamma"})
    folder = depot.object() / "v1/content/producer"
    (folder / "a").unlink()
    (folder / "b").unlink()
    (folder / "b").symlink_to("c")

    gone, linked, sound = read_back(depot)

    assert (gone.sha512, gone.problem) == (None, f"{folder / 'a'} is missing")
    assert linked.problem.startswith(f"{folder / 'b'} cannot be read: ")
    assert (sound.sha512, sound.problem) == (sha512("gamma"), "")


def test_a_file_that_the_manifest_lacks_is_a_problem_and_no_crash(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a": "alpha"})
    inventory = depot.object() / "inventory.json"
    inventory.write_text(json.dumps({**json.loads(inventory.read_text()), "manifest": {}}))

    assert [each.problem for each in read_back(depot)] == ["inventory.json has no content path for this file"]


ONE = {"created": "2026-01-01T00:00:00Z", "state": {"a" * 128: ["producer/a"]}}


@pytest.mark.parametrize(
    "change",
    [
        {"head": "v2"},
        {"versions": {"v1": ONE, "w2": ONE}},
        {"versions": {"v2": ONE}},
        {"head": "v3", "versions": {"v1": ONE, "v3": ONE}},
        {"manifest": {"a" * 128: []}},
    ],
)
def test_an_inventory_that_contradicts_itself_is_damage_and_hides_no_other_object(
    depot: OcflFixture, change: dict[str, Any]
) -> None:
    depot.store("jid1", {"producer/a": "alpha"})
    depot.store("jid2", {"producer/a": "alpha"}, ark="ark:/99999/other")
    inventory = depot.object() / "inventory.json"
    inventory.write_text(json.dumps(json.loads(inventory.read_text()) | change))

    listed = {entry.ark: entry.problem for entry in depot.storage.versions()}
    assert listed.pop("ark:/99999/other") == ""
    assert "inventory.json is damaged: its " in listed.pop(str(depot.object()))
    assert not listed
    for read in (
        lambda: read_back(depot),
        lambda: depot.storage.version_of(ARK, "jid1"),
        lambda: depot.storage.read(ARK, "producer/a"),
    ):
        with pytest.raises(DamagedObject, match="restore it from its version's folder"):
            read()


def test_a_folder_whose_name_is_no_utf_8_is_listed_with_a_name_that_can_be_written(
    depot: OcflFixture,
) -> None:
    depot.store("jid1", {"producer/a": "alpha"})
    strange = os.fsencode(depot.object().parent) + b"/\xfc"
    os.mkdir(strange)  # noqa: PTH102 - a Path has no bytes
    (Path(os.fsdecode(strange)) / "0=ocfl_object_1.1").write_text("x")

    listed = {entry.ark: entry.problem for entry in depot.storage.versions()}

    assert listed.pop(ARK) == ""
    ((place, problem),) = listed.items()
    assert place.encode().endswith(rb"/\udcfc")
    assert problem == f"{place} has no inventory.json: it is not an OCFL object"


def test_a_digest_that_was_changed_in_the_inventory_is_damage_where_its_file_is_read(
    depot: OcflFixture,
) -> None:
    depot.store("jid1", {"producer/a": "alpha"})
    inventory = depot.object() / "inventory.json"
    inventory.write_text(json.dumps({**json.loads(inventory.read_text()), "manifest": {}}))

    for read in (
        lambda: depot.storage.version_of(ARK, "jid1"),
        lambda: depot.storage.read(ARK, "producer/a"),
    ):
        with pytest.raises(DamagedObject, match="it has no content path for a file with the sha512"):
            read()


def test_nothing_comes_of_an_object_that_is_not_there(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a": "alpha"}, ark="ark:/99999/other")

    assert read_back(depot) == []


def test_a_missing_root_does_not_prove_that_an_object_is_lost(depot: OcflFixture) -> None:
    with pytest.raises(
        StepFailed, match="is not an OCFL storage root: mount its disk on this host"
    ) as failed:
        read_back(depot)
    assert failed.value.kind is FailureKind.TRANSIENT
    with pytest.raises(UsageRefused, match="use the storage settings of the workers"):
        list(depot.storage.read_back(ARK, "http://store.example/manifest/7777/x"))


def test_a_file_is_read_from_the_latest_or_another_version(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a": "alpha", "system/x": "old"})
    depot.store("jid2", {"producer/a": "alpha", "system/x": "new"})

    read = depot.storage.read
    assert (read(ARK, "system/x"), read(ARK, "system/x", 1)) == (b"new", b"old")
    assert read(ARK, "producer/a", 2) == b"alpha"
    assert (read(ARK, "system/y"), read(ARK, "system/x", 3)) == (None, None)
    assert read("ark:/99999/none", "system/x") is None


def test_a_damaged_file_is_not_handed_over(depot: OcflFixture) -> None:
    depot.store("jid1", {"system/x": "old"})
    place = depot.object() / "v1/content/system/x"
    place.chmod(0o644)
    place.write_text("bad")

    with pytest.raises(StepFailed, match="v1/content/system/x is damaged") as failed:
        depot.storage.read(ARK, "system/x")
    assert failed.value.kind is FailureKind.SYSTEM


def test_the_version_that_a_stopped_writer_left_is_the_latest(depot: OcflFixture) -> None:
    depot.store("jid1", {"system/x": "old"})
    depot.store("jid2", {"system/x": "new"})
    stop_between_its_renames(depot)

    assert depot.storage.read(ARK, "system/x") == b"new"
    depot.storage.check(depot.request("jid3", {"producer/c": "c"}, UPDATE))
    assert depot.jobs() == ["jid1", "jid2"]


def test_check_refuses_what_store_would_refuse(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a": "alpha"})
    check = depot.storage.check
    gone = depot.request("jid2", {"producer/b": "b"}, UPDATE, delete=("producer/gone",))
    emptied = depot.request("jid2", {"system/x": "x"}, UPDATE, delete=("producer/a",))
    minted = replace(depot.request("jid2", {"producer/b": "b"}), new=True)
    unknown = depot.request("jid2", {"producer/b": "b"}, RESET, ark="ark:/99999/none")

    for request, says in (
        (gone, "'producer/gone' cannot be deleted: it is not in version 1"),
        (emptied, "would have no file"),
        (minted, "was just minted, but an object with this ARK exists"),
        (unknown, "because it does not exist"),
    ):
        with pytest.raises(StepFailed, match=says):
            check(request)
        with pytest.raises(StepFailed, match=says):
            depot.storage.store(request, lambda: None)
    assert depot.jobs() == ["jid1"]


def test_asking_beforehand_changes_nothing(depot: OcflFixture) -> None:
    depot.storage.check(depot.request("jid1", {"producer/a": "alpha"}))
    depot.store("jid1", {"producer/a": "alpha"})

    depot.storage.check(depot.request("jid2", {"producer/b": "b"}, UPDATE, delete=("producer/a",)))

    assert depot.jobs() == ["jid1"]
    assert depot.leftovers() == []
    assert_valid(depot)


def test_a_version_that_is_stored_already_is_not_refused(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a": "alpha"})
    request = depot.request("jid2", {"producer/b": "b"}, UPDATE, delete=("producer/a",))
    depot.storage.store(request, lambda: None)

    depot.storage.check(request)


def test_an_attempt_that_is_over_learns_it_when_it_asks(
    depot: OcflFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "CHECK_INTERVAL", 0.0)
    depot.store("jid1", {"producer/a": "alpha"})
    depot.store("jid2", {"producer/b": "b"})
    stop_between_its_renames(depot)

    def over() -> None:
        raise AttemptOver("the lock is lost")

    with disk.locked(depot.storage.root.lock(ARK), ARK, 1, UNATTENDED), pytest.raises(AttemptOver):
        depot.storage.check(depot.request("jid3", {"producer/c": "c"}), CheckedAttempt(over))
