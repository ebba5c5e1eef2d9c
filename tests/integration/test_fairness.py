"""Among jobs of one priority collections take turns; no collection exceeds its limit of jobs at work."""

from collections import Counter
from collections.abc import Sequence

import pytest

from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline.attempt import UNATTENDED
from pipeline.errors import Action, Remedy
from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.states import Event
from tests.support import planting
from tests.support.operators import ANN
from zkstate.connection.session import Session
from zkstate.queue import fairness, queue
from zkstate.queue.fairness import NO_LIMITS, Limits, Load, Party
from zkstate.queue.queue import PendingTicket
from zkstate.record import batches, jobs
from zkstate.record.jobs import JobMove


def feed(session: Session, in_flight: int, limits: Limits = NO_LIMITS) -> list[PendingTicket]:
    return queue.feed(session, in_flight, limits).tickets


def deposit(session: Session, collection: str, count: int, priority: int = 5, owner: str = "") -> list[str]:
    """The JIDs of a new batch."""
    batch = planting.acquired_batch(session, profile_name=collection, owner=owner)
    plan = planting.plan(count, priority=priority)
    batch = planting.create_jobs(session, batch, plan, planting.WORKING, "test", UNATTENDED)
    batches.finish_split(session, batch)
    return batches.all_jobs(session, batch.bid)


def fed(session: Session, tickets: Sequence[Ticket]) -> Counter[str]:
    """How many tickets each collection got."""
    return Counter(jobs.load(session, ticket.id).configuration.profile_name for ticket in tickets)


def test_a_small_deposit_does_not_wait_for_all_of_a_large_one(session: Session) -> None:
    large = deposit(session, "large", 50)
    small = deposit(session, "small", 3)

    tickets = feed(session, in_flight=8)

    assert fed(session, tickets) == {"large": 5, "small": 3}
    assert {ticket.id for ticket in tickets} == {*large[:5], *small}


def test_the_next_place_goes_to_the_collection_with_the_fewest_jobs_at_work(session: Session) -> None:
    large = deposit(session, "large", 10)
    for ticket in feed(session, in_flight=4):
        job = jobs.acquire(session, ticket, "test")
        jobs.move(session, job, JobMove(Event.ACQUIRE, "test"))
    small = deposit(session, "small", 10)

    assert fed(session, feed(session, in_flight=7)) == {"small": 3}
    assert fed(session, feed(session, in_flight=9)) == {"small": 1, "large": 1}
    assert jobs.load(session, large[4]).status.dispatched_at is not None
    assert jobs.load(session, small[3]).status.dispatched_at is not None
    assert feed(session, in_flight=9) == []


def test_a_more_urgent_job_goes_first_whatever_its_collection(session: Session) -> None:
    deposit(session, "small", 4, priority=5)
    urgent = deposit(session, "large", 4, priority=1)

    assert [ticket.id for ticket in feed(session, in_flight=4)] == urgent


def test_a_collection_gets_no_more_places_than_its_quota(session: Session) -> None:
    deposit(session, "large", 20)
    deposit(session, "small", 3)

    def quota(name: str) -> int | None:
        return 2 if name == "large" else None

    assert fed(session, feed(session, in_flight=10, limits=Limits(quota))) == {"large": 2, "small": 3}
    assert feed(session, in_flight=10, limits=Limits(quota)) == []


def test_a_quota_applies_to_a_collection_that_is_alone(session: Session) -> None:
    deposit(session, "large", 20)

    assert len(feed(session, in_flight=10, limits=Limits(lambda _: 3))) == 3


def test_jobs_of_less_urgency_pass_a_collection_at_its_quota(session: Session) -> None:
    deposit(session, "large", 40, priority=1)
    small = deposit(session, "small", 2, priority=9)

    tickets = feed(session, in_flight=4, limits=Limits(lambda name: 1 if name == "large" else None))

    assert fed(session, tickets) == {"large": 1, "small": 2}
    assert {ticket.id for ticket in tickets} > set(small)


def test_two_feeders_mark_each_job_once(session: Session) -> None:
    deposit(session, "large", 5)
    deposit(session, "small", 5)

    first = feed(session, in_flight=6)
    second = feed(session, in_flight=8)

    assert len({ticket.id for ticket in first + second}) == 8
    assert len(first) == 6


