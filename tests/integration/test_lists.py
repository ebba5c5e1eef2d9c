"""A list is read page by page; a count reads no job; a damaged job spoils neither."""

from collections.abc import Iterator
from typing import Any

import pytest

from operations.board.values import JobPage
from operations.fleet.health import overview
from operations.jobs.batch_view import batch_view
from operations.site import Site
from pipeline.causes import describe
from pipeline.errors import UsageRefused
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind, JobState
from tests.support import planting
from tests.support.boards import job_page
from tests.support.operators import ANN
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.queue import listings
from zkstate.record import jobs


def pages(session: Session, limit: int = 2, **wanted: Any) -> list[JobPage]:
    """Every page of the list, each begun at the cursor of the page before."""
    found = [job_page(session, limit, **wanted)]
    while found[-1].next is not None:
        found.append(job_page(session, limit, found[-1].next, **wanted))
    return found


def ids(found: list[JobPage]) -> list[str]:
    return [row.jid for page in found for row in page.rows]


@pytest.fixture
def damaged_job(session: Session) -> Iterator[str]:
    """The last of three pending jobs has no readable status; it has again at the end, for the audit."""
    _, jids = planting.split_batch(session, 3)
    path = paths.job_status(jids[-1])
    whole, _ = session.zk.get(path)
    session.zk.set(path, b"no JSON")
    yield jids[-1]
    session.zk.set(path, whole)


@pytest.mark.parametrize("state", [None, JobState.PENDING])
@pytest.mark.parametrize("of_batch", [True, False])
def test_the_pages_of_a_list_have_every_job_once(
    session: Session, state: JobState | None, of_batch: bool
) -> None:
    bid, jids = planting.split_batch(session, 5)
    found = pages(session, bid=bid if of_batch else None, state=state)

    newest_first = not of_batch and state is None
    assert ids(found) == (jids[::-1] if newest_first else jids)
    assert [len(page.rows) for page in found] == [2, 2, 1]
    assert {page.total for page in found} == {5}


def test_the_last_page_has_no_cursor_when_it_is_full(session: Session) -> None:
    planting.split_batch(session, 4)

    assert [page.next is None for page in pages(session, state=JobState.PENDING)] == [False, True]


def test_a_state_is_listed_in_the_order_of_the_queue_across_pages(session: Session) -> None:
    _, late = planting.split_batch(session, 3)
    _, urgent = planting.split_batch(session, 2, priority=1)

    assert ids(pages(session, state=JobState.PENDING)) == [*urgent, *late]


def test_the_jobs_of_a_batch_in_one_state_are_listed(session: Session) -> None:
    bid, jids = planting.split_batch(session, 4)
    planting.split_batch(session, 2)
    planting.apply_event(session, jobs.load(session, jids[1]), Event.FAIL)
    planting.apply_event(session, jobs.load(session, jids[2]), Event.ACQUIRE)

    assert ids(pages(session, bid=bid, state=JobState.PENDING)) == [jids[0], jids[3]]
    assert ids(pages(session, bid=bid, state=JobState.FAILED)) == [jids[1]]
    assert ids(pages(session, bid=bid, state=JobState.ESTIMATING)) == [jids[2]]


def test_completed_jobs_are_listed_before_and_after_they_are_cleaned_up(session: Session) -> None:
    planting.split_batch(session, 2)
    cleaned = planting.job_in(session, JobState.COMPLETED, JobState.NOTIFY)
    fresh = planting.job_in(session, JobState.COMPLETED, JobState.NOTIFY)
    jobs.clean_up(session, cleaned)

    assert ids(pages(session, 1, state=JobState.COMPLETED)) == [fresh.jid, cleaned.jid]


def test_jobs_are_listed_by_collection_age_and_cause(session: Session) -> None:
    _, jids = planting.split_batch(session, 3)
    failed = planting.apply_event(session, jobs.load(session, jids[0]), Event.FAIL, FailureKind.CONTENT)
    planting.apply_event(session, jobs.load(session, jids[1]), Event.FAIL, FailureKind.SYSTEM)
    cause = describe(None, FailureKind.CONTENT, failed.status.message).id

    assert ids(pages(session, state=JobState.FAILED, collection="demo")) == [jids[1], jids[0]]
    assert job_page(session, collection="other").total == 0
    assert job_page(session, older_than=3600).total == 0
    assert ids(pages(session, cause=cause)) == [jids[0]]


def test_every_field_of_a_row_is_that_of_the_record(session: Session) -> None:
    completed = planting.job_in(session, JobState.COMPLETED, JobState.NOTIFY)
    failed = planting.job_in(session, JobState.FAILED, JobState.PROVISIONING)
    pending = planting.one_job(session, priority=7)

    rows = {row.jid: row for row in job_page(session).rows}

    for recorded in listings.readable(listings.job_rows(session, [completed.jid, failed.jid, pending.jid])):
        fields = recorded.model_dump(exclude={"profile"}) | {"collection": recorded.profile}
        assert rows[recorded.jid].model_dump(include=set(fields)) == fields


@pytest.mark.parametrize("cursor", ["", "jid", "05-jid0000000001x/..", "bid0000000001"])
def test_a_cursor_of_another_list_is_refused(session: Session, cursor: str) -> None:
    state = None if cursor.startswith("05") else JobState.PENDING

    with pytest.raises(UsageRefused, match="cursor"):
        job_page(session, 2, cursor, state=state)


def test_a_damaged_job_is_reported_beside_the_others(session: Session, damaged_job: str) -> None:
    (page,) = pages(session, 10, state=JobState.PENDING)

    assert len(page.rows) == 3
    assert [found.id for found in page.unreadable] == [damaged_job]
    assert paths.job_status(damaged_job) in page.unreadable[0].problem


def test_a_job_without_one_of_its_znodes_is_reported(session: Session, damaged_job: str) -> None:
    session.zk.delete(paths.identifiers(damaged_job))

    (found,) = listings.job_rows(session, [damaged_job])
    assert isinstance(found, listings.Unreadable)
    session.zk.create(paths.identifiers(damaged_job), b"{}")


def test_a_page_and_the_counts_read_no_job_beyond_the_page(
    session: Session, settings: Settings, damaged_job: str
) -> None:
    page = job_page(session, 2, state=JobState.PENDING)

    assert (len(page.rows), page.unreadable, page.total) == (2, (), 3)
    assert batch_view(Site(settings, session), ANN, page.rows[0].bid).jobs == {JobState.PENDING: 3}
    assert overview(Site(settings, session), ANN).jobs[JobState.PENDING] == 3


def test_a_batch_counts_its_jobs_by_state(session: Session, site: Site) -> None:
    bid, jids = planting.split_batch(session, 4)
    planting.split_batch(session, 3)
    planting.apply_event(session, jobs.load(session, jids[0]), Event.FAIL)
    planting.apply_event(session, jobs.load(session, jids[1]), Event.ACQUIRE)

    assert batch_view(site, ANN, bid).jobs == {
        JobState.PENDING: 2,
        JobState.ESTIMATING: 1,
        JobState.FAILED: 1,
    }


def test_a_job_that_is_in_no_queue_while_they_are_listed_is_still_counted(
    session: Session, site: Site
) -> None:
    bid, (jid,) = planting.split_batch(session, 1)
    entry = paths.queue_entry(JobState.PENDING, 5, jid)
    session.zk.delete(entry)

    assert batch_view(site, ANN, bid).jobs == {JobState.PENDING: 1}
    session.zk.create(entry)


def test_a_job_is_no_queue(session: Session) -> None:
    _, jids = planting.split_batch(session, 2)

    assert listings.all_jobs(session) == jids
