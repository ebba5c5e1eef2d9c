"""What operators do to batches, and to many jobs at once."""

import dataclasses

import pytest

from operations import batch_verbs
from operations.batch_verbs import act_on_batch
from operations.bulk import act_on_many, cancel, select
from operations.job_list import JobFilter
from operations.job_verbs import act_on_job
from operations.operator import Moved, Operator, Run
from pipeline.inventory.archive import find_batch, find_job, jobs_of
from pipeline.principal import Forbidden, Role
from pipeline.settings import Settings
from pipeline.states import BATCH, BatchState, Bucket, Event, IllegalTransition, JobState, Raiser
from tasks.broker import live_tickets
from tests.support import planting
from tests.support.operators import ANN, ann
from zkstate import batches, jobs, paths
from zkstate.batches import BatchMove
from zkstate.record import Lock
from zkstate.session import Session

BATCH_VERBS = {row.event for row in BATCH.table if Raiser.OPERATOR in row.by}


@pytest.fixture
def operator(session: Session, settings: Settings) -> Operator:
    return ann(session, settings)


def test_every_operators_event_of_the_table_has_its_verb() -> None:
    assert batch_verbs.VERBS == BATCH_VERBS


@pytest.mark.parametrize("state", [s for s in BatchState if s is not BatchState.DELETED])
def test_what_the_batchs_table_does_not_allow_is_refused_and_changes_nothing(
    session: Session, operator: Operator, state: BatchState
) -> None:
    batch = planting.batch_in(session, state)
    before = planting.tree(session)

    for event in BATCH_VERBS - BATCH.events(state, Raiser.OPERATOR):
        with pytest.raises(IllegalTransition, match=f"{batch.bid} is {state}"):
            act_on_batch(operator, batch.bid, event)

    assert planting.tree(session) == before


@pytest.mark.parametrize("event", sorted(BATCH_VERBS))
def test_without_the_right_a_verb_is_refused_and_changes_nothing(
    session: Session, operator: Operator, event: Event
) -> None:
    batch = planting.batch_in(session, BatchState.HELD)
    before = planting.tree(session)
    viewer = dataclasses.replace(operator, principal=ANN.model_copy(update={"role": Role.VIEWER}))

    with pytest.raises(Forbidden, match=f"must not {event} {batch.bid}"):
        act_on_batch(viewer, batch.bid, event)
    with pytest.raises(Forbidden, match=f"must not cancel {batch.bid}"):
        cancel(viewer, batch.bid)

    assert planting.tree(session) == before


def test_a_verb_on_an_older_version_of_a_batch_is_refused(session: Session, operator: Operator) -> None:
    batch = planting.batch_in(session, BatchState.HELD)
    act_on_batch(operator, batch.bid, Event.RELEASE, seen=batch.version)

    with pytest.raises(Moved, match=f"{batch.bid} has changed since you read it: pending since"):
        act_on_batch(operator, batch.bid, Event.DELETE, seen=batch.version)


def test_progress_is_reported_and_a_verb_that_was_stopped_can_be_repeated(
    session: Session, operator: Operator
) -> None:
    bid, jids = planting.split_batch(session, 3)
    progress: list[tuple[int, int]] = []
    run = Run(
        on_progress=lambda done, total: progress.append((done, total)), should_stop=lambda: len(progress) == 2
    )

    first = cancel(dataclasses.replace(operator, run=run), bid)
    rest = cancel(operator, bid)

    assert progress == [(1, 3), (2, 3)]
    assert ([result.id for result in first.done], first.untried) == (jids[:2], 1)
    assert ([result.id for result in rest.done], rest.untried) == (jids[2:], 0)


def test_a_held_batch_is_released_to_be_split(
    session: Session, operator: Operator, settings: Settings
) -> None:
    batch = planting.batch_in(session, BatchState.HELD)

    act_on_batch(operator, batch.bid, Event.RELEASE)

    released = batches.load(session, batch.bid)
    assert released.status.status is BatchState.PENDING
    assert (released.history[-1].by, released.history[-1].via) == ("ann@desk", "cli")
    assert released.history[-1].message == "release by ann@desk: because"
    assert (batch.bid, released.status.epoch) in live_tickets(settings)


def test_a_failed_batch_is_reported_again_once_nothing_in_it_is_at_work(
    session: Session, operator: Operator, settings: Settings
) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    (jid,) = batches.all_jobs(session, batch.bid)
    act_on_job(operator, jid, Event.RESUME)

    with pytest.raises(IllegalTransition, match=r"1 job of .* has not ended"):
        act_on_batch(operator, batch.bid, Event.UPDATE_REPORT)
    act_on_job(operator, jid, Event.FAIL)
    act_on_batch(operator, batch.bid, Event.UPDATE_REPORT)

    again = batches.load(session, batch.bid)
    assert again.status.status is BatchState.UPDATE_REPORTING
    assert (batch.bid, again.status.epoch) in live_tickets(settings)


