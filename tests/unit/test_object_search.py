"""Objects by a text: the tokens, the order, what is seen, and an inventory that is not indexed yet."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text, update

from pipeline.checks import CheckVerdict
from pipeline.fixity import StoredFile
from pipeline.inventory.base import Provenance
from pipeline.inventory.search import index
from pipeline.inventory.search.by_findings import FindingSearch, FoundObject
from pipeline.inventory.search.index import Indexing, indexes
from pipeline.inventory.search.tokens import terms_of, words_of
from pipeline.inventory.sight import EVERYTHING, Sight
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.inventory.tables import ingests
from tests.support.checks import found_in, scanned
from tests.support.recordings import recording, stored_file

ANNA, BEN = "token:anna", "token:ben"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/home/inventory.sqlite"


@pytest.fixture
def inventory(url: str) -> SqlInventory:
    return open_inventory(url)


def ark(name: str) -> str:
    return f"ark:/99999/fk4{name}"


def store(inventory: SqlInventory, name: str, title: str = "", number: int = 1, **other: Any) -> None:
    """A version of the object of this name."""
    facts: dict[str, Any] = {
        "depositor": ANNA,
        "jid": f"jid-{name}-{number}",
        "submitter": "",
        "payload_name": "",
    }
    erc = (("who", other.pop("who", "")), ("what", title), ("when", other.pop("when", "")))
    inventory.record(recording(ark(name), number, erc=erc, **{**facts, **other}))


def found(
    inventory: SqlInventory,
    query: str,
    sight: Sight = EVERYTHING,
    search: FindingSearch = FindingSearch(),  # noqa: B008 - frozen
) -> list[str]:
    """The last letters of the ARKs, in their order."""
    return [one.ark.removeprefix(ark("")) for one in objects(inventory, query, sight, search)]


def objects(
    inventory: SqlInventory,
    query: str,
    sight: Sight = EVERYTHING,
    search: FindingSearch = FindingSearch(),  # noqa: B008 - frozen
) -> tuple[FoundObject, ...]:
    keys = [hit.key for hit in inventory.objects_by_text(query, search, sight, 100)]
    return inventory.found_by(query, inventory.found_objects(search, keys))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Brief an Müller, 1911", {"brief", "an", "muller", "1911"}),
        ("scans/img_003.jpg", {"scans/img_003.jpg", "scans", "img_003.jpg", "img", "003", "jpg"}),
        ("Mu\u0308ller", {"muller"}),
        ("GROSSE Straße", {"grosse", "strasse"}),
        ("(Lübeck)", {"lubeck"}),
        ("ﬁnis \uff12\uff10\uff12\uff14", {"finis", "2024"}),
        ("a\x00b \ud800 --- ", {"a", "b"}),
        ("łódź", {"łodz"}),
        ("東京 2020", {"東京", "2020"}),
        ("x" * 100, {"x" * 64}),
    ],
)
def test_a_text_becomes_words_without_case_accents_and_punctuation(text: str, words: set[str]) -> None:
    assert set(words_of(text)) == words


def test_a_query_has_the_words_of_a_text_whole() -> None:
    assert terms_of("  Müller  img_003.jpg, Müller ") == ("muller", "img_003.jpg")
    assert terms_of("ark:99999/fk4-000") == ("ark:/99999/fk4000",)
    assert terms_of("SHA512:" + "AB" * 64) == ("ab" * 16,)
    assert terms_of(' -- " ') == ()


def test_an_object_is_found_by_all_that_is_recorded_of_it(inventory: SqlInventory) -> None:
    file = StoredFile("producer/scans/img_003.jpg", 10, "ab" * 64, added=True)
    store(
        inventory,
        "00000003g",
        "Brief an Müller",
        who="Groß, Åsa",
        when="1911-05-01",
        files=(file, stored_file("system/mrt-erc.txt")),
        provenance={file.path: Provenance("ab" * 64, "md5:" + "cd" * 16)},
        local_id=("MUE-003",),
        profile="nachlass",
        submitter="anna/Anna Berg",
        payload_name="Nachlass Müller.csv",
        bid="bid0000000042",
        jid="jid0000000777",
    )
    store(inventory, "other", "Something else", local_id=("OTHER-1",))

    for query in (
        "Müller",
        "MULLER brief",
        "brie mu",
        "gross asa",
        "1911",
        "1911-05",
        "img_003.jpg",
        "img_0",
        "img",
        "scans/img_0",
        "003 jpg",
        "mue-003",
        "MUE",
        "fk400000003g",
        "fk40000",
        "ark:/99999/fk400000003g",
        "ark:99999/fk4-00000003g",
        "ab" * 64,
        "sha512:" + "ab" * 64,
        "CD" * 16,
        "nachlass",
        "anna berg",
        "bid0000000042",
        "jid0000000777",
        "müller 1911 img_003 nachlass",
    ):
        assert found(inventory, query) == ["00000003g"], query
    for query in ("Mayer", "brief mayer", "uller", "mrt-erc.txt", "1911-06", "ac" * 64, '"', "' OR 1", "u"):
        assert found(inventory, query) == [], query
    assert found(inventory, "99999") == ["other", "00000003g"]


def test_a_result_names_the_file_by_which_it_was_found(inventory: SqlInventory) -> None:
    files = (stored_file("producer/a/img_001.jpg"), stored_file("producer/a/img_002.jpg"))
    store(inventory, "x", "Harbour", files=files, when="1911", who="Berg", profile="maps")

    (one,) = objects(inventory, "harb img_002")
    assert (one.title, one.creator, one.date, one.collection, one.files) == (
        "Harbour",
        "Berg",
        "1911",
        "maps",
        2,
    )
    assert one.file == "a/img_002.jpg"
    assert [one.file for one in objects(inventory, files[1].sha512)] == ["a/img_002.jpg"]
    assert [one.file for one in objects(inventory, "harbour")] == [""]


def test_the_identifier_comes_first_then_titles_then_the_newest(inventory: SqlInventory) -> None:
    store(inventory, "id", local_id=("Hafen Nord",))
    store(inventory, "title-old", "Hafen Nord")
    store(inventory, "title-new", "Hafen Nord und Ost")
    store(inventory, "creator", "Karte Nord", who="Hafenamt")
    store(inventory, "none", "Hafen")

    expected = ["id", "title-new", "title-old", "creator"]
    assert found(inventory, "hafen nord") == expected

    for size in (1, 2, 3):
        keys: list[int] = []
        after = 0
        while page := inventory.objects_by_text("hafen nord", FindingSearch(), EVERYTHING, size, after):
            keys += [hit.key for hit in page]
            after = page[-1].position
        assert [one.ark for one in inventory.found_objects(FindingSearch(), keys)] == list(map(ark, expected))


def test_the_newest_are_compared_first_and_all_are_found(
    inventory: SqlInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL would read every object that has a common word."""
    for name in "abcdef":
        store(inventory, name, "Karte", who="Hafen" if name in "bc" else "", local_id=(name,))
    for number in (1, 3, 500):
        monkeypatch.setattr(index, "NEWEST", number)
        assert found(inventory, "karte") == ["f", "e", "d", "c", "b", "a"]
        assert found(inventory, "hafen") == ["c", "b"]
        (first,) = inventory.objects_by_text("karte", FindingSearch(), EVERYTHING, 1)
        (second,) = inventory.objects_by_text("karte", FindingSearch(), EVERYTHING, 1, first.position)
        assert [one.ark for one in inventory.found_objects(FindingSearch(), [first.key, second.key])] == [
            ark("f"),
            ark("e"),
        ]


