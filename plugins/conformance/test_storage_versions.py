"""A version of an object: found by its job, made once, with exactly the files that its mode asks for."""

from dataclasses import replace
from typing import Any

import pytest

from pipeline.fixity import StoredFile
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.states import FailureKind
from pipeline.storage.base import StoreRequest
from plugins.conformance.storing import (
    ADD,
    ARK,
    OWN,
    RESET,
    UPDATE,
    A,
    B,
    C,
    Place,
    jid,
    key,
    refused,
    sha512,
    store,
)
from plugins.conformance.subjects import Promise

CONTENT, SYSTEM = FailureKind.CONTENT, FailureKind.SYSTEM

LARGE = 20_000_000
"""Bytes: more than any buffer, and more than one part of an upload to S3."""


def test_the_answer_says_what_the_version_has(place: Place) -> None:
    stored = place.store(1, {A: "alpha", "system/description.txt": "d"})

    assert (stored.ark, stored.number, stored.jid, stored.key) == (ARK, 1, jid(1), key(1))
    assert stored.created.tzinfo is not None
    assert [file for file in stored.files if file.path != OWN] == [
        StoredFile(A, 5, sha512("alpha"), added=True),
        StoredFile("system/description.txt", 1, sha512("d"), added=True),
    ]
    assert [file.path for file in stored.files] == sorted(file.path for file in stored.files)
    assert stored.url
    place.storage.verify(stored)


def test_a_version_is_found_by_its_job_whoever_asks(place: Place) -> None:
    assert not place.storage.has_object(ARK)
    assert place.version_of(1) is None
    stored = place.store(1, {A: "a"})
    place.store(2, {B: "b"})

    for storage in (place.storage, place.given.open(None)):
        assert storage.has_object(ARK)
        assert place.version_of(1, storage=storage) == stored
        assert storage.version_of(ARK, jid(1)) == stored
        assert storage.version_of(ARK, jid(3)) is None
        assert storage.version_of(ARK, jid(1)[:-1]) is None


def test_a_job_that_has_its_version_gets_it_again(place: Place) -> None:
    first = place.store(1, {A: "a"})
    place.store(2, {B: "b"})
    request = place.request(1, {A: "a"})

    place.storage.check(request)
    assert store(place.given.open(None), request) == first
    assert place.number_of_versions() == 2


def test_a_job_of_an_early_release_has_no_key_and_its_version_is_found(place: Place) -> None:
    request = place.request(1, {A: "a"}, key="")
    stored = store(place.storage, request)

    assert stored.key == ""
    assert store(place.storage, request) == stored == place.storage.version_of(ARK, jid(1))
    assert place.storage.version_of(ARK, jid(1), key=key(1)) == stored


def test_the_version_of_another_job_with_the_same_id_is_not_taken_for_the_jobs_own(place: Place) -> None:
    """Numbers of jobs begin again where the record was lost."""
    place.store(1, {A: "a"})
    other = place.request(1, {A: "another"}, key=key(99))

    refused(SYSTEM, lambda: place.storage.version_of(ARK, jid(1), key=key(99)))
    refused(SYSTEM, lambda: place.storage.check(other))
    refused(SYSTEM, lambda: store(place.storage, other))
    assert place.contents() == {A: b"a"}
    assert place.number_of_versions() == 1


def test_a_message_that_names_another_job_does_not_make_it_the_version_of_that_job(place: Place) -> None:
    place.store(1, {A: "a"}, message=f"key={key(7)}\njid={jid(7)}")

    assert place.storage.version_of(ARK, jid(7)) is None
    assert place.version_of(1) is not None


def test_add_leaves_exactly_the_files_of_the_request(place: Place) -> None:
    place.store(1, {A: "a", B: "b"})
    second = place.store(2, {C: "c"})

    assert second.number == 2
    assert place.contents() == {C: b"c"}
    assert place.contents(1) == {A: b"a", B: b"b"}


def test_update_keeps_the_depositors_files_that_it_does_not_name(place: Place) -> None:
    place.store(1, {A: "a", B: "b", C: "c"})
    place.store(2, {B: "new", "producer/d.txt": "d"}, UPDATE, delete=(C,))

    assert place.contents() == {A: b"a", B: b"new", "producer/d.txt": b"d"}
    assert place.contents(1) == {A: b"a", B: b"b", C: b"c"}


def test_update_keeps_no_file_of_arkline_of_an_earlier_version(place: Place) -> None:
    place.store(1, {A: "a", "system/old.txt": "1", "system/both.txt": "1"})
    place.store(2, {"system/both.txt": "2"}, UPDATE)

    assert place.contents() == {A: b"a", "system/both.txt": b"2"}


def test_update_of_an_object_that_does_not_exist_makes_it(place: Place) -> None:
    assert place.store(1, {A: "a"}, UPDATE).number == 1
    assert place.contents() == {A: b"a"}


