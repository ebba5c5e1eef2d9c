"""Reading a version back: every byte is delivered, and damage is never taken for content."""

from collections import Counter
from contextlib import suppress

import pytest

from pipeline.errors import UsageRefused
from pipeline.fixity import ReadBackFile
from pipeline.outcome import DamagedObject
from pipeline.storage.base import VersionEntry
from plugins.conformance.storing import (
    ARK,
    OWN,
    UPDATE,
    A,
    B,
    C,
    Place,
    flip,
    jid,
    key,
    lose,
    sha512,
    store,
)
from plugins.conformance.subjects import Change, Promise

OTHER = "ark:/99999/fk4other"
ELSEWHERE = "gopher://elsewhere.example.org/1"

DAMAGE = pytest.mark.parametrize("damage", [flip, lose], ids=["changed", "lost"])


def read_back(place: Place, url: str, *numbers: int) -> list[ReadBackFile]:
    return [file for file in place.storage.read_back(ARK, url, numbers) if file.path != OWN]


def test_a_file_is_read_from_the_latest_or_another_version(place: Place) -> None:
    first = place.store(1, {A: "one", B: "b"})
    place.store(2, {A: "two"}, UPDATE, delete=(B,))
    read = place.storage.read

    assert (read(ARK, A), read(ARK, A, 1), read(ARK, A, 2)) == (b"two", b"one", b"two")
    assert read(ARK, A, 1, url=first.url) == b"one"
    assert (read(ARK, B), read(ARK, B, 1)) == (None, b"b")
    assert (read(ARK, "producer/none"), read(ARK, A, 3), read(OTHER, A)) == (None, None, None)


def test_every_file_of_every_version_is_read_back(place: Place) -> None:
    stored = place.store(1, {A: "alpha", B: "beta"})
    place.store(2, {B: "new"}, UPDATE)

    files = read_back(place, stored.url)

    assert [(file.number, file.path, file.size, file.sha512, file.problem) for file in files] == [
        (1, A, 5, sha512("alpha"), ""),
        (1, B, 4, sha512("beta"), ""),
        (2, A, 5, sha512("alpha"), ""),
        (2, B, 3, sha512("new"), ""),
    ]
    assert all(file.place and file.at.tzinfo for file in files)
    assert [file.number for file in read_back(place, stored.url, 2)] == [2, 2]


def test_bytes_are_counted_as_they_are_read_and_those_known_already_are_not_read_again(place: Place) -> None:
    stored = place.store(1, {A: "alpha", B: "b" * 100})
    counted: list[int] = []
    files = list(place.storage.read_back(ARK, stored.url, (), counted.append))
    assert sum(counted) == sum(file.size for file in stored.files)

    counted.clear()
    already = {file.place: file for file in files}
    again = list(place.storage.read_back(ARK, stored.url, (), counted.append, already))

    assert counted == []
    assert again == files


def test_the_files_of_a_version_are_read_out_in_order(place: Place) -> None:
    stored = place.store(1, {C: "c", A: "a", B: ""})
    place.store(2, {A: "two"}, UPDATE)

    outgoing = [(file.path, b"".join(file.pieces)) for file in place.storage.read_out(ARK, stored.url, 1)]

    assert [file for file in outgoing if file[0] != OWN] == [(A, b"a"), (B, b""), (C, b"c")]
    assert [path for path, _ in outgoing] == sorted(path for path, _ in outgoing)
    assert list(place.storage.read_out(ARK, stored.url, 3)) == []


def test_one_file_is_read_out_alone(place: Place) -> None:
    stored = place.store(1, {C: "c", A: "a", B: "b"})

    (outgoing,) = place.storage.read_out(ARK, stored.url, 1, B)

    assert (outgoing.path, b"".join(outgoing.pieces)) == (B, b"b")


def test_a_file_that_the_version_lacks_is_not_read_out(place: Place) -> None:
    """A storage that does not list it first says so when it is read."""
    stored = place.store(1, {A: "a"})

    with suppress(DamagedObject):
        assert [b"".join(file.pieces) for file in place.storage.read_out(ARK, stored.url, 1, B)] == []


def test_of_an_object_that_does_not_exist_nothing_is_read(place: Place) -> None:
    url = place.store(1, {A: "a"}).url.replace(ARK, OTHER)

    assert list(place.storage.read_back(OTHER, url)) == []
    assert list(place.storage.read_out(OTHER, url, 1)) == []
    assert place.storage.problems_of(OTHER, url) == ()
    assert place.storage.versions_of(OTHER) == ()


