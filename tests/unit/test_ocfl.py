import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ocfl.layout_registry import get_layout
from ocfl.validator import Validator

from pipeline.fixity import ContentFile
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.records import SubmissionMode
from pipeline.states import FailureKind
from pipeline.storage.base import StoreRequest
from pipeline.storage.ocfl.objects import DECLARATION, LAYOUT, object_path
from tests.support.ocfl_fixture import ARK, OcflFixture, assert_valid, invalid_objects, memory
from tests.support.stores import rewrite

ADD, UPDATE, RESET = SubmissionMode.ADD, SubmissionMode.UPDATE, SubmissionMode.RESET


@pytest.fixture
def depot(tmp_path: Path) -> Iterator[OcflFixture]:
    with memory(tmp_path) as folder:
        yield OcflFixture(folder)


def assert_sound(depot: OcflFixture) -> None:
    assert_valid(depot)
    assert depot.leftovers() == []


def test_a_new_object_is_its_files_and_what_ocfl_wants(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a", "system/mrt-erc.txt": "erc:"})

    found = {path.relative_to(depot.object()).as_posix() for path in depot.object().rglob("*")}
    assert found == {
        "0=ocfl_object_1.1",
        "inventory.json",
        "inventory.json.sha512",
        "v1",
        "v1/inventory.json",
        "v1/inventory.json.sha512",
        "v1/content",
        "v1/content/producer",
        "v1/content/producer/a.txt",
        "v1/content/system",
        "v1/content/system/mrt-erc.txt",
    }
    assert_sound(depot)


def test_the_validator_of_these_tests_refuses_an_object_whose_bytes_changed(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    assert invalid_objects(depot.folder) == []

    rewrite(depot.object() / "v1/content/producer/a.txt", b"b")

    assert invalid_objects(depot.folder) == [str(depot.object())]


def test_an_object_has_no_warning_either(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    depot.store("jid2", {"producer/b.txt": "b"}, UPDATE, delete=("producer/a.txt",))

    check = Validator(log_warnings=True)
    assert check.validate_object(str(depot.object()))
    assert check.status_str() == ""


def test_the_folder_of_an_object_can_be_read() -> None:
    # sha256("ark:/99999/fk4000000011") computed with sha256sum.
    digest = hashlib.sha256(ARK.encode()).hexdigest()

    path = object_path(ARK)

    assert path == Path(digest[:3], digest[3:6], digest[6:9], "ark%3a%2f99999%2ffk4000000011")


@pytest.mark.parametrize("identifier", [ARK, "ark:/99999/" + "x" * 150, "ark:/99999/a.b~c"])
def test_the_folder_is_the_one_that_the_layout_extension_gives(identifier: str) -> None:
    layout = get_layout(LAYOUT)

    assert object_path(identifier).as_posix() == layout.identifier_to_path(identifier)


def test_the_answer_says_what_the_version_holds(depot: OcflFixture) -> None:
    created = datetime(2026, 8, 1, 10, tzinfo=UTC)
    request = depot.request("jid1", {"producer/a.txt": "aaa"})

    stored = depot.storage.store(StoreRequest(ARK, "jid1", ADD, request.files, created=created), lambda: None)

    assert (stored.ark, stored.number, stored.jid, stored.created) == (ARK, 1, "jid1", created)
    assert [(f.path, f.size, f.sha512, f.added) for f in stored.files] == [
        ("producer/a.txt", 3, hashlib.sha512(b"aaa").hexdigest(), True)
    ]
    assert stored.url == (depot.object() / "v1").as_uri()


def test_the_version_names_the_job_and_the_depositor(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})

    version = json.loads((depot.object() / "inventory.json").read_text())["versions"]["v1"]
    assert version["message"] == "as submitted\njid=jid1"
    assert version["user"] == {"name": "depositor@example.edu", "address": "mailto:depositor@example.edu"}


def test_a_note_that_names_another_job_does_not_become_its_version(depot: OcflFixture) -> None:
    files = depot.request("jid1", {"producer/a.txt": "a"}).files
    depot.storage.store(StoreRequest(ARK, "jid1", ADD, files, message="jid=jid7"), lambda: None)

    assert depot.storage.version_of(ARK, "jid7") is None
    assert depot.storage.version_of(ARK, "jid1") is not None


def test_adding_leaves_exactly_the_files_handed_over(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a", "producer/b.txt": "b"})
    depot.store("jid2", {"producer/c.txt": "c"}, ADD)

    assert depot.names(2) == {"producer/c.txt"}
    assert_sound(depot)


def test_a_reset_leaves_exactly_the_files_handed_over_and_keeps_history(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    depot.store("jid2", {"producer/c.txt": "c"}, RESET)

    assert (depot.names(1), depot.names(2)) == ({"producer/a.txt"}, {"producer/c.txt"})
    assert_sound(depot)


def test_an_object_that_does_not_exist_cannot_be_reset(depot: OcflFixture) -> None:
    with pytest.raises(StepFailed, match="because it does not exist: submit it with mode add") as failed:
        depot.store("jid1", {"producer/a.txt": "a"}, RESET)

    assert failed.value.kind is FailureKind.CONTENT
    assert depot.jobs() == []


def test_an_update_carries_no_description_of_an_earlier_version(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a", "system/old.txt": "1", "system/both.txt": "1"})
    depot.store("jid2", {"system/both.txt": "2"}, UPDATE)

    assert depot.names(2) == {"producer/a.txt", "system/both.txt"}


def test_an_update_keeps_what_it_does_not_name(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a", "producer/b.txt": "b", "producer/c.txt": "c"})
    depot.store("jid2", {"producer/b.txt": "new", "producer/d.txt": "d"}, UPDATE, ("producer/c.txt",))

    assert depot.names(2) == {"producer/a.txt", "producer/b.txt", "producer/d.txt"}
    assert_sound(depot)


def test_an_update_of_an_object_that_is_not_there_makes_it(depot: OcflFixture) -> None:
    assert depot.store("jid1", {"producer/a.txt": "a"}, UPDATE).number == 1
    assert_sound(depot)


@pytest.mark.parametrize("known", [True, False])
def test_deleting_a_file_that_does_not_exist_is_a_content_failure(depot: OcflFixture, known: bool) -> None:
    if known:
        depot.store("jid1", {"producer/a.txt": "a"})

    with pytest.raises(StepFailed, match="'producer/x' cannot be deleted: it is not in") as failed:
        depot.store("jid2", {"producer/b.txt": "b"}, UPDATE, ("producer/x",))
    assert failed.value.kind is FailureKind.CONTENT


def test_bytes_that_the_object_has_are_not_stored_again(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "same"})
    stored = depot.store("jid2", {"producer/renamed.txt": "same", "producer/new.txt": "new"})

    assert depot.content() == {"v1/content/producer/a.txt", "v2/content/producer/new.txt"}
    assert {file.path: file.added for file in stored.files} == {
        "producer/renamed.txt": False,
        "producer/new.txt": True,
    }
    assert_sound(depot)


def test_equal_files_of_one_version_are_stored_once(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/b.txt": "same", "producer/a.txt": "same"})

    assert depot.content() == {"v1/content/producer/a.txt"}
    assert depot.names(1) == {"producer/a.txt", "producer/b.txt"}
    assert_sound(depot)


def test_a_version_that_brings_no_bytes_has_no_content_folder(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a", "producer/b.txt": "b"})
    depot.store("jid2", {"producer/a.txt": "a"})

    assert not (depot.object() / "v2" / "content").exists()
    assert_sound(depot)


def test_names_with_spaces_and_other_scripts_and_empty_files_are_kept(depot: OcflFixture) -> None:
    names = {"producer/a name.txt", "producer/größe/日本.txt", "producer/.hidden", "producer/%20"}
    depot.store("jid1", {name: name for name in names} | {"producer/empty": "", "producer/empty2": ""})

    assert depot.names(1) == names | {"producer/empty", "producer/empty2"}
    assert_sound(depot)


def test_a_job_that_has_its_version_gets_it_again(depot: OcflFixture) -> None:
    first = depot.store("jid1", {"producer/a.txt": "a"})
    depot.store("jid2", {"producer/b.txt": "b"})
    calls: list[None] = []

    again = depot.storage.store(depot.request("jid1", {"producer/a.txt": "a"}), lambda: calls.append(None))

    assert again == first == depot.storage.version_of(ARK, "jid1")
    assert sorted(path.name for path in depot.object().glob("v*")) == ["v1", "v2"]


def test_there_is_no_version_of_a_job_that_stored_nothing(depot: OcflFixture) -> None:
    assert depot.storage.version_of(ARK, "jid1") is None
    depot.store("jid1", {"producer/a.txt": "a"})
    assert depot.storage.version_of(ARK, "jid10") is None


def test_no_files_are_refused(depot: OcflFixture) -> None:
    with pytest.raises(StepFailed, match="at least one") as failed:
        depot.store("jid1", {})
    assert failed.value.kind is FailureKind.CONTENT
    assert not depot.folder.exists()


@pytest.mark.parametrize("path", ["../up", "/absolute", "producer//a", "producer/./a"])
def test_a_path_that_leaves_the_object_is_refused(depot: OcflFixture, path: str) -> None:
    file = depot.handed("jid1", "a", "a")
    file = ContentFile(path, file.source, file.size, file.sha512)

    with pytest.raises(StepFailed, match="file name") as failed:
        depot.storage.store(StoreRequest(ARK, "jid1", ADD, (file,)), lambda: None)
    assert failed.value.kind is FailureKind.CONTENT


def test_a_file_cannot_take_the_place_of_a_folder_of_the_object(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a/b.txt": "b"})

    with pytest.raises(StepFailed, match="also the folder") as failed:
        depot.store("jid2", {"producer/a": "a"}, UPDATE)
    assert failed.value.kind is FailureKind.CONTENT
    assert_sound(depot)


def test_an_ark_just_minted_must_be_free(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a"})
    files = depot.request("jid2", {"producer/b.txt": "b"}).files

    with pytest.raises(StepFailed, match="counter of minted identifiers was reset") as failed:
        depot.storage.store(StoreRequest(ARK, "jid2", ADD, files, new=True), lambda: None)
    assert failed.value.kind is FailureKind.SYSTEM


def test_a_file_that_changed_since_its_download_is_not_stored(depot: OcflFixture) -> None:
    request = depot.request("jid1", {"producer/a.txt": "aaa", "producer/b.txt": "b"})
    request.files[0].source.write_text("aab")

    with pytest.raises(StepFailed, match=r"producer/a\.txt changed after it was downloaded") as failed:
        depot.storage.store(request, lambda: None)
    assert failed.value.kind is FailureKind.SYSTEM
    assert not depot.object().exists()
    assert depot.leftovers() == []


def test_a_file_that_is_a_link_is_not_stored(depot: OcflFixture) -> None:
    request = depot.request("jid1", {"producer/a.txt": "a"})
    request.files[0].source.rename(depot.sources / "elsewhere")
    request.files[0].source.symlink_to(depot.sources / "elsewhere")

    with pytest.raises(StepFailed, match=r"a\.txt: Too many levels of symbolic links"):
        depot.storage.store(request, lambda: None)


def test_what_is_stored_is_not_the_working_copy(depot: OcflFixture) -> None:
    request = depot.request("jid1", {"producer/a.txt": "a"})
    depot.storage.store(request, lambda: None)
    request.files[0].source.write_text("changed")

    assert (depot.object() / "v1/content/producer/a.txt").read_text() == "a"
    assert_sound(depot)


def test_an_attempt_that_is_over_stores_nothing(depot: OcflFixture) -> None:
    def over() -> None:
        raise AttemptOver("the lock is lost")

    with pytest.raises(AttemptOver):
        depot.storage.store(depot.request("jid1", {"producer/a.txt": "a"}), over)
    assert not depot.object().exists()
    assert depot.leftovers() == []


def test_a_storage_root_says_whether_it_distinguishes_case(depot: OcflFixture) -> None:
    depot.store("jid1", {"producer/a.txt": "a", "producer/A.txt": "A"})
    assert depot.storage.distinguishes_case()

    # a file system that folds case answers to both spellings
    (depot.folder / DECLARATION.swapcase()).symlink_to(DECLARATION)

    assert not depot.storage.distinguishes_case()
