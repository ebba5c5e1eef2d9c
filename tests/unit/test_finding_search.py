"""Objects by what checks found in them."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.checks import CheckVerdict, Obstacle
from pipeline.inventory.search.by_findings import SHOWN_MATCHES, FindingSearch, FoundObject
from pipeline.inventory.sight import EVERYTHING, Sight
from pipeline.inventory.sql import SqlInventory, open_inventory
from tests.support.checks import found_in, identified, scanned
from tests.support.recordings import FIRST_DAY, of_job, recording, stored_file

PICTURE, TEXT = stored_file("producer/a.jpg"), stored_file("producer/b.txt")
NOT_SCANNED = FindingSearch(check="clamav", verdict=CheckVerdict.UNCHECKED)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/home/inventory.sqlite"


@pytest.fixture
def inventory(url: str) -> SqlInventory:
    return open_inventory(url)


def ark(name: str) -> str:
    return f"ark:/99999/fk4{name}"


def search(inventory: SqlInventory, asked: FindingSearch, within: frozenset[str] | None = None) -> list[str]:
    """The last letters of the ARKs."""
    keys = inventory.objects_with(asked, Sight(within), 100)
    return [one.ark.removeprefix(ark("")) for one in inventory.found_objects(asked, keys)]


def one_found(inventory: SqlInventory, asked: FindingSearch) -> FoundObject:
    (one,) = inventory.found_objects(asked, inventory.objects_with(asked))
    return one


def test_objects_are_found_by_a_format_of_their_files(inventory: SqlInventory) -> None:
    for name, code in (("a", "fmt/44"), ("b", "fmt/43"), ("c", "fmt/44")):
        inventory.record(of_job(name, files=(PICTURE,), checks=(identified({"a.jpg": code}),)))
    inventory.record(of_job("d", files=(PICTURE,)))

    assert search(inventory, FindingSearch(code="fmt/44")) == ["a", "c"]
    assert search(inventory, FindingSearch(code="fmt/4")) == []
    found = one_found(inventory, FindingSearch(code="fmt/43"))
    assert [(each.version, each.path, each.check, each.code) for each in found.matches] == [
        (1, "producer/a.jpg", "pronom", "fmt/43")
    ]


def test_objects_are_found_by_a_verdict_of_any_check_or_of_one(inventory: SqlInventory) -> None:
    odd = identified({"b.txt": "x-fmt/111"}).model_copy(
        update={"findings": (found_in("b.txt", "not-allowed"),)}
    )
    inventory.record(of_job("a", files=(PICTURE,), checks=(scanned(found_in("a.jpg", "Eicar")),)))
    inventory.record(of_job("b", files=(TEXT,), checks=(scanned("b.txt"), odd)))

    assert search(inventory, FindingSearch(verdict=CheckVerdict.FOUND)) == ["a", "b"]
    assert search(inventory, FindingSearch(verdict=CheckVerdict.FOUND, check="clamav")) == ["a"]
    assert search(inventory, FindingSearch(verdict=CheckVerdict.FINE)) == ["b"]
    assert search(inventory, FindingSearch(check="pronom")) == ["b"]


def test_not_scanned_are_obstacles_silence_and_versions_without_a_run(inventory: SqlInventory) -> None:
    large = found_in("a.jpg", Obstacle.TOO_LARGE, CheckVerdict.UNCHECKED)
    inventory.record(of_job("large", files=(PICTURE,), checks=(scanned(large),)))
    inventory.record(of_job("silent", files=(PICTURE, TEXT), checks=(scanned("a.jpg"),)))
    inventory.record(of_job("never", files=(PICTURE,), checks=(identified({"a.jpg": "fmt/44"}),)))
    inventory.record(of_job("fine", files=(PICTURE,), checks=(scanned("a.jpg"),)))
    inventory.record(of_job("none", files=(PICTURE,)))

    assert search(inventory, NOT_SCANNED) == ["large", "silent", "never", "none"]
    assert search(inventory, FindingSearch(verdict=CheckVerdict.UNCHECKED)) == ["large", "silent", "none"]
    assert search(inventory, FindingSearch(verdict=CheckVerdict.UNCHECKED, code="too-large")) == ["large"]
    keys = inventory.objects_with(NOT_SCANNED)
    shown = inventory.found_objects(NOT_SCANNED, keys)
    assert [(len(one.matches), one.never_checked) for one in shown] == [
        (1, ()),
        (0, ()),
        (0, (1,)),
        (0, (1,)),
    ]


def test_a_version_that_was_not_scanned_is_found_beside_one_that_was(inventory: SqlInventory) -> None:
    inventory.record(recording(ark("a"), jid="jid1", files=(PICTURE,), checks=(scanned("a.jpg"),)))
    inventory.record(recording(ark("a"), 2, "jid2", files=(TEXT,)))

    assert one_found(inventory, NOT_SCANNED).never_checked == (2,)


def test_only_the_last_run_counts(inventory: SqlInventory) -> None:
    inventory.record(of_job("a", files=(PICTURE,), checks=(identified({"a.jpg": "fmt/43"}),)))
    inventory.record(of_job("b", files=(PICTURE,), checks=(scanned(found_in("a.jpg", "Eicar")),)))
    later = FIRST_DAY + timedelta(days=30)

    inventory.add_checks(ark("a"), 1, (identified({"a.jpg": "fmt/44"}, "v120", at=later),))
    inventory.add_checks(ark("b"), 1, (scanned("a.jpg", version="1.5", at=later),))

    assert search(inventory, FindingSearch(code="fmt/43")) == []
    assert search(inventory, FindingSearch(code="fmt/44")) == ["a"]
    assert search(inventory, FindingSearch(verdict=CheckVerdict.FOUND)) == []
    assert search(inventory, NOT_SCANNED) == ["a"]


def outdated(check: str | None = None, **more: Any) -> FindingSearch:
    return FindingSearch(check=check, outdated=True, **more)


def test_objects_are_found_that_an_older_version_of_a_check_read_last(inventory: SqlInventory) -> None:
    later = FIRST_DAY + timedelta(days=30)
    old, new = scanned("a.jpg"), scanned("a.jpg", version="1.5", at=later)
    for name, runs in (("old", (old,)), ("new", (new,)), ("again", (old,)), ("none", ())):
        formats = (identified({"a.jpg": "fmt/44"}),) if name == "new" else ()
        inventory.record(of_job(name, files=(PICTURE,), checks=(*runs, *formats)))
    inventory.add_checks(ark("again"), 1, (new,))

    assert search(inventory, outdated()) == ["old"]
    assert search(inventory, outdated("clamav")) == ["old"]
    assert search(inventory, outdated("pronom")) == []
    assert search(inventory, outdated("clamav"), within=frozenset()) == []
    (run,) = one_found(inventory, outdated()).outdated
    assert (run.version, run.check, run.check_version, run.at) == (1, "clamav", old.version, FIRST_DAY)
    assert one_found(inventory, outdated()).matches == ()


def test_a_version_that_workers_have_and_nobody_used_yet_is_the_newest(inventory: SqlInventory) -> None:
    inventory.record(of_job("a", files=(PICTURE,), checks=(identified({"a.jpg": "fmt/44"}, "v119"),)))
    inventory.record(of_job("b", files=(PICTURE,), checks=(scanned("a.jpg"),)))

    assert search(inventory, outdated()) == []
    assert search(inventory, outdated(installed={"pronom": "v120"})) == ["a"]
    assert search(inventory, outdated(installed={"pronom": "v119"})) == []


def test_a_host_with_an_older_version_makes_no_newer_run_outdated(inventory: SqlInventory) -> None:
    later = FIRST_DAY + timedelta(days=30)
    inventory.record(of_job("a", files=(PICTURE,), checks=(identified({"a.jpg": "fmt/44"}, "v119"),)))
    newer = identified({"a.jpg": "fmt/44"}, "v120", at=later)
    inventory.record(of_job("b", files=(PICTURE,), checks=(newer,)))

    assert search(inventory, outdated(installed={"pronom": "v119"})) == ["a"]


def test_other_conditions_hold_of_the_outdated_run(inventory: SqlInventory) -> None:
    later = FIRST_DAY + timedelta(days=30)
    virus, large = found_in("a.jpg", "Eicar"), found_in("a.jpg", Obstacle.TOO_LARGE, CheckVerdict.UNCHECKED)
    for name, finding in (("virus", virus), ("large", large), ("fine", "a.jpg")):
        inventory.record(of_job(f"old-{name}", files=(PICTURE,), checks=(scanned(finding),)))
        renewed = scanned(finding, version="1.5", at=later)
        inventory.record(of_job(f"new-{name}", files=(PICTURE,), checks=(renewed,)))

    assert search(inventory, outdated(verdict=CheckVerdict.FOUND)) == ["old-virus"]
    assert search(inventory, outdated("clamav", code="Eicar")) == ["old-virus"]
    assert search(inventory, outdated(verdict=CheckVerdict.UNCHECKED)) == ["old-large"]
    assert [one.code for one in one_found(inventory, outdated(code="Eicar")).matches] == ["Eicar"]


def test_a_page_continues_after_the_one_before(inventory: SqlInventory) -> None:
    for name in "abcde":
        inventory.record(of_job(name, files=(PICTURE,), checks=(identified({"a.jpg": "fmt/44"}),)))

    for asked in (FindingSearch(code="fmt/44"), NOT_SCANNED, FindingSearch(check="pronom"), FindingSearch()):
        keys: list[int] = []
        while page := inventory.objects_with(asked, EVERYTHING, 2, keys[-1] if keys else 0):
            keys += page
        assert [one.ark for one in inventory.found_objects(asked, keys)] == list(map(ark, "abcde"))


def test_an_object_is_found_only_where_all_its_versions_may_be_seen(inventory: SqlInventory) -> None:
    formats = (identified({"a.jpg": "fmt/44"}),)
    inventory.record(of_job("own", files=(PICTURE,), profile="maps", checks=formats))
    inventory.record(of_job("other", files=(PICTURE,), profile="scans", checks=formats))
    inventory.record(recording(ark("both"), jid="jid1", files=(PICTURE,), profile="maps", checks=formats))
    inventory.record(recording(ark("both"), 2, "jid2", files=(PICTURE,), profile="scans", checks=formats))

    for asked in (FindingSearch(code="fmt/44"), NOT_SCANNED, FindingSearch(check="pronom"), FindingSearch()):
        assert search(inventory, asked, frozenset({"maps"})) == ["own"]
        assert search(inventory, asked, frozenset({"maps", "scans"})) == ["own", "other", "both"]
        assert search(inventory, asked, frozenset()) == []


def test_a_depositor_finds_the_objects_all_of_whose_versions_she_deposited(inventory: SqlInventory) -> None:
    formats = (identified({"a.jpg": "fmt/44"}),)
    for name, depositor in (("own", "token:anna"), ("other", "token:ben"), ("unknown", "")):
        inventory.record(of_job(name, files=(PICTURE,), depositor=depositor, checks=formats))
    for number, depositor in enumerate(("token:anna", "token:ben"), 1):
        own = {"depositor": depositor, "checks": formats}
        inventory.record(recording(ark("both"), number, f"jid{number}", (PICTURE,), **own))

    for asked in (FindingSearch(code="fmt/44"), NOT_SCANNED, FindingSearch(check="pronom"), FindingSearch()):
        keys = inventory.objects_with(asked, Sight(depositor="token:anna"))
        assert [one.ark for one in inventory.found_objects(asked, keys)] == [ark("own")]
        assert inventory.objects_with(asked, Sight(frozenset({"maps"}), "token:anna")) == ()


def test_of_many_matches_the_first_are_shown(inventory: SqlInventory) -> None:
    names = [f"{number:02}.jpg" for number in range(SHOWN_MATCHES + 1)]
    files = tuple(stored_file(f"producer/{name}") for name in names)
    inventory.record(of_job("a", files=files, checks=(identified(dict.fromkeys(names, "fmt/44")),)))

    found = one_found(inventory, FindingSearch(code="fmt/44"))

    assert (len(found.matches), found.more) == (SHOWN_MATCHES, True)
    assert found.matches[0].path == "producer/00.jpg"
