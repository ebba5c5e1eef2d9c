"""Every row of both tables moves a job or a batch in one transaction; everything else changes nothing."""

import pytest

from operations.jobs.job_view import job_view
from operations.site import Site
from pipeline import codes
from pipeline.attempt import UNATTENDED
from pipeline.manifests.split import Plan
from pipeline.outcome import AttemptOver, Done, ObjectDescription, Promised, Reservation
from pipeline.records import Job, Ticket
from pipeline.states import (
    BATCH,
    JOB,
    BatchState,
    Bucket,
    Event,
    FailureKind,
    IllegalTransition,
    JobState,
    Raiser,
    Room,
    Transition,
    bucket,
)
from tests.support import planting
from tests.support.errors import raises_code
from tests.support.operators import ANN
from tests.support.waits import RETRY
from zkstate import codec, paths
from zkstate.care import audit
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Put, commit
from zkstate.errors import Busy, Missing, Outdated, Stale
from zkstate.queue import queue
from zkstate.queue.job_record import ZooKeeperJobRecord
from zkstate.record import batches, jobs, record, space
from zkstate.record.batches import BatchMove
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

LIVING = [state for state in JobState if state is not JobState.DELETED]


def _name(row: Transition[JobState] | Transition[BatchState]) -> str:
    return f"{row.source}-{row.event}-{row.target}"


@pytest.mark.parametrize("row", JOB.table, ids=_name)
def test_each_row_of_the_jobs_table_leads_where_it_says(session: Session, row: Transition[JobState]) -> None:
    last = "any" if not isinstance(row.after, JobState | None) else row.after
    before = planting.job_in(session, row.source, last)
    if Room.YIELDED in row.room - {Room.KEPT}:
        jobs.yield_reservation(session, before.jid, "test")
    elif row.room and Room.KEPT not in row.room:
        with jobs.emptying(session, before.jid, "test"):
            pass
    before = jobs.load(session, before.jid)

    if row.named or (row.event, row.target) == (Event.FAIL, JobState.COMPLETED):
        named = JobMove(row.event, "operator", lock=Lock.FREE, to=row.target)
        after = jobs.move(session, before, named)
    else:
        after = planting.apply_event(session, before, row.event)

    if row.target is JobState.DELETED:
        with pytest.raises(Missing):
            jobs.load(session, before.jid)
        assert batches.jobs_in(session, before.bid, Bucket.DELETED) == [before.jid]
        return
    kept = jobs.load(session, before.jid)
    assert kept.status.status is row.target
    assert after.status.status is row.target
    assert batches.jobs_in(session, before.bid, bucket(row.target)) == [before.jid]
    if row.event is not Event.CLEAN_UP:
        assert queue.queued(session, row.target) == [before.jid] * (row.target is not JobState.COMPLETED)
        assert kept.history[-1].event is row.event
        assert kept.status.epoch > before.status.epoch


@pytest.mark.parametrize("state", LIVING)
def test_an_event_that_is_not_in_the_jobs_table_is_refused_and_changes_nothing(
    session: Session, state: JobState
) -> None:
    job = planting.job_in(session, state)
    before = planting.tree(session)

    for event in Event:
        if event not in JOB.events(state):
            with pytest.raises(IllegalTransition, match=f"a {state} job cannot {event}"):
                jobs.move(session, job, JobMove(event, "test", lock=Lock.FREE))

    assert planting.tree(session) == before


@pytest.mark.parametrize("row", BATCH.table, ids=_name)
def test_each_row_of_the_batches_table_leads_where_it_says(
    session: Session, row: Transition[BatchState]
) -> None:
    before = planting.batch_in(session, row.source)

    if (row.source, row.event) == (BatchState.PROCESSING, Event.SUCCEED):
        job = jobs.load(session, batches.all_jobs(session, before.bid)[0])
        planting.apply_event(session, job, Event.FAIL)
        batches.finish_if_ended(session, before.bid, "test")
    else:
        planting.apply_batch_event(session, before, row.event)

    kept = batches.load(session, before.bid)
    assert kept.status.status is row.target
    is_open = row.target in (*BATCH.working(), BatchState.DELETED)
    assert (before.bid in session.children(paths.OPEN_BATCHES)) == is_open
    if row.event is Event.ACQUIRE:
        batch = kept
        batches.finish_split(session, batch)


