"""Persistent recursive watches on a real server: every move is reported once and in order."""

import queue
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from pipeline.states import BatchState, Bucket, Event, JobState
from tests.servers.proxy import Proxy
from tests.support import planting
from zkstate.connection.session import Session
from zkstate.feed import BatchChange, BucketChange, Feed, FeedChange, QueueChange, StopsChange
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.record import jobs

TIMEOUT = 20


@dataclass
class Received:
    changes: queue.Queue[FeedChange] = field(default_factory=queue.Queue)
    connections: queue.Queue[bool] = field(default_factory=queue.Queue)

    def next(self, number: int) -> list[FeedChange]:
        return [self.changes.get(timeout=TIMEOUT) for _ in range(number)]

    def of_jobs(self, number: int) -> list[FeedChange]:
        """The next changes of queues and buckets."""
        changes: list[FeedChange] = []
        while len(changes) < number:
            change = self.changes.get(timeout=TIMEOUT)
            if isinstance(change, QueueChange | BucketChange):
                changes.append(change)
        return changes


@pytest.fixture
def received() -> Received:
    return Received()


@pytest.fixture
def feed(shaky: Session, received: Received) -> Iterator[Feed]:
    with Feed(shaky, received.changes.put, received.connections.put) as opened:
        yield opened


def test_a_move_is_one_deleted_and_one_created_entry_in_this_order(
    session: Session, feed: Feed, received: Received
) -> None:
    job = planting.one_job(session)
    assert feed.arm()

    planting.apply_event(session, job, Event.ACQUIRE)

    assert received.of_jobs(2) == [
        QueueChange(job.jid, JobState.PENDING, 5, False),
        QueueChange(job.jid, JobState.ESTIMATING, 5, True),
    ]


def test_a_failure_moves_the_job_to_another_bucket_of_its_batch(
    session: Session, feed: Feed, received: Received
) -> None:
    job = planting.one_job(session)
    feed.arm()

    planting.apply_event(session, job, Event.FAIL)

    assert received.of_jobs(4)[:2] == [
        BucketChange(job.jid, job.bid, Bucket.FAILED, True),
        BucketChange(job.jid, job.bid, Bucket.PROCESSING, False),
    ]


def test_a_completed_job_is_in_its_batch_at_every_moment_and_in_no_queue_at_the_end(
    session: Session, feed: Feed, received: Received
) -> None:
    job = planting.job_in(session, JobState.NOTIFY)
    feed.arm()

    planting.apply_event(session, job, Event.SUCCEED)

    assert received.of_jobs(3) == [
        BucketChange(job.jid, job.bid, Bucket.COMPLETED, True),
        BucketChange(job.jid, job.bid, Bucket.PROCESSING, False),
        QueueChange(job.jid, JobState.NOTIFY, job.status.priority, False),
    ]


def test_a_submission_and_a_hold_are_reported(session: Session, feed: Feed, received: Received) -> None:
    feed.arm()

    bid = planting.batch_in(session, BatchState.PENDING).bid
    submitted = received.next(3)
    holds.place(session, Hold(by="ann"), "demo")

    assert submitted == [BatchChange(bid)] * 3
    assert received.next(1) == [StopsChange()]


def test_no_move_of_many_is_lost_or_reported_twice(session: Session, feed: Feed, received: Received) -> None:
    _, jids = planting.split_batch(session, 60)
    feed.arm()

    for jid in jids:
        planting.apply_event(session, jobs.load(session, jid), Event.ACQUIRE)

    changes = received.of_jobs(2 * len(jids))
    assert [change.jid for change in changes if isinstance(change, QueueChange) and change.present] == jids
    assert len(set(changes)) == len(changes)


def test_a_feed_that_is_armed_again_after_a_cut_reports_again(
    session: Session, shaky: Session, zookeeper_proxy: Proxy, feed: Feed, received: Received
) -> None:
    job = planting.one_job(session)
    feed.arm()
    zookeeper_proxy.cut()
    assert received.connections.get(timeout=TIMEOUT) is False
    assert received.connections.get(timeout=TIMEOUT) is True

    job = planting.apply_event(session, job, Event.ACQUIRE)  # nobody reports it
    assert feed.arm()
    planting.apply_event(session, job, Event.SUCCEED)

    assert received.of_jobs(2) == [
        QueueChange(job.jid, JobState.ESTIMATING, 5, False),
        QueueChange(job.jid, JobState.PROVISIONING, 5, True),
    ]


def test_one_shot_watches_of_the_same_session_still_fire(
    session: Session, shaky: Session, feed: Feed, received: Received
) -> None:
    job = planting.one_job(session)
    feed.arm()
    fired: queue.Queue[object] = queue.Queue()
    shaky.zk.get_children("/jobs/states/pending", watch=fired.put)
    shaky.zk.exists(f"/jobs/states/estimating/05-{job.jid}", watch=fired.put)

    planting.apply_event(session, job, Event.ACQUIRE)

    assert {type(fired.get(timeout=TIMEOUT)).__name__ for _ in range(2)} == {"WatchedEvent"}
    assert len(received.of_jobs(2)) == 2