def test_reset_leaves_exactly_the_files_of_the_request_and_keeps_the_history(place: Place) -> None:
    place.store(1, {A: "a", B: "b"})
    place.store(2, {C: "c"}, RESET)

    assert place.contents() == {C: b"c"}
    assert place.contents(1) == {A: b"a", B: b"b"}


@pytest.mark.parametrize(
    ("exists", "kind", "given"),
    [
        (False, CONTENT, {"files": {A: "a"}, "mode": RESET}),
        (False, CONTENT, {"files": {}}),
        (False, CONTENT, {"files": {B: "b"}, "mode": UPDATE, "delete": ("producer/x",)}),
        (True, CONTENT, {"files": {B: "b"}, "mode": UPDATE, "delete": ("producer/x",)}),
        (True, CONTENT, {"files": {"system/s.txt": "s"}, "mode": UPDATE, "delete": (A,)}),
        (True, CONTENT, {"files": {f"{A}/below": "b"}, "mode": UPDATE}),
        (True, SYSTEM, {"files": {B: "b"}, "new": True}),
        (False, SYSTEM, {"files": {A: "a"}, "recorded": 1}),
        (True, SYSTEM, {"files": {B: "b"}, "mode": UPDATE, "recorded": 2}),
    ],
    ids=[
        "reset of nothing",
        "no file",
        "delete from nothing",
        "delete of no file",
        "delete of the last file",
        "a folder in the place of a file",
        "a minted ARK that is taken",
        "an object that was lost",
        "an object whose last version was lost",
    ],
)
def test_a_request_that_the_object_cannot_accept_is_refused_before_and_when_it_is_stored(
    place: Place, exists: bool, kind: FailureKind, given: dict[str, Any]
) -> None:
    if exists:
        place.store(1, {A: "a"})
    request = place.request(2, **given)

    refused(kind, lambda: place.storage.check(request))
    refused(kind, lambda: store(place.storage, request))
    assert place.storage.has_object(ARK) == exists
    assert place.version_of(2) is None
    assert not exists or place.contents() == {A: b"a"}


@pytest.mark.parametrize("path", ["../up", "/absolute", "producer//a", "producer/./a", "producer/a\nb"])
def test_a_path_that_leaves_the_object_is_refused(place: Place, path: str) -> None:
    file = replace(place.content_file(1, A, "a"), path=path)
    request = place.with_own_file(1, StoreRequest(ARK, jid(1), ADD, (file,), key=key(1)))

    refused(CONTENT, lambda: place.storage.check(request))
    refused(CONTENT, lambda: store(place.storage, request))
    assert not place.storage.has_object(ARK)


def test_to_check_a_request_publishes_nothing(place: Place) -> None:
    place.storage.check(place.request(1, {A: "a"}))
    assert not place.storage.has_object(ARK)
    place.store(1, {A: "a"})

    place.storage.check(place.request(2, {B: "b"}, UPDATE))

    assert place.number_of_versions() == 1


def test_bytes_that_the_object_has_are_not_stored_again(place: Place) -> None:
    place.store(1, {A: "same", B: "b"})
    second = place.store(2, {A: "same", C: "new"})

    added = {file.path: file.added for file in second.files}
    assert (added[A], added[C]) == (False, True)
    third = place.store(3, {"producer/d.txt": "d"}, UPDATE)
    added = {file.path: file.added for file in third.files}
    assert (added[A], added[C], added["producer/d.txt"]) == (False, False, True)
    for stored in (second, third):
        place.storage.verify(stored)


def test_files_of_one_version_with_equal_bytes_are_all_there(place: Place) -> None:
    stored = place.store(1, {A: "same", B: "same", C: "same"})

    place.storage.verify(stored)
    assert place.contents() == dict.fromkeys((A, B, C), b"same")


NAMES = (
    "producer/a name.txt",
    "producer/ blank",
    "producer/größe/日本.txt",
    "producer/.hidden",
    "producer/-dash",
    "producer/a'b\"c&d<e>;f?g#h*i:k",
    f"producer/{'x' * 255}",
    f"producer/{'ü' * 127}",
    "producer/" + "/".join(["x" * 200] * 5),
    "producer/" + "/".join("d" * 60),
    "producer/100%",
    "producer/a+b=c@d~e",
    "producer/inventory.json",
)
AWKWARD = ("producer/%20", "producer/a%2fb", "producer/a|b", "producer/%7C")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_kept_as_it_was_given(place: Place, name: str) -> None:
    stored = place.store(1, {name: name, A: "a"})

    assert place.contents() == {name: name.encode(), A: b"a"}
    place.storage.verify(stored)
    place.store(2, {B: "b"}, UPDATE, delete=(name,))
    assert place.contents() == {A: b"a", B: b"b"}