@pytest.mark.parametrize("state", list(BatchState))
def test_an_event_that_is_not_in_the_batches_table_is_refused_and_changes_nothing(
    session: Session, state: BatchState
) -> None:
    batch = planting.batch_in(session, state)
    before = planting.tree(session)

    for event in Event:
        if event not in BATCH.events(state):
            with pytest.raises(IllegalTransition, match=f"a {state} batch cannot {event}"):
                batches.move(session, batch, BatchMove(event, "test", lock=Lock.FREE))

    assert planting.tree(session) == before


def test_a_content_failure_in_pending_cannot_be_resumed(session: Session) -> None:
    job = planting.one_job(session)
    failed = planting.apply_event(session, job, Event.FAIL, FailureKind.CONTENT)

    with pytest.raises(IllegalTransition, match="a new submission is required"):
        jobs.move(session, failed, JobMove(Event.RESUME, "operator", lock=Lock.FREE))


def test_a_resume_counts_and_keeps_the_last_success(session: Session) -> None:
    failed = planting.job_in(session, JobState.FAILED, JobState.DOWNLOADING)

    resumed = planting.apply_event(session, failed, Event.RESUME)

    assert resumed.status.status is JobState.PROCESSING
    assert resumed.status.last_successful_status is JobState.DOWNLOADING
    assert resumed.status.retry_count == 1


def test_a_stale_move_changes_nothing(session: Session) -> None:
    held = planting.acquire(session, planting.one_job(session))
    old = held.model_copy(update={"version": held.version - 1})
    before = planting.tree(session)

    with pytest.raises(Stale):
        jobs.move(session, old, JobMove(Event.ACQUIRE, "zombie"))

    assert planting.tree(session) == before
    record.hand_back(session, held, "test")


def test_a_job_that_is_worked_on_cannot_be_acquired_again(session: Session) -> None:
    job = planting.one_job(session)
    held = planting.acquire(session, job)

    with pytest.raises(Busy):
        planting.acquire(session, jobs.load(session, job.jid))

    record.hand_back(session, held, "test")


@pytest.mark.parametrize("change", [{"epoch": 99}, {"epoch": 0}, {"state": "notify"}])
def test_a_ticket_of_another_epoch_or_state_is_void(session: Session, change: dict[str, object]) -> None:
    job = planting.one_job(session)
    before = planting.tree(session)

    with pytest.raises(Stale):
        jobs.acquire(session, record.ticket(job).model_copy(update=change), "test")

    assert planting.tree(session) == before


def test_an_operator_can_fail_a_job_that_a_worker_holds_and_the_worker_is_fenced(session: Session) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING))

    jobs.move(
        session,
        jobs.load(session, held.jid),
        JobMove(Event.FAIL, "operator", message="wrong files", kind=FailureKind.SYSTEM, lock=Lock.BREAK),
    )

    with pytest.raises(Stale):
        jobs.move(session, held, JobMove(Event.SUCCEED, "zombie"))
    assert jobs.load(session, held.jid).status.message == "wrong files"


def test_an_operators_event_is_refused_while_a_worker_holds_the_lock(session: Session) -> None:
    held = planting.acquire(session, planting.one_job(session))

    with pytest.raises(Busy):
        jobs.move(session, held, JobMove(Event.HOLD, "operator", lock=Lock.FREE))

    record.hand_back(session, held, "test")


def test_space_is_reserved_in_the_move_that_lets_the_job_through(session: Session) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.PROVISIONING))
    asked = Done(space_needed=700, reservation=Reservation(700, space.promised(session)))

    jobs.move(session, held, JobMove(Event.SUCCEED, "test", done=asked))

    assert space.promised(session).bytes == 700
    assert space.reservation_of(session, held.jid) == 700


def test_a_reservation_on_an_outdated_sum_is_refused_and_the_job_stays(session: Session) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.PROVISIONING))
    seen = space.promised(session)
    other = planting.acquire(session, planting.job_in(session, JobState.PROVISIONING))
    jobs.move(
        session,
        other,
        JobMove(Event.SUCCEED, "test", done=Done(space_needed=5, reservation=Reservation(5, seen))),
    )

    with pytest.raises(Outdated, match=f"^{paths.SPACE}: "):
        jobs.move(
            session,
            held,
            JobMove(Event.SUCCEED, "test", done=Done(space_needed=7, reservation=Reservation(7, seen))),
        )

    assert space.promised(session).bytes == 5
    record.hand_back(session, held, "test")


