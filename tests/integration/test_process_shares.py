"""While others wait, no submitter and no collection keeps more than its share of the processes."""

import pytest
from kazoo.protocol.states import ZnodeStat

from pipeline.attempt import UNATTENDED, is_over
from pipeline.records import Batch, Job
from pipeline.settings import Settings
from pipeline.states import Event, JobState
from tasks.app import make_context
from tasks.broker import dispatch_batch, more_urgent, read_queues
from tasks.retry import giving_up
from tasks.scheduled import beat
from tasks.scheduled.beat import give_turn
from tests.integration.test_sweep import later
from tests.support import planting
from tests.support.polling import eventually
from zkstate import paths
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session
from zkstate.queue import fairness, queue
from zkstate.queue.fairness import Turn, next_turn
from zkstate.record import batches, jobs, record
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

LONG = fairness.OVERDUE_AFTER + 1


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
    fed = {ticket.id: (ticket.id, ticket.epoch) for ticket in queue.feed(session, 100).tickets}
    return {fed[job.jid] for job in owned}


def test_a_job_of_another_submitter_goes_before_the_longest_download(session: Session) -> None:
    held = [work_on(session, job) for job in plant(session, 4, "token:many")]
    (other,) = plant(session, 1, "token:one")
    live = waiting(session, other)

    assert next_turn(session, live, later(session, LONG), share=75) == Turn((other.jid,), held[0].jid)


def test_a_job_of_another_collection_goes_first_whoever_submitted_it(session: Session) -> None:
    held = [work_on(session, job) for job in plant(session, 4, "token:one", "maps")]
    (other,) = plant(session, 1, "token:one", "scans")
    live = waiting(session, other)

    assert next_turn(session, live, later(session, LONG), share=75) == Turn((other.jid,), held[0].jid)


def test_only_a_download_yields_but_the_other_job_is_next_all_the_same(session: Session) -> None:
    for job in plant(session, 2, "token:many"):
        work_on(session, job, JobState.PROCESSING)
    (other,) = plant(session, 1, "token:one")
    live = waiting(session, other)

    assert next_turn(session, live, later(session, LONG), share=50) == Turn((other.jid,), None)


def test_a_ticket_of_an_earlier_epoch_is_nobodys_turn_and_hides_no_job_at_work(session: Session) -> None:
    """Redis keeps the ticket that a turn replaced until a worker takes it, long after its job has ended."""
    held = [work_on(session, job) for job in plant(session, 2, "token:many")]
    ended, other = plant(session, 2, "token:one")
    live = waiting(session, ended, other)
    old = {ticket for ticket in live if ticket[0] == ended.jid}
    fed = jobs.load(session, ended.jid)
    failed = JobMove(Event.FAIL, "operator", message="no", lock=Lock.FREE)
    epoch = jobs.move(session, fed, failed).status.epoch
    stale = {(job.jid, job.status.epoch - 1) for job in held}

    assert next_turn(session, live | stale, later(session, LONG), share=50) == Turn((other.jid,), held[0].jid)
    assert next_turn(session, old | stale, later(session, LONG), share=50) is None
    assert jobs.load(session, ended.jid).status.epoch == epoch


def test_a_job_at_work_whose_ticket_is_doubled_takes_nobodys_turn(session: Session) -> None:
    for job in plant(session, 3, "token:many"):
        work_on(session, job)
    at_work, other = plant(session, 2, "token:one")
    live = waiting(session, at_work, other)
    planting.acquire(session, jobs.load(session, at_work.jid))

    turn = next_turn(session, live, later(session, LONG), share=50)

    assert turn is not None
    assert turn.names == (other.jid,)


