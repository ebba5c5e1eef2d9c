"""What operators do to batches, and to many jobs at once."""

import gc
import json

import pytest

from operations.jobs.allowed_verbs import Moved
from operations.jobs.batch_view import batch_view
from operations.run import Run, Stopped
from operations.site import Site
from operations.verbs.bulk import Planned, act_on_many, cancel, carry_out, failed_of, make_plan
from operations.verbs.verbs import act
from pipeline.attempt import UNATTENDED
from pipeline.inventory import archive
from pipeline.inventory.archive import find_batch, find_job, find_report, jobs_of
from pipeline.principal import Forbidden, Role
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import BATCH, BatchState, Bucket, Event, FailureKind, IllegalTransition, JobState, Raiser
from tasks.broker import read_queues
from tests.support import planting
from tests.support.operators import ANN
from zkstate import paths
from zkstate.care.audit import audit
from zkstate.connection.session import Session
from zkstate.errors import Stale
from zkstate.record import batches, creation, deletion, jobs
from zkstate.record.batches import BatchMove
from zkstate.record.record import Lock

BATCH_VERBS = {row.event for row in BATCH.table if Raiser.OPERATOR in row.by} - {Event.FAIL}
"""The failure of a batch is a part of `cancel`."""


@pytest.mark.parametrize("state", [s for s in BatchState if s is not BatchState.DELETED])
def test_what_the_batchs_table_does_not_allow_is_refused_and_changes_nothing(
    session: Session, site: Site, state: BatchState
) -> None:
    batch = planting.batch_in(session, state)
    before = planting.tree(session)

    for event in BATCH_VERBS - BATCH.events(state, Raiser.OPERATOR):
        with pytest.raises(IllegalTransition, match=f"{batch.bid} is {state}"):
            act(site, ANN, batch.bid, event)

    assert planting.tree(session) == before


@pytest.mark.parametrize("event", sorted(BATCH_VERBS))
def test_without_the_right_a_verb_is_refused_and_changes_nothing(
    session: Session, site: Site, event: Event
) -> None:
    batch = planting.batch_in(session, BatchState.HELD)
    before = planting.tree(session)
    viewer = ANN.model_copy(update={"role": Role.VIEWER})

    with pytest.raises(Forbidden, match=f"must not {event} {batch.bid}"):
        act(site, viewer, batch.bid, event)
    with pytest.raises(Forbidden, match=f"must not cancel {batch.bid}"):
        cancel(site, viewer, batch.bid)

    assert planting.tree(session) == before


def test_a_verb_on_an_older_version_of_a_batch_is_refused(session: Session, site: Site) -> None:
    batch = planting.batch_in(session, BatchState.HELD)
    act(site, ANN, batch.bid, Event.RELEASE, version=batch.version)

    with pytest.raises(Moved, match=f"{batch.bid} has changed since you read it: pending since"):
        act(site, ANN, batch.bid, Event.DELETE, version=batch.version)


def test_progress_is_reported_and_a_verb_that_was_stopped_can_be_repeated(
    session: Session, site: Site
) -> None:
    bid, jids = planting.split_batch(session, 3)
    progress: list[tuple[float, int]] = []
    run = Run(
        on_progress=lambda done, total: progress.append((done, total)), should_stop=lambda: len(progress) == 2
    )

    first = cancel(site, ANN, bid, run=run)
    rest = cancel(site, ANN, bid)

    assert progress == [(1, 3), (2, 3)]
    assert ([result.id for result in first.done], first.untried) == (jids[:2], 1)
    assert ([result.id for result in rest.done], rest.untried) == (jids[2:], 0)


def test_a_plan_that_is_stopped_acts_on_no_further_job(session: Session, site: Site) -> None:
    _, jids = planting.split_batch(session, 3)
    versions = tuple((int(jid.removeprefix("jid")), jobs.load(session, jid).version) for jid in jids)
    plan = Planned(verb=Event.HOLD, owner=ANN.identity, until=0.0, jobs=versions)
    looks = iter((False, True))

    receipt = carry_out(site, ANN, plan, run=Run(should_stop=lambda: next(looks)))
    with pytest.raises(Stopped, match="nothing was changed"):
        make_plan(site, ANN, Event.HOLD, jids, run=Run(should_stop=lambda: True))

    assert ([result.id for result in receipt.done], receipt.untried) == (jids[:1], 2)
    assert [jobs.load(session, jid).status.status is JobState.HELD for jid in jids] == [True, False, False]


