"""Stored versions are checked again when their last run is outdated; what was found before stays."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.attempt import CheckedAttempt
from pipeline.checking import again
from pipeline.checking.again import NotRechecked, Rechecked, Rechecking, Round
from pipeline.checking.running import unlimited
from pipeline.checks import Again, CheckRule, CheckSummary, CheckVerdict
from pipeline.inventory.sql import open_inventory
from pipeline.outcome import AttemptOver, ServiceDown
from pipeline.preservation import premis_record
from pipeline.profiles.profile import Profiles
from tests.servers import postgresql
from tests.support import guests
from tests.support.checks import identified, installed
from tests.support.records import AT
from tests.support.repository import Repository
from tests.support.step_context import collection
from tests.support.stores import STORES, Store, flip

NEW = "v2"
OLD = "v1"
CONTENT = "v1/content/producer"


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(
        tmp_path / "site", monkeypatch, renewed=guests.Renewed, word=guests.WordCheck, away=guests.Away
    ):
        yield


@pytest.fixture(params=[*STORES, "postgresql"])
def store(
    request: pytest.FixtureRequest, repository: Repository, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """Storage on a disk or in a bucket; the inventory in SQLite or in PostgreSQL."""
    bucket = None
    if request.param == "bucket":
        bucket = request.getfixturevalue("s3_server").bucket(tmp_path_factory.mktemp("bucket"))
        repository.storage = bucket.storage
    if request.param == "postgresql":
        repository.close()
        server: postgresql.Server = request.getfixturevalue("postgresql_server")
        repository.inventory = open_inventory(server.new_schema())
    yield Store(repository, bucket)
    repository.close()


@pytest.fixture
def on_disk(repository: Repository) -> Store:
    return Store(repository)


@pytest.fixture
def rechecking(request: pytest.FixtureRequest) -> Iterator[Rechecking]:
    name = "store" if "store" in request.fixturenames else "on_disk"
    repository: Repository = request.getfixturevalue(name).repository
    context = repository.services()
    yield Rechecking(
        inventory=repository.inventory,
        storage=repository.storage,
        checker=context.checker,
        working=repository.settings.working,
        attempt=context.attempt,
        refusal=lambda _: None,
        on_read=lambda _: None,
        over=lambda: False,
        place=unlimited,
        folder="scheduled",
    )
    context.checker.close()


def asks(store: Store, *checks: Any) -> None:
    profile = store.repository.services().profile.model_dump(mode="json", exclude_none=True)
    collection(store.repository.settings, **profile | {"checks": checks})


def stored(
    store: Store, number: int, files: dict[str, str], version: str = OLD, check: str = "renewed"
) -> str:
    """The ARK of an object whose files `check` of this version has identified."""
    ark = store.repository.recorded(store.repository.job(number, files)).ark
    run = identified(dict.fromkeys(files, "fmt/1"), version=version, at=AT + timedelta(minutes=number))
    store.repository.inventory.add_checks(ark, 1, (run.model_copy(update={"check": check}),))
    return ark


def round_of(store: Store, rechecking: Rechecking, check: str = "renewed", position: int = 0) -> Round:
    rules = again.repeated(Profiles(store.repository.settings.profiles))
    return Round(rechecking, check, rules.get(check, {}), position)


def outcomes(one: Round) -> list[Rechecked | NotRechecked]:
    return list(iter(one.step, None))


def runs(store: Store, ark: str) -> tuple[CheckSummary, ...]:
    return store.repository.described(ark).versions[0].checks


def leftovers(store: Store) -> list[Path]:
    folder = store.repository.settings.working / again.FOLDER
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_version_is_checked_again_by_a_newer_check_once_and_the_earlier_run_stays(
    store: Store, rechecking: Rechecking
) -> None:
    ark = stored(store, 1, {"a.txt": "good", "deep/b.txt": "bad: a virus", "empty.txt": ""})
    asks(store, "renewed")

    first = round_of(store, rechecking)
    assert first.outstanding() == 1
    (outcome,) = outcomes(first)

    assert isinstance(outcome, Rechecked)
    assert [(run.version, run.stage, run.fine, run.found) for run in runs(store, ark)] == [
        (OLD, "downloaded", 3, 0),
        (NEW, "recorded", 2, 1),
    ]
    files = {file.path: file for file in store.repository.described(ark).versions[0].files}
    assert [found.code for found in files["producer/deep/b.txt"].findings] == ["Test.Word"]
    second = round_of(store, rechecking)
    assert (outcomes(second), second.outstanding()) == ([], 0)
    assert leftovers(store) == []


def test_each_version_of_an_object_is_checked_by_the_files_that_it_added(
    on_disk: Store, rechecking: Rechecking
) -> None:
    ark = stored(on_disk, 1, {"a.txt": "one", "b.txt": "two"})
    job = on_disk.repository.job(2, {"a.txt": "one", "c.txt": "three"}, primary_id=ark)
    on_disk.repository.recorded(job)
    on_disk.repository.inventory.add_checks(
        ark, 2, (identified({"a.txt": "x", "c.txt": "x"}, OLD).model_copy(update={"check": "renewed"}),)
    )
    asks(on_disk, "renewed")

    done = outcomes(round_of(on_disk, rechecking))

    assert [
        (one.version, [f.path for f in one.run.findings]) for one in done if isinstance(one, Rechecked)
    ] == [
        (1, ["a.txt", "b.txt"]),
        (2, ["c.txt"]),
    ]
    second = on_disk.repository.described(ark).versions[1]
    assert {
        file.path: [found.code for found in file.findings]
        for file in second.files
        if file.path.startswith("producer/")
    } == {"producer/a.txt": [""], "producer/c.txt": [""]}


def test_only_collections_whose_current_profile_asks_for_it_are_checked_again(
    on_disk: Store, rechecking: Rechecking
) -> None:
    stored(on_disk, 1, {"a.txt": "good"})

    for checks in ((), ({"name": "renewed", "again": Again.NEVER},)):
        asks(on_disk, *checks)
        assert again.repeated(Profiles(on_disk.repository.settings.profiles)) == {}


def test_a_check_of_signatures_is_repeated_after_days_if_its_rule_says_so(
    on_disk: Store, rechecking: Rechecking
) -> None:
    ark = stored(on_disk, 1, {"a.txt": "good"}, version="1.0", check="word")
    asks(on_disk, "word")
    assert again.repeated(Profiles(on_disk.repository.settings.profiles)) == {}

    asks(on_disk, {"name": "word", "again": 36_500})
    assert round_of(on_disk, rechecking, "word").outstanding() == 0
    asks(on_disk, {"name": "word", "again": 1})
    (outcome,) = outcomes(round_of(on_disk, rechecking, "word"))

    assert isinstance(outcome, Rechecked)
    assert [run.version for run in runs(on_disk, ark)] == ["1.0", "1.0"]
    assert outcomes(round_of(on_disk, rechecking, "word")) == []


def test_a_host_with_an_older_check_repeats_nothing_of_a_newer_one(
    store: Store, rechecking: Rechecking
) -> None:
    first = stored(store, 1, {"a.txt": "one"}, version=OLD)
    stored(store, 2, {"a.txt": "two"}, version=NEW)
    newer = stored(store, 3, {"a.txt": "three"}, version="v3")
    last = stored(store, 4, {"a.txt": "four"}, version=OLD)
    asks(store, "renewed")

    done = outcomes(round_of(store, rechecking))

    assert [one.ark for one in done] == [first, last]
    assert [run.version for run in runs(store, newer)] == ["v3"]


def test_a_damaged_file_is_no_finding_and_the_other_versions_are_checked(
    store: Store, rechecking: Rechecking
) -> None:
    bad, missing, good = (stored(store, number, {"a.txt": f"text {number}"}) for number in (1, 2, 3))
    store.change(bad, f"{CONTENT}/a.txt", flip)
    store.change(missing, f"{CONTENT}/a.txt", lambda _: None)
    asks(store, "renewed")

    one = round_of(store, rechecking)
    done = outcomes(one)

    assert [(type(each), each.ark) for each in done] == [
        (NotRechecked, bad),
        (NotRechecked, missing),
        (Rechecked, good),
    ]
    assert isinstance(done[0], NotRechecked)
    assert "is not as it was stored: check the fixity of the object" in done[0].problem
    assert (one.outstanding(), one.position) == (2, 0)
    assert [run.version for run in runs(store, bad)] == [OLD]
    store.change(bad, f"{CONTENT}/a.txt", flip)
    assert isinstance(outcomes(round_of(store, rechecking))[0], Rechecked)


def test_an_interrupted_run_continues_after_the_files_that_were_checked(
    on_disk: Store, rechecking: Rechecking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.checking.journal.FLUSH_INTERVAL", 0.0)
    ark = stored(on_disk, 1, {f"{n}.txt": f"text {n}" for n in range(6)})
    asks(on_disk, "renewed")
    files = iter(range(4))

    first = round_of(on_disk, replace(rechecking, over=lambda: next(files, None) is None))
    assert first.step() is None
    assert [run.version for run in runs(on_disk, ark)] == [OLD]
    assert (first.outstanding(), first.position) == (1, 0)

    read: list[int] = []

    def count() -> None:
        read.append(1)

    whole = round_of(on_disk, replace(rechecking, attempt=CheckedAttempt(count)))
    begun = len(read)
    (outcome,) = outcomes(whole)
    pieces = len(read) - begun

    assert isinstance(outcome, Rechecked)
    assert sorted({finding.path for finding in outcome.run.findings}) == [f"{n}.txt" for n in range(6)]
    assert begun < pieces
    assert leftovers(on_disk) == []


def test_a_worker_that_stops_in_a_file_enters_nothing_and_the_next_one_checks_the_version(
    on_disk: Store, rechecking: Rechecking
) -> None:
    ark = stored(on_disk, 1, {"a.txt": "good"})
    asks(on_disk, "renewed")

    def lost() -> None:
        raise AttemptOver("the lock was lost")

    ready = round_of(on_disk, rechecking)
    del ready
    with pytest.raises(AttemptOver):
        replace(rechecking, attempt=CheckedAttempt(lost)).check(ark, 1, CheckRule(name="renewed"))

    assert [run.version for run in runs(on_disk, ark)] == [OLD]
    (outcome,) = outcomes(round_of(on_disk, rechecking))
    assert isinstance(outcome, Rechecked)


def test_files_of_a_run_that_died_are_removed_by_the_next(on_disk: Store, rechecking: Rechecking) -> None:
    stored(on_disk, 1, {"a.txt": "good"})
    asks(on_disk, "renewed")
    folder = on_disk.repository.settings.working / again.FOLDER / "scheduled-renewed"
    for name in ("attempts/dead/stored/a.txt", "checks/renewed.dead.jsonl", "checks.dead.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("half")

    (outcome,) = outcomes(round_of(on_disk, rechecking))

    assert isinstance(outcome, Rechecked)
    assert leftovers(on_disk) == []


def test_a_file_that_does_not_fit_into_working_storage_waits(on_disk: Store, rechecking: Rechecking) -> None:
    ark = stored(on_disk, 1, {"a.txt": "good"})
    asks(on_disk, "renewed")

    (outcome,) = outcomes(round_of(on_disk, replace(rechecking, refusal=lambda need: f"needs {need} bytes")))

    assert isinstance(outcome, NotRechecked)
    assert "needs 4 bytes" in outcome.problem
    assert [run.version for run in runs(on_disk, ark)] == [OLD]


def test_an_object_that_is_gone_from_the_inventory_is_left_out(
    on_disk: Store, rechecking: Rechecking
) -> None:
    assert rechecking.check("ark:/99999/fk4none", 1, CheckRule(name="renewed")) is None
    ark = stored(on_disk, 1, {"a.txt": "good"})
    assert rechecking.check(ark, 7, CheckRule(name="renewed")) is None


def test_a_check_whose_service_is_away_delays_and_one_that_is_not_installed_is_named(
    on_disk: Store, rechecking: Rechecking, tmp_path: Path
) -> None:
    stored(on_disk, 1, {"a.txt": "good"}, check="away")
    waiting = {"name": "away", "again": 1, "settings": {"away": str(tmp_path / "up")}}
    asks(on_disk, waiting)

    with pytest.raises(ServiceDown, match="does not answer"):
        round_of(on_disk, rechecking, "away")
    (tmp_path / "up").touch()
    (outcome,) = outcomes(round_of(on_disk, rechecking, "away"))

    assert isinstance(outcome, Rechecked)
    with pytest.raises(ServiceDown, match="not installed on this host"):
        Round(rechecking, "jhove", {"demo": CheckRule(name="jhove")})


def test_a_finding_where_there_was_none_is_reported_to_the_operator_once(
    store: Store, rechecking: Rechecking
) -> None:
    inventory = store.repository.inventory
    ark = stored(store, 1, {"a.txt": "a virus"})
    clean = stored(store, 2, {"a.txt": "good"})
    asks(store, "renewed")

    done = outcomes(round_of(store, rechecking))

    assert [(one.ark, one.newly_found) for one in done if isinstance(one, Rechecked)] == [
        (ark, True),
        (clean, False),
    ]
    (due,) = inventory.unreported_runs(10)
    assert (due.ark, due.number, due.summary.found) == (ark, 1, 1)
    assert [finding.verdict for finding in due.summary.findings] == [CheckVerdict.FOUND]
    inventory.mark_run_reported(due.id, AT)
    assert inventory.unreported_runs(10) == ()
    same = rechecking.check(ark, 1, CheckRule(name="renewed"))
    assert isinstance(same, Rechecked)
    assert not same.newly_found
    assert inventory.unreported_runs(10) == ()


def test_a_finding_of_which_the_profile_notifies_nobody_is_only_recorded(
    on_disk: Store, rechecking: Rechecking
) -> None:
    stored(on_disk, 1, {"a.txt": "a virus"})
    asks(on_disk, {"name": "renewed", "found": "note"})

    (outcome,) = outcomes(round_of(on_disk, rechecking))

    assert isinstance(outcome, Rechecked)
    assert outcome.newly_found
    assert on_disk.repository.inventory.unreported_runs(10) == ()


def test_the_run_is_an_event_in_the_object_s_premis_beside_the_stored_one(
    on_disk: Store, rechecking: Rechecking
) -> None:
    ark = stored(on_disk, 1, {"a.txt": "good"})
    asks(on_disk, "renewed")
    outcomes(round_of(on_disk, rechecking))

    known = on_disk.repository.described(ark)
    events = premis_record.events_of(known, ())

    assert [event.agent_version for event in events if event.agent == "renewed"] == [OLD, NEW]