def test_a_deleted_batch_leaves_tombstones_of_itself_and_its_jobs(
    session: Session, operator: Operator
) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    jids = batches.all_jobs(session, batch.bid)

    act_on_batch(operator, batch.bid, Event.DELETE)

    assert session.children(paths.BATCHES) == []
    assert session.children(paths.JOBS) == ["states"]
    kept = find_batch(operator.inventory(), batch.bid)
    assert kept is not None
    assert (kept.state, kept.disposition.why) == (BatchState.DELETED, "because")
    assert kept.report is not None
    assert [job["jid"] for job in kept.report["failed"]] == jids
    assert [job.jid for job in jobs_of(operator.inventory(), batch.bid)] == jids


def test_a_deletion_of_a_batch_that_was_interrupted_goes_on(session: Session, operator: Operator) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    batches.move(session, batch, BatchMove(Event.DELETE, "test", lock=Lock.FREE))

    act_on_batch(operator, batch.bid, Event.DELETE)

    assert session.children(paths.BATCHES) == []


def test_cancelling_stops_every_job_and_the_batch_is_reported(
    session: Session, operator: Operator, settings: Settings
) -> None:
    bid, jids = planting.split_batch(session, 4)
    planting.complete(session, jobs.load(session, jids[0]))
    planting.apply_event(session, jobs.load(session, jids[1]), Event.HOLD)
    planting.acquire(session, planting.apply_event(session, jobs.load(session, jids[2]), Event.ACQUIRE))

    outcome = cancel(operator, bid)

    assert [(acted.id, acted.now) for acted in outcome.done] == [
        (jids[1], JobState.DELETED),
        (jids[2], JobState.FAILED),
        (jids[3], JobState.FAILED),
    ]
    assert batches.counts(session, bid) == {
        Bucket.PROCESSING: 0,
        Bucket.COMPLETED: 1,
        Bucket.FAILED: 2,
        Bucket.DELETED: 1,
    }
    batch = batches.load(session, bid)
    assert batch.status.status is BatchState.REPORTING
    assert live_tickets(settings) == {(bid, batch.status.epoch)}
    assert find_job(operator.inventory(), jids[1]) is not None


def test_a_batch_that_is_not_split_cannot_be_cancelled_yet(session: Session, operator: Operator) -> None:
    batch = planting.batch_in(session, BatchState.PENDING)

    with pytest.raises(IllegalTransition, match="not split into jobs yet"):
        cancel(operator, batch.bid)


def test_a_dry_run_says_what_would_happen_and_changes_nothing(session: Session, operator: Operator) -> None:
    bid, jids = planting.split_batch(session, 2)
    planting.apply_event(session, jobs.load(session, jids[0]), Event.FAIL)
    before = planting.tree(session)

    resumed = act_on_many(operator, Event.RESUME, jids, dry_run=True)
    stopped = cancel(operator, bid, dry_run=True)

    assert [(acted.id, acted.now) for acted in resumed.done] == [(jids[0], JobState.PENDING)]
    assert [refusal.id for refusal in resumed.refused] == [jids[1]]
    assert [(acted.id, acted.now) for acted in stopped.done] == [(jids[1], JobState.FAILED)]
    assert planting.tree(session) == before


def test_one_refusal_among_many_stops_none_of_the_others(session: Session, operator: Operator) -> None:
    _, jids = planting.split_batch(session, 3)
    for jid in (jids[0], jids[2]):
        planting.apply_event(session, jobs.load(session, jid), Event.FAIL)

    outcome = act_on_many(operator, Event.RESUME, [*jids, "jid0000009999"])

    assert [acted.id for acted in outcome.done] == [jids[0], jids[2]]
    assert [refusal.id for refusal in outcome.refused] == [jids[1], "jid0000009999"]
    assert outcome.untried == 0


def test_a_filter_chooses_the_jobs_to_which_the_event_may_happen(session: Session) -> None:
    bid, jids = planting.split_batch(session, 2)
    planting.split_batch(session, 1)
    planting.apply_event(session, jobs.load(session, jids[1]), Event.FAIL)

    assert select(session, JobFilter(bid=bid), Event.RESUME) == [jids[1]]
    assert select(session, JobFilter(bid=bid), Event.FAIL) == [jids[0]]
    assert select(session, JobFilter(bid=bid, older_than=3600), Event.FAIL) == []