def test_a_held_batch_is_released_to_be_split(session: Session, site: Site, settings: Settings) -> None:
    batch = planting.batch_in(session, BatchState.HELD)

    act(site, ANN, batch.bid, Event.RELEASE, reason="because")

    released = batches.load(session, batch.bid)
    assert released.status.status is BatchState.PENDING
    assert (released.history[-1].by, released.history[-1].via) == ("ann@desk", "cli")
    assert released.history[-1].message == "release by ann@desk: because"
    assert (batch.bid, released.status.epoch) in read_queues(settings).tickets


def test_a_failed_batch_is_reported_again_once_nothing_in_it_is_at_work(
    session: Session, site: Site, settings: Settings
) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    (jid,) = batches.all_jobs(session, batch.bid)
    act(site, ANN, jid, Event.RESUME)

    with pytest.raises(IllegalTransition, match=r"1 job of .* has not ended"):
        act(site, ANN, batch.bid, Event.UPDATE_REPORT)
    act(site, ANN, jid, Event.FAIL)
    act(site, ANN, batch.bid, Event.UPDATE_REPORT)

    again = batches.load(session, batch.bid)
    assert again.status.status is BatchState.UPDATE_REPORTING
    assert (batch.bid, again.status.epoch) in read_queues(settings).tickets


def test_a_deleted_batch_leaves_tombstones_of_itself_and_its_jobs(session: Session, site: Site) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    jids = batches.all_jobs(session, batch.bid)

    act(site, ANN, batch.bid, Event.DELETE, reason="because")

    assert session.children(paths.BATCHES) == []
    assert session.children(paths.JOBS) == []
    kept = find_batch(site.inventory(), batch.bid)
    assert kept is not None
    assert (kept.state, kept.disposition.why) == (BatchState.DELETED, "because")
    report = json.loads(find_report(site.inventory(), batch.bid) or "")
    assert [(job["jid"], job["message"]) for job in report["deleted"]] == [(jid, "because") for jid in jids]
    assert not report["failed"]
    assert [job.jid for job in jobs_of(site.inventory(), batch.bid)] == jids


def test_a_batch_is_not_deleted_if_one_of_its_jobs_is_resumed_while_tombstones_are_written(
    session: Session, site: Site
) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    (jid,) = batches.all_jobs(session, batch.bid)

    def resume(*_: float) -> None:
        if jobs.load(session, jid).status.status is JobState.FAILED:
            act(site, ANN, jid, Event.RESUME, feeding=False)

    with pytest.raises(IllegalTransition, match=f"1 job of {batch.bid} has not ended"):
        act(site, ANN, batch.bid, Event.DELETE, reason="because", run=Run(resume))

    assert batches.load(session, batch.bid) == batch
    assert jobs.load(session, jid).status.status is not JobState.FAILED
    assert audit(session) == ()


