"""Among jobs of one priority collections take turns; no collection exceeds its limit of jobs at work."""

from collections import Counter

from operations.facts import Reason
from operations.why import why
from pipeline.attempt import UNATTENDED
from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import Event
from tests.support import planting
from zkstate import batches, fairness, jobs, queue
from zkstate.jobs import JobMove
from zkstate.session import Session


def deposit(session: Session, collection: str, count: int, priority: int = 5) -> list[str]:
    """The JIDs of a new batch."""
    batch = planting.acquired_batch(session, profile_name=collection)
    plan = planting.plan(count, priority=priority)
    batch = planting.create_jobs(session, batch, plan, planting.WORKING, "test", UNATTENDED)
    batches.finish_split(session, batch)
    return batches.all_jobs(session, batch.bid)


def fed(session: Session, tickets: list[Ticket]) -> Counter[str]:
    """How many tickets each collection got."""
    return Counter(jobs.load(session, ticket.id).configuration.profile_name for ticket in tickets)


def test_a_small_deposit_does_not_wait_for_all_of_a_large_one(session: Session) -> None:
    large = deposit(session, "large", 50)
    small = deposit(session, "small", 3)

    tickets = queue.feed(session, in_flight=8)

    assert fed(session, tickets) == {"large": 5, "small": 3}
    assert {ticket.id for ticket in tickets} == {*large[:5], *small}


def test_the_next_place_goes_to_the_collection_with_the_fewest_jobs_at_work(session: Session) -> None:
    large = deposit(session, "large", 10)
    for ticket in queue.feed(session, in_flight=4):
        job = jobs.acquire(session, ticket, "test")
        jobs.move(session, job, JobMove(Event.ACQUIRE, "test"))
    small = deposit(session, "small", 10)

    assert fed(session, queue.feed(session, in_flight=7)) == {"small": 3}
    assert fed(session, queue.feed(session, in_flight=9)) == {"small": 1, "large": 1}
    assert jobs.load(session, large[4]).status.dispatched_at is not None
    assert jobs.load(session, small[3]).status.dispatched_at is not None
    assert queue.feed(session, in_flight=9) == []


def test_a_more_urgent_job_goes_first_whatever_its_collection(session: Session) -> None:
    deposit(session, "small", 4, priority=5)
    urgent = deposit(session, "large", 4, priority=1)

    assert [ticket.id for ticket in queue.feed(session, in_flight=4)] == urgent


def test_a_collection_gets_no_more_places_than_its_quota(session: Session) -> None:
    deposit(session, "large", 20)
    deposit(session, "small", 3)

    def quota(name: str) -> int | None:
        return 2 if name == "large" else None

    assert fed(session, queue.feed(session, in_flight=10, quota=quota)) == {"large": 2, "small": 3}
    assert queue.feed(session, in_flight=10, quota=quota) == []


def test_a_quota_applies_to_a_collection_that_is_alone(session: Session) -> None:
    deposit(session, "large", 20)

    assert len(queue.feed(session, in_flight=10, quota=lambda _: 3)) == 3


def test_jobs_of_less_urgency_pass_a_collection_at_its_quota(session: Session) -> None:
    deposit(session, "large", 40, priority=1)
    small = deposit(session, "small", 2, priority=9)

    tickets = queue.feed(session, in_flight=4, quota=lambda name: 1 if name == "large" else None)

    assert fed(session, tickets) == {"large": 1, "small": 2}
    assert {ticket.id for ticket in tickets} > set(small)


def test_two_feeders_mark_each_job_once(session: Session) -> None:
    deposit(session, "large", 5)
    deposit(session, "small", 5)

    first = queue.feed(session, in_flight=6)
    second = queue.feed(session, in_flight=8)

    assert len({ticket.id for ticket in first + second}) == 8
    assert len(first) == 6


def test_a_backlog_is_not_read_whole_to_find_the_next_collection(session: Session) -> None:
    jids = deposit(session, "large", 300)
    deposit(session, "small", 2)
    read: list[str] = []

    def counted(name: str) -> int | None:
        read.append(name)
        return None

    assert fed(session, queue.feed(session, in_flight=4, quota=counted)) == {"large": 2, "small": 2}
    assert len(read) < 10
    assert list(fairness.of_jobs(session, jids[:2]).values()) == ["large", "large"]


def test_a_queue_of_full_collections_is_recognised_at_once() -> None:
    full = {"large": 1, "small": None}.get

    assert fairness.all_full(["large"], {"large": 1}, full)
    assert not fairness.all_full(["large"], {}, full)
    assert not fairness.all_full(["large", "small"], {"large": 1, "small": 9}, full)


def test_why_names_the_quota_that_a_job_waits_for(session: Session, settings: Settings) -> None:
    settings = settings.model_copy(update={"profiles": settings.home})
    (settings.home / "demo.yaml").write_text(
        "owner: ark:/99999/fk4o\ncollections: ark:/99999/fk4c\nlimits:\n  jobs_at_work: 1\n"
    )
    planting.apply_event(session, planting.one_job(session), Event.ACQUIRE)
    waiting = planting.one_job(session)

    found = why(session, settings, waiting.jid)

    assert (found.reason, found.waits_for) == (Reason.COLLECTION_AT_QUOTA, "demo")
    assert (found.taken, found.limit) == (1, 1)
