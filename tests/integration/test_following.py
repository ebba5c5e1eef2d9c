"""Following a batch: what ZooKeeper pushes, and no read in between."""

from operations.progress import follow
from operations.site import Site
from pipeline.states import BatchState, Bucket, Event
from tests.support import planting
from tests.support.boards import requests_of
from tests.support.operators import ANN
from zkstate import jobs
from zkstate.session import Session


def test_a_batch_that_does_not_change_is_not_read_again(session: Session, site: Site) -> None:
    views = follow(site, ANN, planting.batch_in(session, BatchState.PROCESSING).bid, tick=0.1)
    first = next(views)
    next(views)
    sent = requests_of(session)

    assert [next(views) for _ in range(3)] == [first] * 3
    assert requests_of(session) == sent


def test_a_job_that_ends_and_the_end_of_the_batch_are_pushed(session: Session, site: Site) -> None:
    bid, (first, second) = planting.split_batch(session, 2)
    views = follow(site, ANN, bid)
    assert next(views).ended_jobs == 0

    planting.apply_event(session, jobs.load(session, first), Event.FAIL)
    assert next(views).buckets[Bucket.FAILED] == 1
    planting.apply_event(session, jobs.load(session, second), Event.FAIL)
    assert next(views).buckets[Bucket.FAILED] == 2