def test_an_old_ticket_in_redis_ends_no_sweep(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in plant(session, 2, "token:many"):
        work_on(session, job)
    ended, other = plant(session, 2, "token:one")
    live = waiting(session, ended, other)
    no = JobMove(Event.FAIL, "operator", message="no", lock=Lock.FREE)
    jobs.move(session, jobs.load(session, ended.jid), no)
    monkeypatch.setattr(beat, "SHARE", 50)
    context = make_context(settings)
    own = context.session()
    try:
        give_turn(context, own, live, later(session, LONG))

        assert read_queues(settings).tickets == {(other.jid, jobs.load(session, other.jid).status.epoch)}
        assert context.session() is own
    finally:
        context.drop_session()


def test_a_mistake_about_one_job_ends_no_sweep(session: Session, settings: Settings) -> None:
    context = make_context(settings)
    own = context.session()
    try:
        with giving_up(context, locks=False, jid="jid0000000001"):
            JobState("a mistake in the code")

        assert context.session() is own
    finally:
        context.drop_session()


def test_the_youngest_download_starts_anew_if_one_that_was_asked_cannot_be_continued(
    session: Session,
) -> None:
    held = [work_on(session, job) for job in plant(session, 4, "token:many")]
    (other,) = plant(session, 1, "token:one")
    live = waiting(session, other)
    guard = AttemptGuard(session)
    guard.watch_lock(record.lock_path(held[3]))

    fairness.ask_to_yield(session, held[0].jid)
    soon = next_turn(session, live, later(session, LONG), share=75)
    at_last = next_turn(session, live, later(session, fairness.YIELD_WITHIN + LONG), share=75)

    assert soon == Turn((other.jid,), held[1].jid), "one download after the other is asked"
    assert at_last == Turn((other.jid,), held[3].jid, anew=True)
    guard.check()
    fairness.ask_to_yield(session, held[3].jid, anew=True)
    assert eventually(lambda: is_over(guard), 20)
    assert eventually(guard.yields, 20)


def test_older_downloads_are_left_alone_when_a_party_has_no_more_than_its_share(session: Session) -> None:
    held = [work_on(session, job) for job in plant(session, 4, "token:many")]
    (other,) = plant(session, 1, "token:one")
    live = waiting(session, other)
    fairness.ask_to_yield(session, held[0].jid)
    work_on(session, plant(session, 1, "token:third")[0])
    record.hand_back(session, jobs.load(session, held[3].jid), "test", lock=Lock.BREAK)

    assert next_turn(session, live, later(session, fairness.YIELD_WITHIN + LONG), share=75) is None


def unsplit(session: Session, owner: str) -> Batch:
    """A batch whose ticket is in Redis."""
    return batches.load(session, batches.submit(session, planting.submission(owner=owner)))


def test_a_batch_of_another_submitter_is_split_before_the_youngest_split_ends(session: Session) -> None:
    held = [planting.acquired_batch(session, owner="token:many") for _ in range(4)]
    other = unsplit(session, "token:one")
    more = unsplit(session, "token:many")
    live = {(batch.bid, batch.status.epoch) for batch in (other, more)}
    guard = AttemptGuard(session)
    guard.watch_lock(record.lock_path(held[3]))

    turn = next_turn(session, live, later(session, LONG), share=75)

    assert turn == Turn((other.bid,), held[3].bid, anew=True)
    fairness.ask_to_yield(session, held[3].bid, anew=True)
    assert eventually(lambda: is_over(guard), 20)


def test_a_job_goes_before_the_longest_split_where_no_process_downloads(session: Session) -> None:
    held = [planting.acquired_batch(session, owner="token:many") for _ in range(3)]
    others = plant(session, 10, "token:one")
    live = waiting(session, *others)

    turn = next_turn(session, live, later(session, LONG), share=75)

    assert turn is not None
    assert (turn.yielding, turn.anew) == (held[0].bid, True)
    assert len(turn.names) == fairness.IN_TURN
    assert set(turn.names) <= {job.jid for job in others}


def test_the_turn_of_a_batch_is_before_all_splits_and_jobs(session: Session, settings: Settings) -> None:
    for _ in range(3):
        planting.acquired_batch(session, owner="token:many")
    other, more = unsplit(session, "token:one"), unsplit(session, "token:many")
    context = make_context(settings)
    for batch in (more, other):
        dispatch_batch(context.app, record.ticket(batch))
    assert not more_urgent(settings, ["split"], priority=0)

    give_turn(context, session, read_queues(settings).tickets, later(session, LONG))

    assert more_urgent(settings, ["split"], priority=0)
    epoch = batches.load(session, other.bid).status.epoch
    assert (other.bid, epoch) in read_queues(settings).tickets


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
    assert next_turn(session, live, now, share=50) == Turn((of_one[0].jid,), live_download(session))


def live_download(session: Session) -> str:
    """The download that was begun first."""
    jids = queue.queued(session, JobState.DOWNLOADING)
    stats = session.exists_many([paths.job_lock(jid) for jid in jids])
    return min((stat.ctime, jid) for stat, jid in zip(stats, jids, strict=True) if stat)[1]


def test_the_ticket_goes_before_all_others_and_the_download_is_asked_to_yield(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [work_on(session, job) for job in plant(session, 2, "token:many")]
    (other,) = plant(session, 1, "token:one")
    live = waiting(session, other)
    guard = AttemptGuard(session)
    guard.watch_lock(record.lock_path(held[0]))
    monkeypatch.setattr(beat, "SHARE", 50)
    context = make_context(settings)

    give_turn(context, session, live, later(session, LONG))

    epoch = jobs.load(session, other.jid).status.epoch
    assert read_queues(settings).tickets == {(other.jid, epoch)}
    assert more_urgent(settings, ["io"], priority=0)
    assert eventually(guard.yields, 20)
    guard.check()  # the attempt is not over
    session.zk.delete(record.lock_path(held[0]))
    assert eventually(lambda: is_over(guard), 20)


def test_an_attempt_that_was_asked_to_yield_may_still_carry_its_job_onward(session: Session) -> None:
    held = work_on(session, plant(session, 1, "token:many")[0])
    fairness.ask_to_yield(session, held.jid)

    moved = jobs.move(session, held, JobMove(Event.SUCCEED, "worker", lock=Lock.CARRY))

    assert moved.status.status is JobState.PROCESSING


def test_a_job_that_ended_meanwhile_is_not_asked(session: Session) -> None:
    fairness.ask_to_yield(session, "jid0000000009")


def test_a_job_that_another_worker_took_meanwhile_is_not_asked_and_its_lock_names_that_worker(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = work_on(session, plant(session, 1, "token:many")[0])
    lock, read = paths.job_lock(held.jid), session.get

    def taken_by_another_after_the_read(path: str) -> tuple[bytes, ZnodeStat]:
        node = read(path)
        if path == lock:
            free = record.hand_back(session, held, "test", lock=Lock.BREAK)
            record.acquire(session, free, record.ticket(free), "another worker")
        return node

    monkeypatch.setattr(session, "get", taken_by_another_after_the_read)
    fairness.ask_to_yield(session, held.jid)

    mark, stat = read(lock)
    assert mark.decode().endswith("another worker")
    assert stat.version == 0, "the attempt of the other worker is not asked"
