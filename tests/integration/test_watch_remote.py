"""`arkline watch` and `arkline top` over the API: events instead of repeated questions."""

import signal
from collections.abc import Iterator

import pytest

from operations.board.values import EVERYTHING
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from tests.servers.proxy import Proxy
from tests.support import cli, planting
from tests.support.web import Caller, Web, serving_board
from zkstate.connection.session import Session


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
