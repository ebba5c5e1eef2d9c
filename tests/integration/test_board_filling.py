"""A board that is filled at once shows what a comparison, job by job, would write."""

import itertools
from collections.abc import Iterator

import pytest

from operations.board.place import Place
from operations.board.ring import Ring
from operations.board.table import Table
from operations.board.tally import Tally
from operations.board.tree import Listings, fill
from operations.board.writer import Writer
from pipeline.settings import Settings
from pipeline.states import Bucket, JobState
from tests.support import planting
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.feed import tree
from zkstate.feed.watch import QueueChange
from zkstate.record import jobs


def plant_contradictions(session: Session) -> None:
    """Jobs in all states, and entries that only damage or a move during the listings leaves."""
    for state in JobState:
        planting.job_in(session, state)
    jobs.clean_up(session, planting.job_in(session, JobState.COMPLETED))
    bid, _ = planting.split_batch(session, 3, priority=1)
    numbers = itertools.count(9_000_000_001)
    for places in (
        [paths.queue_entry(JobState.PENDING, 7, "{}")],
        [paths.queue_entry(JobState.ESTIMATING, 5, "{}"), paths.queue_entry(JobState.PENDING, 2, "{}")],
        [paths.batch_entry(bid, Bucket.FAILED, "{}"), paths.batch_entry(bid, Bucket.PROCESSING, "{}")],
        [paths.batch_entry("bid9999999999", Bucket.COMPLETED, "{}")],
        [paths.queue_entry(JobState.NOTIFY, 5, "{}"), paths.batch_entry(bid, Bucket.DELETED, "{}")],
    ):
        jid = f"jid{next(numbers)}"
        for place in places:
            session.ensure_node(place.format(jid))
    session.ensure_node(f"{paths.queue(JobState.PENDING)}/no entry of arkline's")


def filled_board(session: Session) -> tuple[Writer, Table, Ring]:
    table, ring = Table(), Ring()
    writer = Writer(session, table, ring, Tally())
    writer.compare(all_batches=True)
    return writer, table, ring


@pytest.fixture
def contradictory(settings: Settings) -> Iterator[Session]:
    """A session below a root with contradictions: the auditor would report them."""
    with connect(settings) as opened:
        plant_contradictions(opened)
        yield opened


def test_a_filled_board_has_the_places_that_a_comparison_reads(contradictory: Session) -> None:
    _, table, _ = filled_board(contradictory)

    places = Listings().places(contradictory, tree.batch_ids(contradictory), {}, lambda: None)
    assert table.places() == places
    for row in table.read("SELECT jid, state FROM job"):
        assert row["state"] == places[row["jid"]].state


def test_a_filled_board_gives_jobs_what_their_batch_says(session: Session) -> None:
    bid = planting.owned_job(session, "ann").bid

    _, table, _ = filled_board(session)

    (submitted,) = table.read("SELECT collection, owner, since FROM batch WHERE bid = ?", (bid,))
    assert submitted["owner"] == "ann"
    (row,) = table.read("SELECT collection, owner, since FROM job")
    assert tuple(row) == tuple(submitted)


def test_a_fill_after_one_that_was_cut_off_has_no_jobs_of_before(session: Session) -> None:
    job = planting.one_job(session)
    writer, table, _ = filled_board(session)
    listings = Listings()
    with table.writing():
        table.execute("UPDATE job SET jid = 'jid0000000999'")

    fill(session, table, listings.mark(session, tree.batch_ids(session)))

    assert list(table.places()) == [job.jid]
    assert writer.compare(all_batches=True) == 0


def test_a_fill_publishes_nothing_and_a_later_change_is_published(session: Session) -> None:
    job = planting.job_in(session, JobState.PENDING)
    writer, table, ring = filled_board(session)
    start = ring.since(None).last
    assert start.endswith(".0")

    writer.flush(
        [QueueChange(job.jid, JobState.PENDING, 5, False), QueueChange(job.jid, JobState.HELD, 5, True)]
    )

    assert table.places()[job.jid] == Place(job.bid, JobState.HELD, 5, Bucket.PROCESSING)
    (change,) = ring.since(start).changes
    assert (change.subject, change.state, change.previous) == (job.jid, "held", "pending")