def test_a_backlog_is_not_read_whole_to_find_the_next_collection(session: Session) -> None:
    jids = deposit(session, "large", 300)
    deposit(session, "small", 2)
    read: list[str] = []

    def counted(name: str) -> int | None:
        read.append(name)
        return None

    assert fed(session, feed(session, in_flight=4, limits=Limits(counted))) == {"large": 2, "small": 2}
    assert len(read) < 10
    assert list(fairness.of_jobs(session, jids[:2]).values()) == [Party("large")] * 2


def test_a_queue_of_full_collections_is_recognised_at_once() -> None:
    limits = Limits({"large": 1, "small": None}.get)
    large, small = Party("large"), Party("small")

    assert fairness.all_full([large], Load([large]), limits)
    assert not fairness.all_full([large], Load(), limits)
    assert not fairness.all_full([large, small], Load([large, *[small] * 9]), limits)


def begin(session: Session, tickets: Sequence[Ticket]) -> None:
    """The jobs take their places."""
    for ticket in tickets:
        jobs.move(session, jobs.acquire(session, ticket, "test"), JobMove(Event.ACQUIRE, "test"))


def test_a_collection_that_is_alone_leaves_a_share_of_the_places_to_a_second_one(session: Session) -> None:
    shares = Limits(share=6)
    deposit(session, "large", 20)
    begin(session, feed(session, in_flight=8, limits=shares))
    assert feed(session, in_flight=8, limits=shares) == []
    small = deposit(session, "small", 3)

    tickets = feed(session, in_flight=8, limits=shares)

    assert [ticket.id for ticket in tickets] == small[:2]


def test_a_profile_may_give_its_collection_more_than_a_share(session: Session) -> None:
    deposit(session, "large", 20)

    assert len(feed(session, in_flight=8, limits=Limits(lambda _: 7, share=4))) == 7


def test_a_submitter_with_several_collections_has_one_share(session: Session) -> None:
    shares = Limits(share=6)
    for name in ("one", "two"):
        deposit(session, name, 20, owner="ann")

    assert len(feed(session, in_flight=8, limits=shares)) == 6
    assert feed(session, in_flight=8, limits=shares) == []
    other = deposit(session, "one", 5, owner="bob")
    assert [ticket.id for ticket in feed(session, in_flight=8, limits=shares)] == other[:2]


def test_two_submitters_of_one_collection_have_a_share_each(session: Session) -> None:
    """The profile lets their collection have every place."""
    limits = Limits(lambda _: 8, share=6)
    deposit(session, "large", 20, owner="ann")
    begin(session, feed(session, in_flight=8, limits=limits))
    later = deposit(session, "large", 20, owner="bob")

    assert [ticket.id for ticket in feed(session, in_flight=8, limits=limits)] == later[:2]


def test_the_share_of_a_collection_that_is_alone_reads_no_job_to_find_its_collection(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner in ("ann", "bob"):
        deposit(session, "large", 20, owner=owner)
    monkeypatch.delattr(fairness, "of_jobs")

    assert len(feed(session, in_flight=8, limits=Limits(share=6))) == 6
    with pytest.raises(NameError):
        feed(session, in_flight=8, limits=Limits(lambda _: 8, share=6))


def test_why_names_the_quota_that_a_job_waits_for(session: Session, settings: Settings) -> None:
    settings = settings.model_copy(update={"profiles": settings.home})
    (settings.home / "demo.yaml").write_text(
        "owner: ark:/99999/fk4o\ncollections: ark:/99999/fk4c\nlimits:\n  jobs_at_work: 1\n"
    )
    planting.apply_event(session, planting.one_job(session), Event.ACQUIRE)
    waiting = planting.one_job(session)

    found = why(Site(settings, session), ANN, waiting.jid)

    assert (found.reason, found.waits_for) == (Reason.COLLECTION_AT_QUOTA, "demo")
    assert (found.taken, found.limit) == (1, 1)


def test_why_names_the_share_that_a_job_waits_for_and_who_has_it(
    session: Session, settings: Settings
) -> None:
    """in_flight is 2: one place is left for another collection or submitter."""
    settings = settings.model_copy(update={"in_flight": 2, "share_of_places": 50})
    planting.apply_event(session, planting.one_job(session), Event.ACQUIRE)
    waiting = planting.one_job(session)

    found = why(Site(settings, session), ANN, waiting.jid)

    assert (found.reason, found.waits_for) == (Reason.SHARE_TAKEN, "collection demo")
    assert (found.taken, found.limit) == (1, 1)
    assert found.remedies[0] == Remedy(Action.RAISE_SHARE)
