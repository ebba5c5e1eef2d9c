"""Callbacks as an operator sees them: owed ones, a delivery now, a test of the receiver."""

import json
import socket
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from entrypoints.cli.commands import queue_commands
from entrypoints.web.limits import SECONDS
from operations.site import Site
from operations.verbs import callbacks as of_operators
from operations.verbs.callbacks import CallbackAnswer
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.notify import callback
from pipeline.principal import Forbidden, Interface, Principal, Role
from pipeline.records import Job, now
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tests.servers.receiver import Receiver
from tests.support import cli, planting
from tests.support.operators import ANN
from tests.support.step_context import collection
from tests.support.web import serving
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session
from zkstate.errors import Busy
from zkstate.record import callbacks, jobs

SECRET = "a secret of the harbour"
VIEWER = Principal(name="vera", role=Role.VIEWER, interface=Interface.API)


@pytest.fixture
def settings(settings: Settings, tmp_path: Path, receiver: Receiver) -> Settings:
    """With the receiver in the profile `demo`, at an address with a password and a token."""
    given = settings.model_copy(update={"profiles": tmp_path / "profiles"})
    collection(given, callback_url=receiver.url("/callback?token=hidden", login="arkline:hidden@"))
    (given.profiles / "demo.secret").write_text(SECRET)
    return given


def deliver(site: Site, jid: str, principal: Principal = ANN) -> CallbackAnswer:
    return of_operators.deliver(site, principal, jid, reason="because")


def failed(session: Session) -> Job:
    return planting.apply_event(session, planting.job_in(session, JobState.PROCESSING), Event.FAIL)


def test_an_owed_callback_is_listed_until_an_operator_delivers_it(
    session: Session, receiver: Receiver, site: Site
) -> None:
    job = failed(session)
    (row,) = of_operators.owed_page(site, ANN, 10).callbacks
    assert (row.jid, row.bid, row.collection, row.tries, row.message) == (job.jid, job.bid, "demo", 0, "")
    assert row.since < row.next_try

    answer = deliver(site, job.jid)

    assert (answer.delivered, answer.signed, answer.message) == (True, True, "the receiver answered 200")
    assert "hidden" not in str(answer)
    assert of_operators.owed_page(site, ANN, 10).callbacks == ()
    noted = jobs.load(session, job.jid).history[-1]
    assert (noted.by, noted.via) == ("ann@desk", Interface.CLI)
    assert noted.message == "failure callback delivered to 127.0.0.1: because"
    assert len(receiver.received) == 1


def test_a_delivery_that_is_refused_stays_owed_with_the_answer(
    session: Session, receiver: Receiver, site: Site
) -> None:
    job = failed(session)
    receiver.answers += [(404, {})]

    answer = deliver(site, job.jid)

    (row,) = of_operators.owed_page(site, ANN, 10).callbacks
    assert not answer.delivered
    assert "answered 404" in answer.message
    assert (row.tries, row.message) == (0, answer.message)
    assert "hidden" not in answer.message


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.COMPLETED])
def test_a_callback_that_was_delivered_is_delivered_again_with_the_same_id(
    session: Session, site: Site, receiver: Receiver, state: JobState
) -> None:
    job = planting.job_in(session, state)
    deliver(site, job.jid)

    assert deliver(site, job.jid).delivered

    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert jobs.load(session, job.jid).history[-1].message == "callback repeated to 127.0.0.1: because"
    assert jobs.load(session, job.jid).status.status is state


def test_only_what_has_ended_and_has_a_receiver_is_delivered(
    session: Session, site: Site, settings: Settings
) -> None:
    working = planting.job_in(session, JobState.PROCESSING)
    with pytest.raises(UsageRefused, match="is processing"):
        deliver(site, working.jid)

    collection(settings)
    with pytest.raises(UsageRefused, match="no callback_url"):
        deliver(site, planting.job_in(session, JobState.COMPLETED).jid)


def test_a_job_that_is_stored_and_whose_callback_failed_is_reported_to_nobody_as_failed(
    session: Session, site: Site, receiver: Receiver
) -> None:
    job = planting.apply_event(session, planting.job_in(session, JobState.NOTIFY), Event.FAIL)

    with pytest.raises(UsageRefused, match=f"the object of {job.jid} is stored") as refused:
        deliver(site, job.jid)

    assert refused.value.remedies == (Remedy(Action.RESUME, job.jid),)
    assert receiver.received == []


def test_a_delivery_by_a_worker_is_not_repeated_meanwhile(session: Session, site: Site) -> None:
    job = failed(session)

    with single_flight(session, f"callback-{job.jid}"), pytest.raises(Busy, match="is being delivered"):
        deliver(site, job.jid)


def test_a_test_callback_is_signed_and_is_of_no_job(site: Site, receiver: Receiver) -> None:
    answer = of_operators.send_test(site, ANN, "demo")

    assert (answer.delivered, answer.signed, answer.jid) == (True, True, "")
    (request,) = receiver.received
    assert json.loads(request.raw)["job:jobState"]["job:jobStatus"] == "TEST"
    assert request.headers["webhook-id"].startswith("test-")
    Webhook(SECRET.encode()).verify(request.raw, dict(request.headers))


def test_a_test_callback_to_an_address_that_is_not_public_is_not_sent(
    session: Session, settings: Settings, receiver: Receiver
) -> None:
    site = Site(settings.model_copy(update={"allow_networks": ""}), session)

    answer = of_operators.send_test(site, ANN, "demo")

    assert not answer.delivered
    assert "not public" in answer.message
    assert receiver.received == []