def downloading_job(session: Session, reserved: int) -> Job:
    """A job that is being downloaded with a reservation."""
    held = planting.acquire(session, planting.job_in(session, JobState.PROVISIONING))
    asked = Done(space_needed=reserved, reservation=Reservation(reserved, space.promised(session)))
    job = jobs.move(session, held, JobMove(Event.SUCCEED, "test", done=asked))
    return planting.acquire(session, job)


def test_a_job_in_progress_reserves_more_under_the_sum_and_under_its_own_version(session: Session) -> None:
    held = downloading_job(session, 700)
    job_record = ZooKeeperJobRecord(session, UNATTENDED)
    outdated = Promised(bytes=700, version=space.promised(session).version - 1)

    assert not job_record.reserve(held, 900, outdated)
    assert space.reservation_of(session, held.jid) == 700
    assert job_record.reserve(held, 900, space.promised(session))

    assert (space.reservation_of(session, held.jid), space.promised(session).bytes) == (900, 900)
    assert jobs.load(session, held.jid).space_needed == 900
    assert list(audit.audit(session)) == []
    record.hand_back(session, held, "test")
    with pytest.raises(AttemptOver):
        job_record.reserve(held, 1000, space.promised(session))


def test_a_job_that_reserved_more_ends_its_download_with_the_real_size(session: Session) -> None:
    """Even if it is the size that was reserved before: the source sent more, and then the file anew."""
    held = downloading_job(session, 700)
    assert ZooKeeperJobRecord(session, UNATTENDED).reserve(held, 900, space.promised(session))

    moved = jobs.move(
        session, held, JobMove(Event.SUCCEED, "test", done=Done(space_needed=700, space_grew=True))
    )

    assert (moved.status.status, moved.space_needed) == (JobState.PROCESSING, 700)
    assert (space.reservation_of(session, held.jid), space.promised(session).bytes) == (700, 700)


def test_a_download_without_room_goes_back_to_wait_without_a_reservation(session: Session) -> None:
    held = downloading_job(session, 700)
    assert ZooKeeperJobRecord(session, UNATTENDED).reserve(held, 900, space.promised(session))

    moved = jobs.move(session, held, JobMove(Event.DOWNLOAD_AGAIN, "test", done=Done(space_needed=1800)))

    assert (moved.status.status, jobs.load(session, held.jid).space_needed) == (JobState.PROVISIONING, 1800)
    assert (space.reservation_of(session, held.jid), space.promised(session).bytes) == (None, 0)
    assert list(queue.waiting_for_space(session)) == [(held.jid, 1800)]
    assert list(audit.audit(session)) == []


def test_the_description_as_stored_is_written_in_the_move_and_read_by_the_views(
    session: Session, site: Site
) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.RECORDING))
    stored = ObjectDescription(who="Seneca", what="Jazz for the bears", when="2009")

    moved = jobs.move(session, held, JobMove(Event.SUCCEED, "worker", done=Done(description=stored)))

    kept = jobs.load(session, held.jid)
    assert kept == moved.model_copy(update={"identifiers_version": kept.identifiers_version})
    assert kept.identifiers.description == stored
    assert job_view(site, ANN, held.jid).what == "Jazz for the bears"


def completed_with_a_reservation(session: Session) -> Job:
    held = planting.acquire(session, planting.job_in(session, JobState.PROVISIONING))
    asked = Done(space_needed=700, reservation=Reservation(700, space.promised(session)))
    return planting.complete(session, jobs.move(session, held, JobMove(Event.SUCCEED, "test", done=asked)))


def test_a_job_completes_without_a_reservation_and_a_queue_entry(session: Session) -> None:
    job = completed_with_a_reservation(session)

    assert space.promised(session).bytes == 0
    assert space.reservation_of(session, job.jid) is None
    assert queue.queued(session, JobState.COMPLETED) == []