def test_only_objects_are_found_all_of_whose_versions_are_seen(inventory: SqlInventory) -> None:
    store(inventory, "anna", "Karte", profile="maps")
    store(inventory, "ben", "Karte", profile="scans", depositor=BEN)
    store(inventory, "both", "Karte", profile="maps")
    store(inventory, "both", "Karte", number=2, profile="scans", depositor=BEN)
    store(inventory, "unknown", "Karte", profile="scans", depositor="")

    assert found(inventory, "karte") == ["unknown", "both", "ben", "anna"]
    assert found(inventory, "karte", Sight(depositor=ANNA)) == ["anna"]
    assert found(inventory, ark("ben"), Sight(depositor=ANNA)) == []
    assert found(inventory, "karte", Sight(frozenset({"scans"}))) == ["unknown", "ben"]
    assert found(inventory, "karte", Sight(frozenset({"maps", "scans"}))) == [
        "unknown",
        "both",
        "ben",
        "anna",
    ]
    assert found(inventory, "karte", Sight(frozenset({"scans"}), ANNA)) == []
    assert found(inventory, "karte", Sight(frozenset())) == []


def test_a_text_and_findings_are_conditions_together(inventory: SqlInventory) -> None:
    virus = (scanned(found_in("a.jpg", "Eicar")),)
    picture = (stored_file("producer/a.jpg"),)
    store(inventory, "bad", "Karte", files=picture, checks=virus)
    store(inventory, "good", "Karte", files=picture, checks=(scanned("a.jpg"),))
    store(inventory, "other", "Brief", files=picture, checks=virus)

    assert found(inventory, "karte", search=FindingSearch(verdict=CheckVerdict.FOUND)) == ["bad"]
    assert found(inventory, "karte", search=FindingSearch(verdict=CheckVerdict.UNCHECKED, check="x")) == [
        "good",
        "bad",
    ]
    assert found(inventory, "karte", search=FindingSearch(check="clamav", code="none")) == []