def test_no_job_is_resumed_whose_batch_is_deleted_after_the_operator_was_admitted(
    session: Session, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    (jid,) = batches.all_jobs(session, batch.bid)
    state_of = batches.state_of

    def late(session: Session, bid: str) -> BatchState:
        state = state_of(session, bid)
        if state is not BatchState.DELETED:
            batches.move(session, batch, BatchMove(Event.DELETE, "bob", lock=Lock.FREE))
        return state

    monkeypatch.setattr(batches, "state_of", late)

    with pytest.raises(IllegalTransition, match=f"its batch {batch.bid} is being deleted"):
        act(site, ANN, jid, Event.RESUME, feeding=False)

    assert audit(session) == ()
    assert deletion.remove_batch(session, batches.load(session, batch.bid))
    assert session.children(paths.BATCHES) == session.children(paths.JOBS) == []


def test_what_a_deleted_batch_has_stored_stays_completed_in_its_report(session: Session, site: Site) -> None:
    bid, (stored, failed) = planting.split_batch(session, 2)
    planting.complete(session, jobs.load(session, stored))
    planting.apply_event(session, jobs.load(session, failed), Event.FAIL)
    reporting = batches.finish_if_ended(session, bid, "test")
    assert reporting is not None
    planting.apply_batch_event(session, reporting, Event.FAIL)

    act(site, ANN, bid, Event.DELETE)

    view = batch_view(site, ANN, bid)
    assert view.jobs == {JobState.COMPLETED: 1, JobState.DELETED: 1}
    assert view.report is None, "what was sent before is not what is so now"


def test_a_deletion_of_a_batch_that_was_interrupted_goes_on(session: Session, site: Site) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    batches.move(session, batch, BatchMove(Event.DELETE, "test", lock=Lock.FREE))

    act(site, ANN, batch.bid, Event.DELETE)

    assert session.children(paths.BATCHES) == []


def test_the_deletion_of_a_batch_reports_its_progress_and_can_be_stopped_and_repeated(
    session: Session, site: Site
) -> None:
    bid, jids = planting.split_batch(session, deletion.CHUNK + 1)
    for jid in jids:
        planting.apply_event(session, jobs.load(session, jid), Event.FAIL)
    batch = batches.finish_if_ended(session, bid, "test")
    assert batch is not None
    planting.apply_batch_event(session, batch, Event.FAIL)
    progress: list[tuple[float, int]] = []

    def stop_at(done: int) -> Run:
        return Run(
            on_progress=lambda number, total: progress.append((number, total)),
            should_stop=lambda: len(progress) >= done,
        )

    with pytest.raises(Stopped, match="before anything was removed"):
        act(site, ANN, bid, Event.DELETE, run=stop_at(3))
    assert batches.load(session, bid).status.status is BatchState.FAILED
    progress.clear()
    first = act(site, ANN, bid, Event.DELETE, run=stop_at(len(jids) + 1))

    assert progress.pop() == (2 * len(jids) - 1, 2 * len(jids))
    assert (first.complete, batches.all_jobs(session, bid)) == (False, jids[-1:])
    assert act(site, ANN, bid, Event.DELETE).complete
    assert session.children(paths.BATCHES) == []


def in_memory() -> int:
    """The jobs that this process has in memory, those of other tests included."""
    return sum(isinstance(thing, Job) for thing in gc.get_objects())


def test_the_deletion_of_a_batch_has_a_page_of_its_jobs_in_memory_and_leaves_a_tombstone_of_all(
    session: Session, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = 5
    monkeypatch.setattr(archive, "JOBS_PER_TRANSACTION", page)
    monkeypatch.setattr(jobs, "LOAD_PAGE", page)
    bid, jids = planting.split_batch(session, 6 * page)
    for jid in jids:
        planting.apply_event(session, jobs.load(session, jid), Event.FAIL)
    batch = batches.finish_if_ended(session, bid, "test")
    assert batch is not None
    planting.apply_batch_event(session, batch, Event.FAIL)
    act(site, ANN, jids[0], Event.DELETE, reason="because")
    gc.collect()
    of_others = in_memory()
    most = 0

    def count(_done: float, _total: int) -> None:
        nonlocal most
        most = max(most, in_memory())

    act(site, ANN, bid, Event.DELETE, reason="because", run=Run(on_progress=count))

    assert of_others < most <= of_others + 2 * page + 2
    kept = find_batch(site.inventory(), bid)
    assert kept is not None
    report = json.loads(find_report(site.inventory(), bid) or "")
    assert [(job["jid"], job["message"]) for job in report["deleted"]] == [(jid, "because") for jid in jids]
    assert [job.jid for job in jobs_of(site.inventory(), bid)] == jids
    assert {job.state for job in jobs_of(site.inventory(), bid)} == {JobState.DELETED}


def test_among_many_a_begun_batch_counts_as_a_part() -> None:
    progress: list[tuple[float, int]] = []

    Run(lambda done, total: progress.append((done, total))).part(2, 4).on_progress(10, 40)

    assert progress == [(2.25, 4)]


def test_cancelling_stops_every_job_and_the_batch_is_reported(
    session: Session, site: Site, settings: Settings
) -> None:
    bid, jids = planting.split_batch(session, 5)
    planting.complete(session, jobs.load(session, jids[0]))
    planting.apply_event(session, jobs.load(session, jids[1]), Event.HOLD)
    notifying = jobs.load(session, jids[4])
    while notifying.status.status is not JobState.NOTIFY:
        pending = notifying.status.status is JobState.PENDING
        notifying = planting.apply_event(session, notifying, Event.ACQUIRE if pending else Event.SUCCEED)
    planting.acquire(session, planting.apply_event(session, jobs.load(session, jids[2]), Event.ACQUIRE))

    outcome = cancel(site, ANN, bid)

    assert [(acted.id, acted.now) for acted in outcome.done] == [
        (jids[1], JobState.DELETED),
        (jids[2], JobState.FAILED),
        (jids[3], JobState.FAILED),
        (jids[4], JobState.COMPLETED),  # it is stored and recorded
    ]
    assert batches.counts(session, bid) == {
        Bucket.PROCESSING: 0,
        Bucket.COMPLETED: 2,
        Bucket.FAILED: 2,
        Bucket.DELETED: 1,
    }
    batch = batches.load(session, bid)
    assert batch.status.status is BatchState.REPORTING
    assert read_queues(settings).tickets == {(bid, batch.status.epoch)}
    assert find_job(site.inventory(), jids[1]) is not None


@pytest.mark.parametrize(
    ("state", "stopped"),
    [
        (BatchState.PENDING, BatchState.REPORTING),
        (BatchState.HELD, BatchState.REPORTING),
        (BatchState.REPORTING, BatchState.FAILED),
        (BatchState.UPDATE_REPORTING, BatchState.FAILED),
    ],
)
def test_a_batch_whose_jobs_are_not_at_work_is_cancelled_in_every_state(
    session: Session, site: Site, settings: Settings, state: BatchState, stopped: BatchState
) -> None:
    batch = planting.batch_in(session, state)

    planned = cancel(site, ANN, batch.bid, dry_run=True)
    outcome = cancel(site, ANN, batch.bid, reason="because")

    assert [(acted.id, acted.was, acted.now) for acted in outcome.done] == [(batch.bid, state, stopped)]
    assert [acted.now for acted in planned.done] == [stopped]
    after = batches.load(session, batch.bid)
    assert (after.status.status, after.status.message) == (stopped, "cancelled by ann@desk: because")
    assert (after.history[-1].event, after.history[-1].by) == (Event.FAIL, "ann@desk")
    assert (stopped is BatchState.REPORTING) == (
        (batch.bid, after.status.epoch) in read_queues(settings).tickets
    )


def test_a_batch_is_cancelled_while_a_worker_splits_it(session: Session, site: Site) -> None:
    batch = planting.acquired_batch(session)
    creating = creation.create_jobs(
        session, batch, planting.plan(creation.CHUNK + 1), planting.WORKING, "worker", UNATTENDED
    )
    split = next(creating)

    outcome = cancel(site, ANN, batch.bid)

    assert [acted.id for acted in outcome.done] == [batch.bid, *batches.all_jobs(session, batch.bid)]
    with pytest.raises(Stale):
        next(creating)
    with pytest.raises(Stale):
        batches.finish_split(session, split)
    after = batches.load(session, batch.bid)
    assert (after.status.status, after.status.total) == (BatchState.REPORTING, creation.CHUNK)
    assert after.status.kind is FailureKind.SYSTEM


def test_a_batch_whose_last_job_ended_unnoticed_is_reported_by_its_cancellation(
    session: Session, site: Site
) -> None:
    bid, (jid,) = planting.split_batch(session, 1)
    planting.apply_event(session, jobs.load(session, jid), Event.FAIL)

    outcome = cancel(site, ANN, bid)

    assert [(acted.id, acted.now) for acted in outcome.done] == [(bid, BatchState.REPORTING)]
    assert batches.load(session, bid).status.status is BatchState.REPORTING


@pytest.mark.parametrize("state", [BatchState.COMPLETED, BatchState.FAILED, BatchState.DELETED])
def test_a_batch_that_has_ended_has_nothing_to_cancel(
    session: Session, site: Site, state: BatchState
) -> None:
    batch = planting.batch_in(session, state)

    with pytest.raises(IllegalTransition, match="it has ended, and no job of it is at work"):
        cancel(site, ANN, batch.bid)


def test_a_dry_run_says_what_would_happen_and_changes_nothing(session: Session, site: Site) -> None:
    bid, jids = planting.split_batch(session, 2)
    planting.apply_event(session, jobs.load(session, jids[0]), Event.FAIL)
    before = planting.tree(session)

    resumed = act_on_many(site, ANN, Event.RESUME, jids, dry_run=True)
    stopped = cancel(site, ANN, bid, dry_run=True)

    assert [(acted.id, acted.now) for acted in resumed.done] == [(jids[0], JobState.PENDING)]
    assert [refusal.id for refusal in resumed.refused] == [jids[1]]
    assert [(acted.id, acted.now) for acted in stopped.done] == [(jids[1], JobState.FAILED)]
    assert planting.tree(session) == before


def test_one_refusal_among_many_stops_none_of_the_others(session: Session, site: Site) -> None:
    _, jids = planting.split_batch(session, 3)
    for jid in (jids[0], jids[2]):
        planting.apply_event(session, jobs.load(session, jid), Event.FAIL)

    outcome = act_on_many(site, ANN, Event.RESUME, [*jids, "jid0000009999"])

    assert [acted.id for acted in outcome.done] == [jids[0], jids[2]]
    assert [refusal.id for refusal in outcome.refused] == [jids[1], "jid0000009999"]
    assert outcome.untried == 0


def test_a_batch_is_resumed_where_its_jobs_may_be(session: Session) -> None:
    bid, jids = planting.split_batch(session, 3)
    planting.split_batch(session, 1)
    planting.apply_event(session, jobs.load(session, jids[1]), Event.FAIL)
    planting.apply_event(session, jobs.load(session, jids[2]), Event.FAIL, FailureKind.CONTENT)

    assert failed_of(session, bid) == [jids[1]]
