"""One verb for the ticked rows of a list, or for every row of its filter: preview, act, receipt."""

import re
from urllib.parse import urlencode

import pytest

from operations.board.values import EVERYTHING, BatchSearch, JobSearch
from operations.verbs.bulk import cancel, carry_out, make_plan, read_plan
from pipeline.principal import Role
from pipeline.states import BatchState, Bucket, Event, JobState
from tests.support import planting
from tests.support.boards import until
from tests.support.operators import ANN
from tests.support.web import Browser, Web, browser
from zkstate.connection.session import Session
from zkstate.record import batches, jobs


@pytest.fixture(scope="module")
def session(web: Web) -> Session:
    return web.context.session


@pytest.fixture(scope="module")
def operator(web: Web) -> Browser:
    return browser(web, Role.OPERATOR, "olga")


def failed(web: Web, session: Session, count: int) -> list[str]:
    """Jobs of one batch that have failed, as the board shows."""
    _, jids = planting.split_batch(session, count)
    for jid in jids:
        planting.apply_event(session, jobs.load(session, jid), Event.FAIL)
    bid = jobs.load(session, jids[0]).bid
    search = JobSearch(bid=bid, state=JobState.FAILED)
    until(web.context.board, lambda: web.context.board.jobs(EVERYTHING, search, 1).total == count)
    return jids


def states(session: Session, jids: list[str]) -> list[JobState]:
    return [jobs.load(session, jid).status.status for jid in jids]


def token_in(preview: str) -> str:
    found = re.search(r'name="token" value="([^"]+)"', preview)
    assert found is not None, preview
    return found[1]


def test_a_verb_acts_on_the_ticked_jobs_alone(operator: Browser, web: Web, session: Session) -> None:
    first, second, third = failed(web, session, 3)
    listed = operator.open(f"/jobs?{urlencode({'bid': jobs.load(session, first).bid})}")
    assert f'<input type="checkbox" name="id" value="{first}" aria-label="Tick {first}">' in listed
    assert '<option value="resume">Resume</option>' in listed

    preview = operator.open(f"/bulk?verb=resume&id={first}&id={third}")
    receipt = operator.send("/bulk", verb="resume", token=token_in(preview), reason="over").text

    assert "2 jobs would be acted on, 0 would be refused" in preview
    assert f"arkline resume {first} {third}" in preview
    assert "2 done, 0 refused, 0 moved meanwhile" in receipt
    assert states(session, [first, second, third]) == ["pending", "failed", "pending"]


def test_every_row_of_a_filter_is_chosen_by_its_address(
    operator: Browser, web: Web, session: Session
) -> None:
    chosen, others = failed(web, session, 2), failed(web, session, 1)
    bid = jobs.load(session, chosen[0]).bid
    listed = operator.open(f"/jobs?state=failed&bid={bid}&q=")
    query = f"state=failed&bid={bid}"
    assert f'name="every_job" value="{query}"> all 2 that match' in listed

    preview = operator.open(f"/bulk?{urlencode({'verb': 'delete', 'every_job': query, 'id': others[0]})}")
    refused = operator.send("/bulk", verb="delete", token=token_in(preview))
    operator.send("/bulk", verb="delete", token=token_in(preview), reason="twice")

    assert (refused.status_code, "needs a reason" in refused.text) == (422, True)
    assert states(session, others) == ["failed"]
    assert batches.counts(session, bid)[Bucket.FAILED] == 0


def test_batches_are_stopped_together_and_one_that_moved_is_left_alone(
    operator: Browser, web: Web, session: Session
) -> None:
    bids = [planting.split_batch(session, 2)[0] for _ in range(3)]
    until(web.context.board, lambda: shown(web, bids[-1]))
    listed = operator.open("/batches?status=processing")
    assert '<option value="cancel">Stop the batch</option>' in listed
    assert f'aria-label="Tick {bids[0]}"' in listed

    preview = operator.open(f"/bulk?{urlencode({'verb': 'cancel', 'id': bids[:2]}, doseq=True)}")
    cancel(web.context.site, ANN, bids[1], reason="first")
    while batches.load(session, bids[1]).status.status is BatchState.PROCESSING:
        planting.apply_batch_event(session, batches.load(session, bids[1]), Event.SUCCEED)
    receipt = operator.send("/bulk", verb="cancel", token=token_in(preview), reason="mistake").text

    assert "2 batches would be acted on, 0 would be refused" in preview
    assert f"{bids[0]}</a> processing → reporting, 2 jobs" in preview
    assert "1 done, 0 refused, 1 moved meanwhile" in receipt
    assert states(session, batches.all_jobs(session, bids[0])) == ["failed", "failed"]
    assert states(session, batches.all_jobs(session, bids[2])) == ["pending", "pending"]


