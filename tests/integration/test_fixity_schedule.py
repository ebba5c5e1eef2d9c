"""The fixity schedule in the fleet: by beat and by command, with its alarm in the mail and in the status."""

import json
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from entrypoints.cli import exit_codes
from operations.fleet.health import Health, overview
from operations.objects.fixity import check_fixity
from operations.reasons import Reason
from operations.site import Site
from pipeline.errors import Action
from pipeline.settings import Settings
from tasks.app import make_context
from tasks.scheduled import fixity
from tasks.worker_context import WorkerContext
from tests.servers.proxy import Proxy
from tests.support.cli import arkline
from tests.support.fleet import set_variables
from tests.support.operators import ANN
from tests.support.outbox import letters
from tests.support.repository import Repository
from tests.support.stores import STORES, Store, flip, with_record
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session, connect
from zkstate.fleet import notes

CONTENT = "v1/content/producer/a.txt"


@pytest.fixture(params=STORES)
def store(
    request: pytest.FixtureRequest,
    repository: Repository,
    session: Session,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Store:
    """A repository whose settings have ZooKeeper and Redis as well."""
    bucket = None
    if request.param == "bucket":
        bucket = request.getfixturevalue("s3_server").bucket(tmp_path)
    store = with_record(repository, session, settings, bucket, monkeypatch)
    set_variables(monkeypatch, repository.settings)
    return store


@pytest.fixture
def context(store: Store) -> Iterator[WorkerContext]:
    opened = make_context(store.repository.settings)
    yield opened
    opened.drop_session()


def stored(store: Store, number: int = 1) -> str:
    return store.repository.recorded(store.repository.job(number, {"a.txt": f"alpha {number}"})).ark


def make_due(store: Store, days: int = 80) -> None:
    """As if every object were stored so many days ago."""
    with_rows = "UPDATE inv_fixities SET since = datetime(since, :days)"
    objects = "UPDATE inv_objects SET created = datetime(created, :days)"
    for statement in (with_rows, objects):
        store.repository.inventory.database.write(
            lambda connection, sql=statement: connection.execute(text(sql), {"days": f"-{days} days"})  # type: ignore[misc]
        )


def answer(*arguments: str, code: int = 0) -> Any:
    return json.loads(arkline(*arguments, "--json", code=code).stdout)


def beat(context: WorkerContext, store: Store, ark: str) -> None:
    """Beat's runs until one has checked the object: a run ends early if the session is in doubt."""
    for _ in range(5):
        context.app.tasks["beat.fixity"]()
        found = store.repository.described(ark).fixity
        if found is not None and found.checked is not None:
            return
    raise AssertionError(f"no run checked {ark}")


def mails(store: Store) -> list[EmailMessage]:
    return letters(store.repository.settings)


def test_beat_proves_what_is_due_and_the_status_and_the_object_say_so(
    session: Session, store: Store, context: WorkerContext
) -> None:
    ark = stored(store)
    make_due(store)

    beat(context, store, ark)

    view = overview(Site(store.repository.settings, session), ANN)
    assert (view.fixity.objects, view.fixity.damaged, view.fixity.overdue) == (1, 0, 0)
    assert (view.fixity.files_intact, view.fixity.files_damaged) == (9, 0)
    shown = answer("object", ark, "--no-verify")
    assert (shown["fixity"]["damaged"], shown["fixity"]["versions"]) == (0, 1)
    assert shown["fixity"]["proved"] is not None
    assert "fixity" in arkline("object", ark, "--no-verify").stdout
    assert mails(store) == []


def test_beat_raises_an_alarm_for_a_bit_that_flipped_and_ends_it_after_the_repair(
    session: Session, store: Store, context: WorkerContext
) -> None:
    ark = stored(store)
    make_due(store)
    store.change(ark, CONTENT, flip)

    beat(context, store, ark)
    context.app.tasks["beat.fixity"]()

    health = overview(Site(store.repository.settings, session), ANN).health
    assert Reason.FIXITY_DAMAGED in {problem.reason for problem in health.problems}
    assert Action.FIXITY_REPORT in {remedy.action for remedy in health.remedies}
    assert health.status is not Health.OK
    (mail,) = mails(store)
    assert ark in mail["Subject"]
    assert "producer/a.txt" in mail.get_content()
    report = answer("fixity", "report", code=4)
    assert report["counts"]["damaged"] == 1
    assert report["damage"][0]["files"][0]["path"] == "producer/a.txt"

    store.change(ark, CONTENT, flip)
    arkline("fixity", "check", ark)

    health = overview(Site(store.repository.settings, session), ANN).health
    assert Reason.FIXITY_DAMAGED not in {problem.reason for problem in health.problems}
    assert [mail["Subject"].split(":")[1] for mail in mails(store)].count(" damage repaired") == 1
    assert "No damage is known" in arkline("fixity", "report").stdout


def test_the_command_reads_what_is_due_and_finds_a_bit_that_flipped(session: Session, store: Store) -> None:
    good, bad = stored(store, 1), stored(store, 2)
    make_due(store)
    store.change(bad, CONTENT, flip)

    run = answer("fixity", "check", code=4)

    assert {check["ark"]: len(check["damaged"]) for check in run["checked"]} == {good: 0, bad: 1}
    assert notes.fixity(session).damaged == 1
    assert answer("fixity", "check") == {
        "checked": [],
        "unreadable": [],
        "complete": True,
        "problem": "",
    }


def test_the_command_reads_all_objects_or_the_named_ones(session: Session, store: Store) -> None:
    first, second = stored(store, 1), stored(store, 2)

    everything = answer("fixity", "check", "--all")
    named = answer("fixity", "check", second)

    assert {check["ark"] for check in everything["checked"]} == {first, second}
    assert [check["ark"] for check in named["checked"]] == [second]
    assert notes.fixity(session).objects == 2


@pytest.mark.parametrize("store", ["disk"], indirect=True)
def test_a_check_whose_zookeeper_goes_away_tells_what_it_read(store: Store, zookeeper_proxy: Proxy) -> None:
    bad = stored(store)
    store.change(bad, CONTENT, flip)
    settings = store.repository.settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})

    def lose_zookeeper(_: object) -> None:
        zookeeper_proxy.refuse()

    with connect(settings, answer_timeout=1) as shaky:
        run = check_fixity(Site(settings, shaky), ANN, (), every=True, on_check=lose_zookeeper)
        zookeeper_proxy.accept()

    assert [check.ark for check in run.damaged] == [bad]
    assert run.complete
    assert "does not answer" in run.problem
    assert exit_codes.of_fixity(run) == exit_codes.BROKEN_CUSTODY