def test_cleaning_up_releases_what_an_earlier_release_kept_of_a_completed_job(session: Session) -> None:
    job = completed_with_a_reservation(session)
    entry = paths.queue_entry(JobState.COMPLETED, job.status.priority, job.jid)
    commit(session, [Create(entry), *space.replace(session, job.jid, 700)])

    jobs.clean_up(session, job)
    jobs.clean_up(session, job)

    assert space.promised(session).bytes == 0
    assert queue.queued(session, JobState.COMPLETED) == []


def test_the_move_that_ends_a_job_counts_the_jobs_of_its_batch_that_have_not_ended(session: Session) -> None:
    _, jids = planting.split_batch(session, 3)

    moved = [planting.apply_event(session, jobs.load(session, jid), Event.FAIL) for jid in jids]

    assert [job.unended for job in moved] == [2, 1, 0]
    assert planting.apply_event(session, moved[0], Event.RESUME).unended is None


def test_an_attempt_that_read_outdated_identifiers_does_not_begin(session: Session) -> None:
    outdated = planting.one_job(session)
    path = paths.identifiers(outdated.jid)
    data = codec.encode(outdated.identifiers.model_copy(update={"primary_id": "ark:/99999/fk41"}))
    commit(session, [Put(path, data)])  # as an attempt does whose session ends a moment later

    with pytest.raises(Stale, match="identifiers"):
        record.acquire(session, outdated, record.ticket(outdated), "late")

    assert (
        planting.acquire(session, jobs.load(session, outdated.jid)).identifiers.primary_id
        == "ark:/99999/fk41"
    )
    record.hand_back(session, jobs.load(session, outdated.jid), "test")


def test_the_batch_goes_to_reporting_once_when_its_last_job_ends(session: Session) -> None:
    bid, jids = planting.split_batch(session, 2)
    planting.apply_event(session, jobs.load(session, jids[0]), Event.FAIL)
    assert batches.finish_if_ended(session, bid, "test") is None
    planting.apply_event(session, jobs.load(session, jids[1]), Event.FAIL)

    first, second = (batches.finish_if_ended(session, bid, "test") for _ in range(2))

    assert first is not None
    assert first.status.status is BatchState.REPORTING
    assert second is None


def test_a_batch_that_is_still_being_split_is_not_finished(session: Session) -> None:
    batch = planting.acquired_batch(session)
    batch = planting.create_jobs(session, batch, planting.plan(1), planting.WORKING, "test", UNATTENDED)
    job = jobs.load(session, batches.all_jobs(session, batch.bid)[0])
    planting.apply_event(session, job, Event.FAIL)

    assert batches.finish_if_ended(session, batch.bid, "test") is None
    batches.finish_split(session, batch)
    assert batches.finish_if_ended(session, batch.bid, "test") is not None


def test_an_idempotency_key_stores_a_submission_once(session: Session) -> None:
    first = batches.submit(session, planting.submission(idempotency_key="k"))

    assert batches.submit(session, planting.submission(idempotency_key="k")) == first
    with raises_code(codes.KEY_REUSED, match="belongs to"):
        batches.submit(session, planting.submission(idempotency_key="k", erc_what="else"))


def test_jobs_wait_in_the_order_of_their_priority(session: Session) -> None:
    batch = planting.acquired_batch(session)
    jobs_planned = planting.plan(3).jobs
    urgent = jobs_planned[2].model_copy(update={"priority": 0})
    plan = Plan(jobs=(*jobs_planned[:2], urgent), sha256="x")
    batch = planting.create_jobs(session, batch, plan, planting.WORKING, "test", UNATTENDED)
    batches.finish_split(session, batch)

    made = batches.all_jobs(session, batch.bid)

    assert queue.queued(session, JobState.PENDING) == [made[2], made[0], made[1]]


def test_the_feeder_gives_each_pending_job_one_ticket_and_keeps_to_the_limit(session: Session) -> None:
    _, jids = planting.split_batch(session, 5)

    first = queue.feed(session, in_flight=3).tickets
    again = queue.feed(session, in_flight=3).tickets

    assert [ticket.id for ticket in first] == jids[:3]
    assert again == []
    job = jobs.acquire(session, first[0], "test")
    planting_failed = jobs.move(session, job, JobMove(Event.FAIL, "test", kind=FailureKind.SYSTEM))
    assert planting_failed.status.status is JobState.FAILED
    assert [ticket.id for ticket in queue.feed(session, in_flight=3).tickets] == [jids[3]]


