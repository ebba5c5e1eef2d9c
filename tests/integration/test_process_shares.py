"""While others wait, no submitter and no collection keeps more than its share of the processes."""

import threading
import time
from collections.abc import Callable

from pipeline.attempt import UNATTENDED
from pipeline.outcome import AttemptOver
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tasks.app import make_context
from tasks.broker import more_urgent, read_queues
from tasks.shares import give_turn
from tests.integration.test_sweep import later
from tests.support import planting
from zkstate import batches, jobs, paths, process_shares, queue, record
from zkstate.jobs import JobMove
from zkstate.locks import AttemptGuard
from zkstate.process_shares import Turn, next_turn
from zkstate.record import Lock
from zkstate.session import Session

LONG = process_shares.OVERDUE_AFTER + 1


def plant(session: Session, count: int, owner: str, collection: str = "demo") -> list[Job]:
    batch = planting.acquired_batch(session, owner=owner, profile_name=collection)
    batch = planting.create_jobs(session, batch, planting.plan(count), planting.WORKING, "test", UNATTENDED)
    batches.finish_split(session, batch)
    return [jobs.load(session, jid) for jid in batches.all_jobs(session, batch.bid)]


def work_on(session: Session, job: Job, state: JobState = JobState.DOWNLOADING) -> Job:
    """The job, locked in `state`."""
    while job.status.status is not state:
        event = Event.ACQUIRE if job.status.status is JobState.PENDING else Event.SUCCEED
        job = planting.apply_event(session, job, event)
    return planting.acquire(session, job)


def waiting(session: Session, *owned: Job) -> set[tuple[str, int]]:
    """The tickets of the jobs, as they are in Redis."""
    fed = {ticket.id: (ticket.id, ticket.epoch) for ticket in queue.feed(session, 100)}
    return {fed[job.jid] for job in owned}


def test_a_job_of_another_submitter_goes_before_the_longest_download(session: Session) -> None:
    held = [work_on(session, job) for job in plant(session, 4, "token:many")]
    (other,) = plant(session, 1, "token:one")
    live = waiting(session, other)

    assert next_turn(session, live, later(session, LONG), share=75) == Turn(other.jid, held[0].jid)


def test_a_job_of_another_collection_goes_first_whoever_submitted_it(session: Session) -> None:
    held = [work_on(session, job) for job in plant(session, 4, "token:one", "maps")]
    (other,) = plant(session, 1, "token:one", "scans")
    live = waiting(session, other)

    assert next_turn(session, live, later(session, LONG), share=75) == Turn(other.jid, held[0].jid)


def test_only_a_download_yields_but_the_other_job_is_next_all_the_same(session: Session) -> None:
    for job in plant(session, 2, "token:many"):
        work_on(session, job, JobState.PROCESSING)
    (other,) = plant(session, 1, "token:one")
    live = waiting(session, other)

    assert next_turn(session, live, later(session, LONG), share=50) == Turn(other.jid, None)


def test_nobody_has_to_yield(session: Session) -> None:
    for job in plant(session, 3, "token:many"):
        work_on(session, job)
    work_on(session, plant(session, 1, "token:one")[0])
    more, of_one = plant(session, 1, "token:many"), plant(session, 1, "token:one")
    live = waiting(session, *more, *of_one)
    now = later(session, LONG)
    tickets = {name: (name, epoch) for name, epoch in live}

    assert next_turn(session, set(), now, share=50) is None, "nobody waits"
    assert next_turn(session, {tickets[more[0].jid]}, now, share=50) is None, "the same submitter waits"
    assert next_turn(session, live, now, share=75) is None, "nobody has more than the share"
    assert next_turn(session, live, later(session, 1), share=50) is None, "the ticket was sent just now"
    assert next_turn(session, live, now, share=50) == Turn(of_one[0].jid, live_download(session))


def live_download(session: Session) -> str:
    """The download that was begun first."""
    jids = queue.queued(session, JobState.DOWNLOADING)
    stats = session.exists_many([paths.job_lock(jid) for jid in jids])
    return min((stat.ctime, jid) for stat, jid in zip(stats, jids, strict=True) if stat)[1]


def test_the_ticket_goes_before_all_others_and_the_download_is_asked_to_yield(
    session: Session, settings: Settings
) -> None:
    held = [work_on(session, job) for job in plant(session, 2, "token:many")]
    (other,) = plant(session, 1, "token:one")
    live = waiting(session, other)
    guard = AttemptGuard(session)
    guard.watch_lock(record.lock_path(held[0]))
    context = make_context(settings.model_copy(update={"share_of_processes": 50}))

    give_turn(context, session, live, later(session, LONG))

    epoch = jobs.load(session, other.jid).status.epoch
    assert read_queues(settings).tickets == {(other.jid, epoch)}
    assert more_urgent(settings, ["io"], priority=0)
    assert eventually(guard.yields)
    guard.check()  # the attempt is not over
    session.zk.delete(record.lock_path(held[0]))
    assert eventually(lambda: is_over(guard))


def is_over(guard: AttemptGuard) -> bool:
    try:
        guard.check()
    except AttemptOver:
        return True
    return False


def eventually(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Watches of ZooKeeper arrive on a thread of their own."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    return condition()


def test_an_attempt_that_was_asked_to_yield_may_still_carry_its_job_onward(session: Session) -> None:
    held = work_on(session, plant(session, 1, "token:many")[0])
    process_shares.ask_to_yield(session, held.jid)

    moved = jobs.move(session, held, JobMove(Event.SUCCEED, "worker", lock=Lock.CARRY))

    assert moved.status.status is JobState.PROCESSING


def test_a_job_that_ended_meanwhile_is_not_asked(session: Session) -> None:
    process_shares.ask_to_yield(session, "jid0000000009")
