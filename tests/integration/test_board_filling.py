"""A board that is filled at once shows what the record says, job by job."""

import itertools
from collections.abc import Iterator

import pytest

from operations.board.ring import Ring
from operations.board.table import Place, Table
from operations.board.tally import Tally
from operations.board.writer import Writer
from pipeline.settings import Settings
from pipeline.states import QUEUED, Bucket, Event, JobState
from tests.support import planting
from zkstate import feed, paths
from zkstate.connection.session import Session, connect
from zkstate.feed import BucketChange, QueueChange
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


def places_in(session: Session) -> dict[str, Place]:
    """The places of all jobs, as if each of their entries were created now."""
    places: dict[str, Place] = {}
    bids = session.children(paths.BATCHES)
    buckets = [(bid, bucket) for bid, bucket, _ in feed.bucket_marks(session, bids)]
    for bid, bucket, jids in feed.bucket_jids(session, buckets):
        for jid in jids:
            places[jid] = places.get(jid, Place()).after(BucketChange(jid, bid, bucket, True))
    for state in QUEUED:
        for priority, jids in feed.queued_jids(session, state).items():
            for jid in jids:
                places[jid] = places.get(jid, Place()).after(QueueChange(jid, state, priority, True))
    return places


def on_board(table: Table) -> dict[str, Place]:
    return table.places(row["jid"] for row in table.read("SELECT jid FROM job"))


def test_a_filled_board_has_the_places_of_the_record(contradictory: Session) -> None:
    _, table, _ = filled_board(contradictory)

    places = places_in(contradictory)
    assert on_board(table) == places
    for row in table.read("SELECT jid, state FROM job"):
        assert row["state"] == places[row["jid"]].state


def test_a_comparison_writes_the_places_of_the_record(contradictory: Session) -> None:
    writer, table, _ = filled_board(contradictory)
    places = on_board(table)
    with table.writing():
        table.remove_jobs(places)

    assert writer.compare(all_batches=True) == len(places)

    assert on_board(table) == places


def test_a_job_that_ended_while_its_moves_were_followed_is_no_difference(session: Session) -> None:
    job = planting.job_in(session, JobState.NOTIFY)
    writer, table, _ = filled_board(session)
    place = on_board(table)[job.jid]
    jobs.clean_up(session, planting.apply_event(session, job, Event.SUCCEED))

    writer.flush(
        [
            QueueChange(job.jid, JobState.NOTIFY, place.priority, False),
            QueueChange(job.jid, JobState.COMPLETED, place.priority, True),
            BucketChange(job.jid, job.bid, Bucket.PROCESSING, False),
            BucketChange(job.jid, job.bid, Bucket.COMPLETED, True),
            QueueChange(job.jid, JobState.COMPLETED, place.priority, False),
        ]
    )

    assert writer.compare(all_batches=True) == 0


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
    with table.writing():
        table.write_jobs({"jid0000000999": (Place(job.bid, JobState.PENDING, 5), None)}, 0.0)

    table.begin_listing([])
    table.list_queue(JobState.PENDING, 5, [job.jid])
    table.list_bucket(job.bid, Bucket.PROCESSING, [job.jid])
    table.fill()

    assert list(on_board(table)) == [job.jid]
    assert writer.compare(all_batches=True) == 0


def test_a_fill_publishes_nothing_and_a_later_change_is_published(session: Session) -> None:
    job = planting.job_in(session, JobState.PENDING)
    writer, table, ring = filled_board(session)
    start = ring.since(None).last
    assert start.endswith(".0")

    writer.flush(
        [QueueChange(job.jid, JobState.PENDING, 5, False), QueueChange(job.jid, JobState.HELD, 5, True)]
    )

    assert on_board(table)[job.jid] == Place(job.bid, JobState.HELD, 5, Bucket.PROCESSING)
    (change,) = ring.since(start).changes
    assert (change.subject, change.state, change.previous) == (job.jid, "held", "pending")