def test_an_overdue_object_is_a_problem_until_it_is_read(session: Session, store: Store) -> None:
    old = stored(store, 1)
    arkline("fixity", "check", "--all")
    make_due(store, 100)
    new = stored(store, 2)

    arkline("fixity", "check", new)
    overdue = overview(Site(store.repository.settings, session), ANN).health
    arkline("fixity", "check")
    after = overview(Site(store.repository.settings, session), ANN).health

    assert Reason.FIXITY_OVERDUE in {problem.reason for problem in overdue.problems}
    assert Action.CHECK_FIXITY in {remedy.action for remedy in overdue.remedies}
    assert Reason.FIXITY_OVERDUE not in {problem.reason for problem in after.problems}
    assert old != new


def test_one_check_runs_in_the_fleet_at_a_time(
    session: Session, store: Store, context: WorkerContext
) -> None:
    stored(store)
    make_due(store)

    with single_flight(session, fixity.LOCK) as clock:
        context.app.tasks["beat.fixity"]()

    assert clock is not None
    assert notes.fixity(session).objects == 0


def test_a_storage_that_is_away_is_no_alarm_and_the_status_says_why_nothing_is_read(
    session: Session, store: Store, context: WorkerContext
) -> None:
    ark = stored(store)
    make_due(store)
    arkline("fixity", "report")
    if store.bucket is None:
        root = store.repository.ocfl.root.folder
        root.rename(root.with_name("elsewhere"))
    else:
        store.bucket.client.delete_object(Bucket=store.bucket.bucket, Key=f"{store.bucket.prefix}/0=ocfl_1.1")

    context.app.tasks["beat.fixity"]()

    assert "not an OCFL storage root" in notes.fixity(session).problem
    assert store.repository.described(ark).events == ()
    arkline("fixity", "check", ark, code=3)


def test_a_stopping_worker_begins_no_check(session: Session, store: Store, context: WorkerContext) -> None:
    ark = stored(store)
    make_due(store)
    context.ask_to_stop()

    context.app.tasks["beat.fixity"]()

    found = store.repository.described(ark).fixity
    assert found is not None
    assert found.checked is None
    assert notes.fixity(session).objects == 1