def test_the_url_of_another_kind_of_storage_is_refused(place: Place) -> None:
    place.store(1, {A: "a"})
    for use in (
        lambda: list(place.storage.read_back(ARK, ELSEWHERE)),
        lambda: list(place.storage.read_out(ARK, ELSEWHERE, 1)),
    ):
        with pytest.raises(UsageRefused):
            use()


def test_a_whole_object_has_no_problem(place: Place) -> None:
    stored = place.store(1, {A: "a"})
    place.store(2, {B: "b"}, UPDATE)

    assert place.storage.problems_of(ARK, stored.url) == ()


@DAMAGE
def test_damage_is_named_by_whoever_reads_the_file(place: Place, damage: Change) -> None:
    stored = place.store(1, {A: "alpha", B: "beta"})
    place.change(ARK, A, damage)

    with pytest.raises(DamagedObject, match=r"a\.txt"):
        place.storage.verify(stored)
    with pytest.raises(DamagedObject, match=r"a\.txt"):
        place.storage.read(ARK, A)
    (damaged,) = [file for file in read_back(place, stored.url) if file.path == A]
    assert damaged.sha512 != sha512("alpha")
    assert bool(damaged.problem) == (damaged.sha512 is None)


@DAMAGE
def test_damage_of_one_file_spoils_no_other(place: Place, damage: Change) -> None:
    stored = place.store(1, {A: "alpha", B: "beta"})
    place.change(ARK, A, damage)

    assert place.storage.read(ARK, B) == b"beta"
    assert [file.sha512 for file in read_back(place, stored.url) if file.path == B] == [sha512("beta")]
    store(place.storage, place.request(2, {C: "c"}))
    assert place.contents() == {C: b"c"}


def test_a_lost_file_is_not_read_out_as_an_empty_one(place: Place) -> None:
    stored = place.store(1, {A: "alpha"})
    place.change(ARK, A, lose)

    def read_out() -> dict[str, bytes]:
        return {file.path: b"".join(file.pieces) for file in place.storage.read_out(ARK, stored.url, 1)}

    with pytest.raises(DamagedObject):
        read_out()


@DAMAGE
def test_no_version_relies_on_a_copy_that_is_damaged(place: Place, damage: Change) -> None:
    """Working storage has good bytes of the same file, which would be deleted after the job."""
    place.needs(Promise.COPIES_READ)
    place.store(1, {A: "alpha"})
    place.change(ARK, A, damage)

    with suppress(DamagedObject):
        place.store(2, {A: "alpha"})

    assert place.version_of(2) is None or place.storage.read(ARK, A, 2) == b"alpha"


def entries(place: Place) -> list[VersionEntry]:
    try:
        return list(place.storage.versions())
    except UsageRefused as refusal:
        pytest.skip(f"this storage cannot list its objects: {refusal}")


def test_every_version_of_every_object_is_listed(place: Place) -> None:
    stored = [place.store(1, {A: "a"}), place.store(2, {B: "b"}), place.store(3, {C: "c"}, ark=OTHER)]

    listed = sorted(entries(place), key=lambda entry: (entry.ark, entry.number))

    assert [
        (entry.ark, entry.number, entry.jid, entry.key, entry.url, entry.created) for entry in listed
    ] == [
        (version.ark, version.number, version.jid, version.key, version.url, version.created)
        for version in stored
    ]
    assert [dict(entry.digests) for entry in listed] == [
        {file.path: file.sha512 for file in version.files} for version in stored
    ]
    assert Counter(entry.problem for entry in listed) == {"": 3}


def test_the_versions_of_one_object_are_listed(place: Place) -> None:
    stored = [place.store(1, {A: "a"}), place.store(2, {B: "b"}, UPDATE)]
    place.store(3, {C: "c"}, ark=OTHER)

    for listed in (place.storage.versions_of(ARK), place.storage.versions_of(ARK, stored[0].url)):
        assert [(entry.ark, entry.number) for entry in listed] == [(ARK, 1), (ARK, 2)]
        assert [entry.jid for entry in listed] in ([jid(1), jid(2)], ["", ""])
        assert [entry.key for entry in listed] in ([key(1), key(2)], ["", ""])
        assert [dict(entry.digests) for entry in listed] == [
            {file.path: file.sha512 for file in version.files} for version in stored
        ]