def test_a_new_version_adds_what_the_object_is_found_by(inventory: SqlInventory) -> None:
    store(inventory, "x", "Old title", number=2, files=(stored_file("producer/two.jpg"),))
    store(inventory, "x", "First title", number=1, files=(stored_file("producer/one.jpg"),))

    for query in ("old", "first", "two.jpg", "one.jpg", "old first one two"):
        assert found(inventory, query) == ["x"]


def test_an_object_is_identified_without_the_prefix_of_its_ark(inventory: SqlInventory) -> None:
    store(inventory, "abc", local_id=("MUE-003",))
    store(inventory, "abcd")

    for name in ("fk4abc", "ark:/99999/fk4abc", "mue-003"):
        assert inventory.arks_identified(name) == (ark("abc"),)
    assert inventory.arks_identified("fk4ab") == ()


def forget(inventory: SqlInventory) -> None:
    """As a release without an index left the inventory."""
    inventory.database.run(update(ingests).values(index_number=0, depositor=None))
    inventory.database.run(text("DROP TABLE inv_search"))
    inventory.database.run(text("DROP TABLE inv_schema"))
    inventory.database.close()


def fill(inventory: SqlInventory, depositors: dict[str, str]) -> None:
    while portion := inventory.unindexed_versions():
        assert inventory.index_versions(portion, depositors) > 0


def test_an_inventory_of_an_earlier_release_is_indexed_afterwards(inventory: SqlInventory, url: str) -> None:
    picture = StoredFile("producer/img_003.jpg", 10, "ab" * 64, added=True)
    for name, bid in (("a", "bid1"), ("b", "bid2")):
        store(
            inventory,
            name,
            "Brief an Müller",
            who="Berg",
            files=(picture,),
            local_id=(f"L-{name}",),
            provenance={picture.path: Provenance("ab" * 64, "md5:" + "cd" * 16)},
            bid=bid,
        )
    store(inventory, "a", "Brief 2", number=2, bid="bid1")

    def rows() -> list[Any]:
        query = index._searches.select().order_by(index._searches.c.rowid)
        return list(inventory.database.read(lambda connection: connection.execute(query).all()))

    before = rows()
    forget(inventory)
    store(inventory, "c", "Brief an Mayer")
    assert found(inventory, "brief") == ["c"]
    assert inventory.indexing() == Indexing(1, 3)
    fill(inventory, {"bid1": ANNA})

    assert inventory.indexing() is None
    assert found(inventory, "brief") == ["c", "b", "a"]
    assert found(inventory, "L-a") == ["a"]
    assert found(inventory, "brief", Sight(depositor=ANNA)) == ["c", "a"]  # nobody knows who deposited b
    assert rows()[0] == before[0]