@pytest.mark.parametrize("name", AWKWARD)
def test_an_awkward_name_is_kept_as_it_was_given_or_refused_beforehand(place: Place, name: str) -> None:
    request = place.request(1, {name: name})
    try:
        place.storage.check(request)
    except StepFailed as failed:
        if failed.kind is CONTENT:
            place.needs(Promise.EVERY_NAME)
        raise

    store(place.storage, request)

    assert place.contents() == {name: name.encode()}


def test_names_that_differ_only_in_case_are_kept_apart_where_storage_says_so(place: Place) -> None:
    place.store(1, {B: "b"})
    if not place.storage.distinguishes_case():
        pytest.skip("this storage says that it does not distinguish case, and arkline refuses such names")

    place.store(2, {"producer/a.txt": "small", "producer/A.txt": "large"})

    assert place.contents() == {"producer/A.txt": b"large", "producer/a.txt": b"small"}


def test_empty_files_and_a_large_one_are_stored_whole(place: Place) -> None:
    large = bytes(range(251)) * (LARGE // 251)
    stored = place.store(1, {A: "", B: "", C: large})

    assert {file.path: file.size for file in stored.files if file.path != OWN} == {A: 0, B: 0, C: len(large)}
    place.storage.verify(stored)
    outgoing = {file.path: b"".join(file.pieces) for file in place.storage.read_out(ARK, stored.url, 1)}
    assert (outgoing[A], outgoing[B]) == (b"", b"")
    assert outgoing[C] == large


def test_many_files_are_stored_whole(place: Place) -> None:
    files = {f"producer/{number % 7}/{number:04d}.txt": str(number) for number in range(300)}

    stored = place.store(1, files)

    place.storage.verify(stored)
    assert {file.path: file.sha512 for file in stored.files if file.path != OWN} == {
        path: sha512(text) for path, text in files.items()
    }


def test_objects_with_similar_names_are_different_objects(place: Place) -> None:
    arks = ("ark:/99999/fk4a", "ark:/99999/fk4A", "ark:/99999/fk4a/b", "ark:/99999/fk4a.b", "ark:/99998/fk4a")
    for number, ark in enumerate(arks, 1):
        place.store(number, {A: ark}, ark=ark)

    for number, ark in enumerate(arks, 1):
        assert place.contents(ark=ark) == {A: ark.encode()}
        assert place.number_of_versions(ark) == 1
        assert [place.version_of(other, ark) is not None for other in range(1, 6)] == [
            other == number for other in range(1, 6)
        ]


def test_a_file_that_changed_since_its_download_is_not_stored(place: Place) -> None:
    request = place.request(1, {A: "aaa", B: "b"})
    place.source(1, A).write_text("aab")

    refused(SYSTEM, lambda: store(place.storage, request))

    assert place.version_of(1) is None
    assert not place.storage.has_object(ARK)


def test_what_is_stored_is_not_the_working_copy(place: Place) -> None:
    stored = place.store(1, {A: "a"})
    place.source(1, A).write_text("changed")

    place.storage.verify(stored)
    assert place.contents() == {A: b"a"}


def test_the_node_of_a_version_is_the_one_that_storage_names(place: Place) -> None:
    node = place.storage.node_of(None)

    assert place.storage.node_of(node) == node
    stored = place.store(1, {A: "a"})
    assert place.storage.version_of(ARK, jid(1), node) == stored
    assert place.storage.has_object(ARK, node)
    assert place.storage.read(ARK, A, node=node) == b"a"


def over() -> None:
    raise AttemptOver("the lock is lost")


def test_an_attempt_that_is_over_makes_no_version(place: Place) -> None:
    for over_before in (True, False):
        if not over_before:
            place.store(1, {A: "a"})
        with pytest.raises(AttemptOver):
            store(place.storage, place.request(2, {B: "b"}), over)

        assert place.version_of(2) is None
        assert place.storage.has_object(ARK) != over_before
    assert place.contents() == {A: b"a"}


def test_the_fence_is_asked_right_before_the_version_is_visible(place: Place) -> None:
    visible: list[bool] = []

    def look() -> None:
        visible.append(place.version_of(1, storage=place.given.open(None)) is not None)

    store(place.storage, place.request(1, {A: "a"}), look)

    assert visible
    assert not any(visible)


def test_a_fence_that_raises_at_any_moment_leaves_nothing_and_the_next_attempt_stores_once(
    place: Place,
) -> None:
    for last in range(1, 50):
        ark = f"ark:/99999/fenced{last}"
        calls = 0

        def fence(last: int = last) -> None:
            nonlocal calls
            calls += 1
            if calls == last:
                over()

        request = place.request(last, {A: "a"}, ark=ark)
        try:
            store(place.storage, request, fence)
        except AttemptOver:
            assert place.version_of(last, ark) is None
            assert not place.storage.has_object(ark)
            store(place.storage, request)
            assert place.number_of_versions(ark) == 1
        else:
            break
    assert last > 1