def test_the_web_process_sends_nothing_that_it_cannot_sign(
    session: Session, site: Site, receiver: Receiver
) -> None:
    (site.settings.profiles / "demo.secret").unlink()
    principal = VIEWER.model_copy(update={"role": Role.OPERATOR})

    with pytest.raises(UsageRefused, match="no secret to sign"):
        of_operators.send_test(site, principal, "demo")

    assert receiver.received == []


def test_a_caller_lists_the_callbacks_of_jobs_that_it_may_see(session: Session, site: Site) -> None:
    job = failed(session)
    limited = VIEWER.model_copy(update={"collections": frozenset({"other"})})
    depositor = VIEWER.model_copy(update={"role": Role.DEPOSITOR})

    assert [row.jid for row in of_operators.owed_page(site, VIEWER, 10).callbacks] == [job.jid]
    for principal in (limited, depositor):
        page = of_operators.owed_page(site, principal, 10)
        assert (page.callbacks, page.owed, page.next) == ((), 0, None)


def test_callbacks_are_listed_page_by_page(session: Session, site: Site) -> None:
    expected = [failed(session).jid for _ in range(3)]

    first = of_operators.owed_page(site, VIEWER, 2)
    second = of_operators.owed_page(site, VIEWER, 2, first.next)

    assert [row.jid for row in (*first.callbacks, *second.callbacks)] == expected
    assert (first.owed, second.next) == (3, None)


def test_a_viewer_sends_nothing(session: Session, site: Site, receiver: Receiver) -> None:
    with pytest.raises(Forbidden):
        deliver(site, failed(session).jid, VIEWER)
    with pytest.raises(Forbidden):
        of_operators.send_test(site, VIEWER, "demo")

    assert receiver.received == []


def test_what_a_worker_does_at_this_moment_is_answered_423_with_when_to_ask_again(
    session: Session, settings: Settings
) -> None:
    job = failed(session)
    with serving(settings) as web, single_flight(session, f"callback-{job.jid}"):
        answer = web.caller(Role.OPERATOR, name="olga").post(f"/v1/callbacks/{job.jid}/deliver", {})

    assert (answer.status_code, answer.json()["code"]) == (423, "busy")
    assert int(answer.headers["Retry-After"]) > 0


def test_the_api_waits_for_a_slow_receiver_as_long_as_workers_do_and_names_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that takes longer than most requests to the API may."""
    monkeypatch.setattr(callback, "TIMEOUT", SECONDS + 2)
    with serving(settings) as web, socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        collection(settings, callback_url=url)
        olga = web.caller(Role.OPERATOR, ["demo"], name="olga")
        tested = olga.post("/v1/collections/demo/test-callback")

    assert tested.status_code == 200, tested.text
    assert (tested.json()["receiver"], tested.json()["delivered"]) == (url, False)
    assert tested.json()["message"] == f"the callback {url} did not answer in time"


def test_the_api_lists_delivers_and_tests_callbacks(
    session: Session, settings: Settings, receiver: Receiver
) -> None:
    job = failed(session)
    with serving(settings) as web:
        olga = web.caller(Role.OPERATOR, ["demo"], name="olga")
        other = web.caller(Role.OPERATOR, ["other"], name="other")
        assert other.post(f"/v1/callbacks/{job.jid}/deliver").status_code == 404
        assert other.post("/v1/collections/demo/test-callback").status_code == 403
        assert [row["jid"] for row in olga.get("/v1/callbacks").json()["callbacks"]] == [job.jid]

        answer = olga.post(f"/v1/callbacks/{job.jid}/deliver", {"reason": "their server is back"})
        tested = olga.post("/v1/collections/demo/test-callback")
        receiver.answers += [(500, {})]
        refused = olga.post("/v1/collections/demo/test-callback")

        assert answer.json()["delivered"], answer.text
        assert tested.json()["delivered"], tested.text
        assert (refused.status_code, refused.json()["delivered"]) == (200, False)
        assert olga.get("/v1/callbacks").json()["callbacks"] == []
        assert web.caller(Role.ADMIN).post("/v1/collections/none/test-callback").status_code == 404
    noted = jobs.load(session, job.jid).history[-1]
    assert (noted.by, noted.via) == ("olga", Interface.API)
    assert "their server is back" in noted.message


def test_a_list_of_callbacks_claims_no_number_that_is_not_known_and_no_time_of_another_zone(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        failed(session)
    monkeypatch.setattr(queue_commands, "PAGE", 1)
    with serving(settings) as web:
        monkeypatch.setenv("ARKLINE_URL", web.url)
        monkeypatch.setenv("ARKLINE_TOKEN", web.caller(Role.VIEWER, ["demo"], name="vera").token)
        listed = cli.arkline("callback", "list").output
        monkeypatch.setenv("ARKLINE_TOKEN", web.caller(Role.VIEWER, name="of-all").token)
        of_all = cli.arkline("callback", "list").output

    assert "There are more than these." in listed
    assert "These are 1 of 2 callbacks." in of_all
    (row,) = [line for line in of_all.splitlines() if line.startswith("jid")]
    assert f"{now():%Y-%m-%d}" not in row


def test_the_command_line_lists_delivers_and_tests_callbacks(
    session: Session, settings: Settings, receiver: Receiver
) -> None:
    job = failed(session)

    receiver.answers += [(200, {}), (200, {}), (410, {})]
    listed, delivered, again, tested, refused = cli.run_all(
        settings,
        [
            ["callback", "list"],
            ["callback", "deliver", job.jid],
            ["callback", "list", "--json"],
            ["callback", "test", "demo"],
            ["callback", "test", "demo"],
        ],
    )

    assert job.jid in listed.out
    assert "the receiver answered 200" in delivered.out
    assert again.json()["callbacks"] == []
    assert "took a test callback (signed): the receiver answered 200" in tested.out
    assert (refused.code, "answered 410" in refused.out) == (1, True)
    assert callbacks.names(session) == []