def shown(web: Web, bid: str) -> bool:
    return any(row.bid == bid for row in web.context.board.batches(EVERYTHING, BatchSearch(), 10).rows)


def test_the_failed_jobs_of_ticked_batches_are_resumed(operator: Browser, web: Web, session: Session) -> None:
    jids = failed(web, session, 2)
    bid = jobs.load(session, jids[0]).bid
    assert '<option value="resume">Resume the failed jobs</option>' in operator.open("/batches")

    preview = operator.open(f"/bulk?{urlencode({'verb': 'resume', 'id': bid})}")
    operator.send("/bulk", verb="resume", token=token_in(preview))

    assert states(session, jids) == ["pending", "pending"]


def test_what_does_not_apply_is_refused_in_the_preview(operator: Browser, web: Web, session: Session) -> None:
    (jid,) = failed(web, session, 1)
    bid = planting.split_batch(session, 1)[0]

    assert "update-report is for batches" in operator.open(f"/bulk?verb=update-report&id={jid}")
    assert "no failed job that can be resumed" in operator.open(f"/bulk?verb=resume&id={bid}")
    assert "tick at least one row" in operator.open("/bulk?verb=resume", 422)
    assert "is not one of" in operator.open(f"/bulk?verb=acquire&id={jid}", 422)


def test_who_may_not_act_has_nothing_to_tick(web: Web, session: Session) -> None:
    (jid,) = failed(web, session, 1)
    viewer = browser(web, Role.VIEWER, "vera")

    assert jid in viewer.open("/jobs?state=failed")
    assert "checkbox" not in viewer.open("/jobs?state=failed")
    assert "checkbox" not in viewer.open("/batches")
    viewer.open(f"/bulk?verb=resume&id={jid}", 403)


def test_batches_are_stopped_over_the_api_by_the_same_plan(web: Web, session: Session) -> None:
    bid, jids = planting.split_batch(session, 2)
    caller = web.caller(Role.OPERATOR, name="otto")

    plan = caller.post("/v1/bulk/fail/dry-run", json={"select": {"ids": [bid]}}).json()
    without = caller.post("/v1/bulk/fail", json={"token": plan["token"]})
    receipt = caller.post("/v1/bulk/fail", json={"token": plan["token"], "reason": "twice"}).json()
    again = caller.post("/v1/bulk/fail", json={"token": plan["token"], "reason": "twice"}).json()

    assert (plan["jobs"], plan["expected"][0]["jobs"]) == (1, 2)
    assert without.status_code == 422
    assert [(one["id"], one["jobs"]) for one in receipt["done"]] == [(bid, 2)]
    assert again["done"] == []
    assert states(session, jids) == ["failed", "failed"]


def test_a_plan_names_jobs_and_batches_with_the_versions_that_were_read(web: Web, session: Session) -> None:
    bid = planting.split_batch(session, 1)[0]

    plan = make_plan(web.context.site, ANN, Event.FAIL, [bid])
    planned = read_plan(ANN, Event.FAIL, plan.token)

    assert planned.versions == {bid: batches.load(session, bid).version}
    assert carry_out(web.context.site, ANN, planned, reason="why").done[0].id == bid


def test_a_filter_is_all_in_its_address(operator: Browser, web: Web, session: Session) -> None:
    (recent,) = failed(web, session, 1)
    owned = planting.owned_job(session, "token:dora")
    until(web.context.board, lambda: web.context.board.jobs(EVERYTHING, JobSearch(q=owned.jid), 1).total == 1)
    (cause,) = {row.cause for row in web.context.board.jobs(EVERYTHING, JobSearch(q=recent), 1).rows}

    assert recent in operator.open("/jobs?state=failed&younger_than=1d")
    assert recent not in operator.open("/jobs?state=failed&older_than=1d")
    assert recent in operator.open(f"/jobs?cause={cause}")
    assert f'name="cause" value="{cause}"' in operator.open(f"/jobs?cause={cause}")
    listed = operator.open("/jobs?owner=token%3Adora")
    assert (owned.jid in listed, recent in listed) == (True, False)
    assert owned.bid in operator.open("/batches?owner=token%3Adora")
    assert jobs.load(session, recent).bid not in operator.open("/batches?owner=token%3Adora")
    rows = (
        web.caller(Role.VIEWER, name="val").get("/v1/jobs?owner=token:dora&younger_than=3600").json()["rows"]
    )
    assert [row["jid"] for row in rows] == [owned.jid]
