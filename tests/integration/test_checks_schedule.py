"""Stored versions that the schedule checks again: by beat, with the operator's notice, status and metrics."""

import json
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from operations.fleet.health import overview
from operations.site import Site
from pipeline.checks import CheckFinding, CheckRun, CheckSummary, CheckVerdict, Stage
from pipeline.principal import Role
from pipeline.records import now
from pipeline.settings import Settings
from tasks.app import make_context
from tasks.scheduled import checks
from tasks.worker_context import WorkerContext
from tests.support import cli, guests
from tests.support.checks import identified, installed
from tests.support.cli import arkline
from tests.support.fleet import set_variables
from tests.support.operators import ANN
from tests.support.outbox import letters
from tests.support.repository import Repository
from tests.support.step_context import collection
from tests.support.stores import Store, flip, with_record
from tests.support.web import Web, browser, serving
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session
from zkstate.fleet import notes, rechecks
from zkstate.fleet.notes import RepeatedCheck
from zkstate.fleet.rechecks import AskedRecheck


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(tmp_path / "site", monkeypatch, renewed=guests.Renewed, away=guests.Away):
        yield


@pytest.fixture
def store(
    repository: Repository, session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Store:
    store = with_record(repository, session, settings, None, monkeypatch)
    set_variables(monkeypatch, repository.settings)
    return store


@pytest.fixture
def context(store: Store) -> Iterator[WorkerContext]:
    opened = make_context(store.repository.settings)
    yield opened
    opened.clients().checker.close()
    opened.drop_session()


def asks(store: Store, *rules: Any) -> None:
    profile = store.repository.services().profile.model_dump(mode="json", exclude_none=True)
    collection(store.repository.settings, **profile | {"checks": rules})


def stored(store: Store, number: int, text: str, check: str = "renewed") -> str:
    """The ARK of an object that an earlier version of the check has identified."""
    ark = store.repository.recorded(store.repository.job(number, {"a.txt": text})).ark
    run = identified({"a.txt": "fmt/1"}, "v1").model_copy(update={"check": check})
    store.repository.inventory.add_checks(ark, 1, (run,))
    return ark


def runs(store: Store, ark: str) -> tuple[CheckSummary, ...]:
    return store.repository.described(ark).versions[0].checks


def beat(context: WorkerContext, store: Store, ark: str) -> None:
    """Beat's runs until one has checked the object: a run ends early if the session is in doubt."""
    for _ in range(5):
        context.app.tasks["beat.checks"]()
        if len(runs(store, ark)) > 1:
            return
    raise AssertionError(f"no run checked {ark}")


def mails(store: Store) -> list[EmailMessage]:
    return letters(store.repository.settings)


def test_beat_checks_what_is_outdated_and_the_status_says_how_much_is_left(
    session: Session, store: Store, context: WorkerContext
) -> None:
    good, bad = stored(store, 1, "good"), stored(store, 2, "good as well")
    store.change(bad, "v1/content/producer/a.txt", flip)
    asks(store, "renewed")

    beat(context, store, good)

    (shown,) = overview(Site(store.repository.settings, session), ANN).repeated_checks
    assert (shown.check, shown.version, shown.outstanding) == ("renewed", "v2", 1)
    assert bad in shown.problem
    assert [run.version for run in runs(store, good)] == ["v1", "v2"]
    store.change(bad, "v1/content/producer/a.txt", flip)
    beat(context, store, bad)
    assert notes.repeated_checks(session) == (RepeatedCheck(check="renewed", version="v2", fine=2),)
    assert mails(store) == []


def test_the_operator_gets_one_notice_of_what_a_newer_check_finds(
    store: Store, context: WorkerContext
) -> None:
    ark = stored(store, 1, "a virus that nobody knew")
    asks(store, "renewed")

    beat(context, store, ark)
    context.app.tasks["beat.checks"]()

    (mail,) = mails(store)
    assert mail["Subject"] == f"arkline: renewed found: {ark}"
    assert "a.txt: Test.Word" in mail.get_content()


def test_the_operator_gets_one_notice_of_what_a_check_finds_after_storing(
    store: Store, context: WorkerContext
) -> None:
    ark = store.repository.recorded(store.repository.job(1, {"a.txt": "a virus"})).ark
    found = CheckFinding(path="a.txt", verdict=CheckVerdict.FOUND, code="Test.Word")
    run = CheckRun(check="late", version="1", stage=Stage.STORED, at=now(), findings=(found,), notice=True)
    for _ in range(2):  # the second one as a repeated attempt
        store.repository.inventory.add_checks(ark, 1, (run,))
        context.app.tasks["beat.checks"]()

    (mail,) = mails(store)
    assert mail["Subject"] == f"arkline: late found: {ark}"


def test_one_process_of_the_fleet_checks_at_a_time(
    session: Session, store: Store, context: WorkerContext
) -> None:
    ark = stored(store, 1, "good")
    asks(store, "renewed")

    with single_flight(session, checks.WORK) as clock:
        context.app.tasks["beat.checks"]()

    assert clock is not None
    assert len(runs(store, ark)) == 1


def test_a_check_that_is_away_keeps_its_progress_and_delays_no_other(
    session: Session, store: Store, context: WorkerContext, tmp_path: Path
) -> None:
    first, waiting = stored(store, 1, "good"), stored(store, 2, "good", check="away")
    up = {"name": "away", "again": 1, "settings": {"away": str(tmp_path / "up")}}
    asks(store, up, "renewed")
    (before,) = (RepeatedCheck(check="away", version="1.0", outstanding=7, position=3),)
    notes.note_repeated_checks(session, (before,))

    beat(context, store, first)

    away, _ = notes.repeated_checks(session)
    assert "nobody listens" in away.problem
    assert away.model_copy(update={"problem": ""}) == before
    (tmp_path / "up").touch()
    notes.note_repeated_checks(session, ())
    beat(context, store, waiting)


def test_a_stopping_worker_begins_no_check(store: Store, context: WorkerContext) -> None:
    ark = stored(store, 1, "good")
    asks(store, "renewed")
    context.ask_to_stop()

    context.app.tasks["beat.checks"]()

    assert len(runs(store, ark)) == 1


def test_without_repeated_checks_nothing_is_noted(
    session: Session, store: Store, context: WorkerContext
) -> None:
    stored(store, 1, "good")
    asks(store, "renewed")
    context.app.tasks["beat.checks"]()
    asks(store)

    context.app.tasks["beat.checks"]()

    assert notes.repeated_checks(session) == ()


def test_an_operator_checks_an_object_again_and_the_findings_are_recorded(store: Store) -> None:
    ark, other = stored(store, 1, "a virus"), stored(store, 2, "good")
    asks(store, "renewed")

    shown = arkline("recheck", ark, code=1).stdout
    quiet = json.loads(arkline("recheck", other, "--check", "renewed", "--json").stdout)

    assert f"{ark} version 1, renewed v2: 0 fine, 1 found, 0 not checked" in " ".join(shown.split())
    assert (quiet["complete"], quiet["not_checked"]) == (True, [])
    assert [run.version for run in runs(store, ark)] == ["v1", "v2"]
    assert [mail["Subject"] for mail in mails(store)] == [f"arkline: renewed found: {ark}"]


@pytest.fixture
def web(store: Store) -> Iterator[Web]:
    with serving(store.repository.settings) as running:
        yield running


def test_an_operator_has_an_object_checked_again_by_a_button_and_its_page_follows_the_request(
    store: Store, context: WorkerContext, web: Web
) -> None:
    ark = stored(store, 1, "a virus")
    operator = browser(web, Role.OPERATOR, name="recheck-2")
    viewer = browser(web, Role.VIEWER, name="recheck-3")
    assert "Check again" not in operator.open(f"/objects/{ark}")
    asks(store, {"name": "renewed", "again": "never"})
    assert "Check all versions again: renewed" in operator.open(f"/objects/{ark}")
    assert "<button>Check all versions again" not in viewer.open(f"/objects/{ark}")

    answer = operator.send(f"/objects/{ark}", version="1", again="true")
    asked = answer.url.removeprefix(web.url)

    assert viewer.send(f"/objects/{ark}", version="1", again="true").status_code == 403
    assert "A worker will check all versions again." in operator.open(asked)
    beat(context, store, ark)
    assert "All versions were checked again at" in operator.open(asked)
    assert "<button>Check all versions again" in operator.open(f"/objects/{ark}?asked={'0' * 16}")


def test_an_operator_has_workers_check_an_object_again_over_the_api(
    store: Store, context: WorkerContext, web: Web
) -> None:
    ark = stored(store, 1, "a virus")
    asks(store, {"name": "renewed", "again": "never"})
    operator = web.caller(Role.OPERATOR, name="recheck-1")
    path = f"/v1/objects/{ark}/rechecks"
    known = runs(store, ark)

    started = operator.post(path, {"check": "renewed"})
    asked = started.json()
    again = operator.post(path, {"check": "renewed"}).json()
    assert (started.status_code, asked["state"], again["id"]) == (202, "waiting", asked["id"])
    assert runs(store, ark) == known  # no thread of the web process checks
    beat(context, store, ark)

    done = operator.get(started.headers["Location"]).json()
    (version,) = done["checked"]
    assert (done["state"], done["not_checked"], done["message"]) == ("done", [], "")
    assert (version["version"], version["summary"]["version"], version["summary"]["found"]) == (1, "v2", 1)
    assert [mail["Subject"] for mail in mails(store)] == [f"arkline: renewed found: {ark}"]
    assert operator.post(path, {"check": "clamav"}).status_code == 422
    assert operator.get(f"{path}/{'0' * 16}").status_code == 404
    assert web.caller(Role.VIEWER, name="recheck-2").post(path, {}).status_code == 403
    assert web.caller(Role.OPERATOR, ["other"], name="recheck-3").post(path, {}).status_code == 404


def test_the_command_waits_for_a_worker_if_it_is_not_beside_the_stack(
    store: Store, context: WorkerContext, web: Web
) -> None:
    good, damaged = stored(store, 1, "good"), stored(store, 2, "good as well")
    asks(store, "renewed")
    store.change(damaged, "v1/content/producer/a.txt", flip)
    site = {"ARKLINE_URL": web.url, "ARKLINE_TOKEN": web.caller(Role.OPERATOR, name="recheck-4").token}

    with cli.start(store.repository.settings, "recheck", good, damaged, **site) as command:
        while command.poll() is None:
            context.app.tasks["beat.checks"]()
        out, err = command.communicate()

    assert command.returncode == 3, err
    assert f"{good} version 1, renewed v2: 1 fine, 0 found, 0 not checked" in " ".join(out.split())
    assert f"{damaged} version 1 was not checked by renewed" in " ".join(out.split())


def test_a_request_whose_check_is_away_waits_says_why_and_delays_no_other(
    store: Store, context: WorkerContext, web: Web, tmp_path: Path
) -> None:
    waiting, other = stored(store, 1, "good"), stored(store, 2, "good")
    asks(
        store,
        {"name": "away", "settings": {"away": str(tmp_path / "up")}},
        {"name": "renewed", "again": "never"},
    )
    operator = web.caller(Role.OPERATOR, name="recheck-5")
    first = operator.post(f"/v1/objects/{waiting}/rechecks", {"check": "away"}).headers["Location"]
    operator.post(f"/v1/objects/{other}/rechecks", {"check": "renewed"})

    beat(context, store, other)

    waits = operator.get(first).json()
    assert (waits["ended"], "nobody listens" in waits["message"]) == (None, True)
    (tmp_path / "up").touch()
    beat(context, store, waiting)
    assert operator.get(first).json()["state"] == "done"


def test_a_request_that_no_worker_could_fulfil_for_a_week_ends(
    session: Session, store: Store, context: WorkerContext
) -> None:
    ark = stored(store, 1, "good")
    asks(store, {"name": "renewed", "again": "never"})
    rechecks.ask(session, AskedRecheck(id="0" * 16, ark=ark, by="ann", at=now() - checks.EXPIRES))

    context.app.tasks["beat.checks"]()

    ended = rechecks.find(session, "0" * 16)
    assert ended is not None
    assert "within 7 days" in ended.message
    assert len(runs(store, ark)) == 1


def test_a_version_that_cannot_be_read_is_named_and_a_check_that_the_profile_lacks_is_refused(
    store: Store,
) -> None:
    ark = stored(store, 1, "good")
    refused = arkline("recheck", ark, code=2)
    asks(store, "renewed")
    store.change(ark, "v1/content/producer/a.txt", flip)

    assert "add it to `checks`" in " ".join(refused.stderr.split())
    arkline("recheck", ark, "--check", "clamav", code=2)
    assert "is not as it was stored" in " ".join(arkline("recheck", ark, code=3).stdout.split())