def test_a_missing_and_a_damaged_znode_are_named(session: Session) -> None:
    job = planting.one_job(session)
    session.zk.set(paths.history(job.jid), b"{not json")

    findings = audit.audit(session)

    assert any(paths.history(job.jid) in str(finding) for finding in findings)
    session.zk.delete(paths.history(job.jid))
    with pytest.raises(Missing, match=paths.history(job.jid)):
        jobs.load(session, job.jid)
    session.zk.create(paths.history(job.jid), b'[{"state":"pending","at":"2026-01-01T00:00:00Z"}]')


def test_a_job_in_two_queues_is_a_finding(session: Session) -> None:
    job = planting.one_job(session)
    extra = paths.queue_entry(JobState.NOTIFY, 5, job.jid)
    session.zk.create(extra)

    findings = audit.audit(session)

    assert any("is in pending, notify" in finding.problem for finding in findings)
    session.zk.delete(extra)


def test_a_ticket_of_an_unknown_job_is_refused(session: Session) -> None:
    ticket = Ticket(id="jid9999999999", state="pending", epoch=1)

    with pytest.raises(Missing, match="there is no job jid9999999999"):
        jobs.acquire(session, ticket, Raiser.WORKER)


def test_the_history_has_the_kind_of_a_failure(session: Session) -> None:
    held = planting.acquire(session, planting.job_in(session, JobState.DOWNLOADING))
    waiting = record.hand_back(session, held, "test", message="503", delay=0, waits_for=RETRY)
    failed = planting.apply_event(session, waiting, Event.FAIL, FailureKind.CONTENT)

    kinds = [entry.kind for entry in jobs.load(session, failed.jid).history]

    assert kinds[-2:] == [FailureKind.TRANSIENT, FailureKind.CONTENT]
    assert set(kinds[:-2]) == {None}


def test_the_history_of_a_batch_names_every_move_and_on_whose_behalf(session: Session) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    batches.move(session, batch, BatchMove(Event.UPDATE_REPORT, "ann", "again", lock=Lock.FREE))

    history = batches.load(session, batch.bid).history

    assert [entry.state for entry in history] == [
        BatchState.PENDING,
        BatchState.PROCESSING,
        BatchState.REPORTING,
        BatchState.FAILED,
        BatchState.UPDATE_REPORTING,
    ]
    assert (history[-1].event, history[-1].by, history[-1].message) == (Event.UPDATE_REPORT, "ann", "again")


def test_a_batch_of_0_1_0_begins_its_history_with_its_next_move(session: Session) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    session.zk.delete(paths.batch_history(batch.bid))

    old = batches.load(session, batch.bid)
    batches.move(session, old, BatchMove(Event.UPDATE_REPORT, "ann", lock=Lock.FREE))

    assert old.history == ()
    assert [entry.by for entry in batches.load(session, batch.bid).history] == ["ann"]


def test_a_move_may_break_the_lock_of_a_batch(session: Session) -> None:
    batch = planting.batch_in(session, BatchState.REPORTING)
    zombie = batches.acquire(session, record.ticket(batch), "worker")

    with pytest.raises(Busy):
        batches.move(session, zombie, BatchMove(Event.FAIL, "ann", lock=Lock.FREE))
    batches.move(session, zombie, BatchMove(Event.FAIL, "ann", "stopped", lock=Lock.BREAK))

    assert session.exists(paths.batch_lock(batch.bid)) is None
    with pytest.raises(Stale):
        record.hand_back(session, zombie, "worker")


def test_a_job_that_is_resumed_while_its_batch_is_reported_is_no_finding(session: Session) -> None:
    job = planting.job_in(session, JobState.FAILED)
    assert batches.finish_if_ended(session, job.bid, "worker") is not None

    jobs.move(session, jobs.load(session, job.jid), JobMove(Event.RESUME, "operator", lock=Lock.FREE))

    assert batches.load(session, job.bid).status.status is BatchState.REPORTING
    assert audit.audit(session) == ()
