"""Cases of jobs and batches that ended, or whose batch has work left."""

import pytest

from operations.reasons import Reason
from pipeline.records import StatusReport, SubmissionType
from pipeline.states import BatchState, Event, JobState
from tests.support import planting
from tests.support.fleet import batch_ended, job_reaches, quiet
from tests.support.remedy_world import Case, World, adding_to
from zkstate import paths
from zkstate.errors import Missing
from zkstate.record import batches, deletion, jobs, record
from zkstate.record.batches import BatchMove

CASES: dict[Reason, Case] = {}
case = adding_to(CASES)


@case(Reason.FAILED_TRANSIENT)
def _transient(world: World) -> None:
    url = world.put(b"x", status=500)
    bid = world.submit(url)
    jid = world.job(bid)
    assert batch_ended(world.session, bid).status.status is BatchState.FAILED
    world.source.put(url.removeprefix(world.source.url("")), b"x")
    found = world.remedied(jid, Reason.FAILED_TRANSIENT)
    world.job_completes(jid)
    world.follow(found.afterwards)
    world.completed(bid)


@case(Reason.FAILED_SYSTEM)
def _system(world: World) -> None:
    held = world.failed_by_operator()
    found = world.remedied(held.jid, Reason.FAILED_SYSTEM)
    held.gate.set()
    world.job_completes(held.jid)
    world.follow(found.afterwards)
    world.completed(held.bid)


@case(Reason.FAILED_CONTENT)
def _content(world: World) -> None:
    bid = world.submit(world.put(b"no manifest"), type=SubmissionType.OBJECT_MANIFEST)
    jid = world.job(bid)
    job_reaches(world.session, jid, JobState.FAILED)
    assert batch_ended(world.session, bid).status.status is BatchState.FAILED
    world.remedied(jid, Reason.FAILED_CONTENT)
    world.completed(world.submitted_again)
    with pytest.raises(Missing):
        jobs.load(world.session, jid)


@case(Reason.JOBS_FAILED)
def _jobs_failed(world: World) -> None:
    held = world.failed_by_operator()
    found = world.remedied(held.bid, Reason.JOBS_FAILED)
    held.gate.set()
    world.job_completes(held.jid)
    world.follow(found.afterwards)
    world.completed(held.bid)


@case(Reason.JOBS_RESUMED)
def _resumed(world: World) -> None:
    held = world.failed_by_operator()
    world.arkline("resume", held.jid)
    found = world.moves_itself(held.bid, Reason.JOBS_RESUMED)
    held.gate.set()
    world.job_completes(held.jid)
    world.follow(found.afterwards)
    world.completed(held.bid)


@case(Reason.REPORT_OUTDATED)
def _outdated(world: World) -> None:
    held = world.failed_by_operator()
    world.arkline("resume", held.jid)
    held.gate.set()
    world.job_completes(held.jid)
    world.remedied(held.bid, Reason.REPORT_OUTDATED)
    world.completed(held.bid)


@case(Reason.REPORT_MISSING)
def _cancelled(world: World) -> None:
    with world.without_beat(leader=True):
        job = world.planted()
        planting.complete(world.session, job)
        assert batches.finish_if_ended(world.session, job.bid, "test") is not None
        world.arkline("cancel", job.bid, "--yes", "--reason", "stopped by the test")
        found = world.remedied(job.bid, Reason.REPORT_MISSING)
        assert "cancelled by" in found.message
        world.completed(job.bid)
        _remove_planted(world, job.bid)


@case(Reason.WAITING_FOR_JOBS)
def _waiting_for_jobs(world: World) -> None:
    held = world.held()
    found = world.moves_itself(held.bid, Reason.WAITING_FOR_JOBS)
    assert found.first is not None
    assert found.first.id == held.jid
    held.gate.set()
    world.completed(held.bid)


@case(Reason.REPORTING)
def _reporting(world: World) -> None:
    with world.without_beat(leader=True):
        job = world.planted()
        planting.apply_event(world.session, job, Event.FAIL)
        world.moves_itself(job.bid, Reason.REPORTING)
    assert batch_ended(world.session, job.bid).status.status is BatchState.FAILED


@case(Reason.REPORT_NOT_SENT)
def _not_sent(world: World) -> None:
    with world.without_beat(leader=True):
        job = world.planted()
        planting.complete(world.session, job)
        batch = batches.finish_if_ended(world.session, job.bid, "test")
        assert batch is not None
        batch = batches.acquire(world.session, record.ticket(batch), "test")
        unsent = "the report could not be mailed: the mail server refused it"
        batches.move(
            world.session,
            batch,
            BatchMove(Event.SUCCEED, "test", message=unsent, report=StatusReport(mailed=False)),
        )
        world.remedied(job.bid, Reason.REPORT_NOT_SENT)
        _remove_planted(world, job.bid)


def _remove_planted(world: World, bid: str) -> None:
    """Storage and inventory know nothing of its job: for other cases it would be one that was lost."""
    ended = batches.load(world.session, bid)
    deletion.remove_batch(world.session, planting.apply_batch_event(world.session, ended, Event.DELETE))


@case(Reason.BEING_REMOVED)
def _removing(world: World) -> None:
    with world.without_beat(leader=False):
        batch = planting.batch_in(world.session, BatchState.DELETED)
        world.remedied(batch.bid, Reason.BEING_REMOVED)
        with pytest.raises(Missing):
            batches.load(world.session, batch.bid)


@case(Reason.RECORD_DAMAGED)
def _damaged(world: World) -> None:
    with world.without_beat(leader=True):
        job = world.planted()
        path = paths.configuration(job.jid)
        world.session.zk.set(path, b"{")
        found = world.expect(job.jid, Reason.RECORD_DAMAGED)
        assert path in found.message
        assert path in world.arkline("jobs", "--batch", job.bid, "--json")
        world.follow(found.remedies)
        assert jobs.load(world.session, job.jid).status.status is JobState.FAILED
    assert batch_ended(world.session, job.bid).status.status is BatchState.FAILED
    world.remedied(job.jid, Reason.FAILED_CONTENT)
    world.completed(world.submitted_again)


@case(Reason.COMPLETED)
def _completed(world: World) -> None:
    bid = world.submit()
    world.completed(bid)
    for name in (bid, world.job(bid)):
        assert world.expect(name, Reason.COMPLETED).remedies == ()


@case(Reason.ARCHIVED)
def _archived(world: World) -> None:
    bid = world.submit()
    world.completed(bid)
    quiet(world.session)
    world.arkline("cleanup", "--older-than", "0.001s")
    assert world.expect(bid, Reason.ARCHIVED).remedies == ()
