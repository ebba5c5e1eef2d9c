"""`arkline watch` and `arkline top` over the API: events instead of repeated questions."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from operations.board.values import EVERYTHING
from operations.jobs import batch_view
from pipeline.errors import ServiceUnreachable
from pipeline.notify.batch_report import BatchReport
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from tests.servers.proxy import Proxy
from tests.support import cli, planting
from tests.support.operators import ANN
from tests.support.web import Caller, Web, serving_board
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold


@pytest.fixture
def web(settings: Settings) -> Iterator[Web]:
    with serving_board(settings) as running:
        yield running


def site(caller: Caller, url: str = "") -> dict[str, str]:
    return {"ARKLINE_URL": url or caller.url, "ARKLINE_TOKEN": caller.token}


def test_a_watch_follows_the_events_of_the_batch_to_its_end(
    web: Web, session: Session, settings: Settings, alone: Settings
) -> None:
    batch = planting.batch_in(session, BatchState.REPORTING)
    operator = web.caller(Role.OPERATOR)
    with cli.start(alone, "watch", batch.bid, "--json", **site(operator)) as watching:
        assert watching.stderr is not None
        assert watching.stderr.readline() == f"{batch.bid}  reporting  1 of 1 job, 1 failed\n"

        planting.apply_batch_event(session, batch, Event.FAIL)
        out, err = watching.communicate(timeout=30)
    beside = cli.run(settings, "watch", batch.bid, "--json")

    assert (watching.returncode, beside.code) == (1, 1), err
    assert cli.Finished(1, out, err).json() == beside.json()


def test_a_watch_goes_on_when_the_site_was_away(web: Web, session: Session, alone: Settings) -> None:
    batch = planting.batch_in(session, BatchState.REPORTING)
    operator = web.caller(Role.OPERATOR)
    with Proxy(int(web.url.rpartition(":")[2])) as proxy:
        through = site(operator, f"http://{proxy.hosts}")
        with cli.start(alone, "watch", batch.bid, **through) as watching:
            assert watching.stderr is not None
            watching.stderr.readline()
            proxy.refuse()

            assert "does not answer" in watching.stderr.readline()
            planting.apply_batch_event(session, batch, Event.FAIL)
            proxy.accept()
            out, err = watching.communicate(timeout=30)

    assert watching.returncode == 1
    assert "the site answers again" in err
    assert f"{batch.bid}  failed" in out


def test_a_watch_waits_for_a_site_that_is_away_at_its_last_question(
    web: Web, session: Session, alone: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    answer, asked = batch_view.report, iter((True,))

    def away_once(*of_whom: Any) -> BatchReport:
        if next(asked, False):
            raise ServiceUnreachable("the inventory does not answer")
        return answer(*of_whom)

    monkeypatch.setattr(batch_view, "report", away_once)
    done = cli.run(alone, "watch", batch.bid, **site(web.caller(Role.OPERATOR)))

    assert done.code == 1, done.err
    assert "the inventory does not answer; trying again" in done.err
    assert f"{batch.bid}  failed" in done.out


def test_a_watch_says_what_holds_up_a_batch_that_does_not_move(
    web: Web, session: Session, alone: Settings
) -> None:
    job = planting.one_job(session)
    holds.place(session, Hold.of(ANN, "the source moves"), collection="demo")
    with cli.start(alone, "watch", job.bid, **site(web.caller(Role.OPERATOR))) as watching:
        assert watching.stderr is not None
        watching.stderr.readline()
        said = watching.stderr.readline()

    assert f"{job.bid} " in said
    assert "Collection demo was put on hold by ann@desk" in said
    assert "the source moves" in said


def test_a_token_that_is_refused_ends_the_watch_at_once(web: Web, alone: Settings, session: Session) -> None:
    batch = planting.batch_in(session, BatchState.REPORTING)
    stranger = web.caller(Role.DEPOSITOR)

    done = cli.run(alone, "watch", batch.bid, **site(stranger))

    assert (done.code, f"there is no batch {batch.bid}" in done.err) == (2, True)


@pytest.mark.parametrize("over_api", [False, True])
def test_a_watch_of_the_queue_shows_every_change(
    web: Web, session: Session, settings: Settings, alone: Settings, over_api: bool
) -> None:
    where = site(web.caller(Role.VIEWER)) if over_api else {}
    with cli.start(alone if over_api else settings, "watch", **where) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().endswith("  no jobs\n")

        job = planting.one_job(session)
        assert watching.stdout.readline().endswith("  1 pending\n")
        planting.apply_event(session, job, Event.ACQUIRE)
        assert watching.stdout.readline().endswith("  1 estimating\n")

        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=30)
    assert watching.returncode == 130


def test_top_shows_the_same_over_the_api(
    web: Web, session: Session, settings: Settings, alone: Settings
) -> None:
    before = web.context.board.changes_since(None).last
    planting.split_batch(session, 3)
    while web.context.board.counts(EVERYTHING)[JobState.PENDING] < 3:
        assert web.context.board.wait_change(before, 20)
        before = web.context.board.changes_since(None).last

    beside = cli.run(settings, "top", "--once", "--json").json()
    over_api = cli.run(alone, "top", "--once", "--json", **site(web.caller(Role.VIEWER))).json()

    own: dict[str, object] = {
        "freshness": {},
        "oldest": {},
    }  # of a board: what it saw of jobs that it does not read
    assert {**over_api, **own} == {**beside, **own}