@pytest.mark.parametrize("what", ["absent", "damaged"])
def test_an_index_that_is_lost_is_made_anew_where_that_is_met(inventory: SqlInventory, what: str) -> None:
    store(inventory, "a", "Brief an Müller")
    if what == "damaged" and inventory.place.startswith("sqlite"):
        inventory.database.run(text("UPDATE inv_search_data SET block = x'00112233' WHERE id > 10"))
    else:
        inventory.database.run(text("DROP TABLE inv_search"))

    assert found(inventory, "brief") == []
    assert inventory.indexing() == Indexing(0, 1)
    inventory.database.run(text("DROP TABLE inv_search"))
    store(inventory, "b", "Brief an Mayer")  # a deposit does not fail for want of the index
    assert inventory.indexing() == Indexing(1, 2)
    fill(inventory, {})

    assert inventory.indexing() is None
    assert found(inventory, "brief") == ["b", "a"]


def test_an_index_of_earlier_rules_is_used_while_the_tokens_of_the_new_ones_are_entered(
    inventory: SqlInventory,
) -> None:
    store(inventory, "a", "Brief an Müller")
    store(inventory, "b", "Brief an Mayer")
    inventory.database.run(update(indexes).values(rules=0))
    inventory.database.run(text("UPDATE inv_schema SET number = '0013'"))
    inventory.database.close()

    assert inventory.indexing() == Indexing(0, 2)
    assert found(inventory, "brief") == ["b", "a"]
    fill(inventory, {})
    assert inventory.indexing() is None


def test_beside_a_release_of_later_rules_objects_are_entered_for_that_one_to_complete(
    inventory: SqlInventory,
) -> None:
    store(inventory, "a", "Brief an Müller")
    inventory.database.run(update(indexes).values(rules=99, number=2))
    store(inventory, "b", "Brief an Mayer")

    assert found(inventory, "brief") == ["b", "a"]
    assert inventory.unindexed_versions() == ()  # they are the other release's
    numbers = inventory.database.rows(select(ingests.c.index_number).order_by(ingests.c.id))
    assert [row["index_number"] for row in numbers] == [1, 0]


def test_a_crash_between_two_portions_loses_and_repeats_nothing(
    inventory: SqlInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "PORTION", 2)
    for name in "abcde":
        store(inventory, name, "Karte")
    forget(inventory)

    portion = inventory.unindexed_versions()
    assert inventory.index_versions(portion, {}) == 2
    assert inventory.index_versions(portion, {}) == 0  # of a process that believed to be alone
    assert inventory.indexing() == Indexing(2, 5)
    fill(inventory, {})

    assert found(inventory, "karte") == ["e", "d", "c", "b", "a"]


def test_a_failed_portion_leaves_nothing_behind(
    inventory: SqlInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        store(inventory, name, "Karte")
    forget(inventory)

    def enter(connection: Any, object_id: int, version: Any) -> None:
        original(connection, object_id, version)
        if version.ark == ark("b"):
            raise KeyboardInterrupt

    original = index.enter
    monkeypatch.setattr(index, "enter", enter)
    with pytest.raises(KeyboardInterrupt):
        fill(inventory, {})
    assert found(inventory, "karte") == []
    assert inventory.indexing() == Indexing(0, 2)
    monkeypatch.undo()
    fill(inventory, {})

    assert found(inventory, "karte") == ["b", "a"]


def test_many_files_are_indexed_in_transactions_of_their_own(
    inventory: SqlInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "FILES_OF_PORTION", 1)
    for name in "abc":
        store(inventory, name, "Karte")
    forget(inventory)

    assert inventory.index_versions(inventory.unindexed_versions(), {}) == 1
