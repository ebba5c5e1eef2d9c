"""Cases of waiting: cause the wait, follow the advice, and see the job or batch move."""

import threading

import pytest

from operations.fleet.health import overview
from operations.reasons import Reason
from operations.site import Site
from operations.verbs.holds import release_collection
from pipeline.errors import Action
from pipeline.outcome import Service, WaitsFor
from pipeline.records import SubmissionType
from pipeline.states import BatchState
from tasks.redis_keys import client
from tasks.stores import claim_key
from tests.support import planting
from tests.support.fleet import batch_ended
from tests.support.operators import ANN
from tests.support.remedy_world import Case, World, adding_to
from tests.support.waits import CHECK, OBJECT, RECORD
from zkstate import codec, paths
from zkstate.care import deployment
from zkstate.fleet import hosts, scheduled
from zkstate.fleet.hosts import FleetHostLimiter
from zkstate.record import batches, jobs, record

PROCESSES = 4
"""Of the worker."""

CASES: dict[Reason, Case] = {}
case = adding_to(CASES)


@case(Reason.QUEUE_PAUSED)
def _paused(world: World) -> None:
    world.arkline("pause")
    bid = world.submit()
    world.remedied(world.job(bid), Reason.QUEUE_PAUSED)
    world.completed(bid)


@case(Reason.COLLECTION_ON_HOLD)
def _on_hold(world: World) -> None:
    world.arkline("hold", "--collection", "demo")
    bid = world.submit()
    assert batch_ended(world.session, bid).status.status is BatchState.HELD
    world.remedied(bid, Reason.COLLECTION_ON_HOLD)
    world.completed(bid)


@case(Reason.HOLD_ENDED)
def _hold_ended(world: World) -> None:
    world.arkline("hold", "--collection", "demo")
    bid = world.submit()
    assert batch_ended(world.session, bid).status.status is BatchState.HELD
    release_collection(Site(world.settings, world.session), ANN, "demo", keep_held=True)
    world.remedied(bid, Reason.HOLD_ENDED)
    world.completed(bid)


@case(Reason.COLLECTION_AT_QUOTA)
def _at_quota(world: World) -> None:
    first = world.held("small")
    second = world.submit(profile="small")
    world.moves_itself(world.job(second), Reason.COLLECTION_AT_QUOTA)
    first.gate.set()
    world.completed(second)


@case(Reason.SHARE_TAKEN)
def _share_taken(world: World) -> None:
    with world.half_of_the_places_each():
        first = world.held()
        second = world.submit()
        found = world.expect(world.job(second), Reason.SHARE_TAKEN)
        assert [remedy.action for remedy in found.remedies] == [Action.RAISE_SHARE]
    world.completed(second)
    first.gate.set()
    world.completed(first.bid)


@case(Reason.WAITING_FOR_TURN)
def _turn(world: World) -> None:
    first, _ = world.held(), world.held()
    third = world.submit()
    world.moves_itself(world.job(third), Reason.WAITING_FOR_TURN)
    first.gate.set()
    world.completed(third)


@case(Reason.STARTING)
def _starting(world: World) -> None:
    with world.without_beat(leader=True):
        job = world.planted()
        world.moves_itself(job.jid, Reason.STARTING)
    world.completed(job.bid)


@case(Reason.BEING_DISPATCHED)
def _dispatched(world: World) -> None:
    with world.without_beat(leader=True):
        job = world.planted()
        record.redispatch(world.session, job, lost=False)
        world.moves_itself(job.jid, Reason.BEING_DISPATCHED)
    world.completed(job.bid)


@case(Reason.LOST_WORKER)
def _lost(world: World) -> None:
    with world.without_beat(leader=True):
        job = world.planted()
        record.redispatch(world.session, job, lost=False)
        world.moves_itself(job.jid, Reason.LOST_WORKER)
    world.completed(job.bid)


@case(Reason.NO_BEAT)
def _no_beat(world: World) -> None:
    with world.without_beat(leader=False):
        job = world.planted()
        world.remedied(job.jid, Reason.NO_BEAT)
    world.completed(job.bid)


@case(Reason.SWEEP_LATE)
def _beat_without_effect(world: World) -> None:
    with world.without_beat(leader=True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduled, "SWEEP_LIMIT", 10.0)  # a minute, for whoever asks in this process
        job = world.planted()
        found = world.expect(job.jid, Reason.SWEEP_LATE)
        problems = overview(Site(world.settings, world.session), ANN).health.problems
    assert [remedy.action for remedy in found.remedies] == [Action.START_WORKER, Action.RESTART_BEAT]
    assert Reason.SWEEP_LATE in {problem.reason for problem in problems}
    world.completed(job.bid)
    assert Reason.SWEEP_LATE not in {
        problem.reason for problem in overview(Site(world.settings, world.session), ANN).health.problems
    }


@case(Reason.NO_WORKER)
def _drained(world: World) -> None:
    (worker,) = world.arkline("drain").split()[:1]
    world.arkline("drain", worker)
    bid = world.submit()
    world.remedied(bid, Reason.NO_WORKER)
    world.completed(bid)


@case(Reason.BROKER_UNREACHABLE)
def _redis_away(world: World) -> None:
    world.redis.process.kill()
    bid = world.submit()
    world.remedied(bid, Reason.BROKER_UNREACHABLE)
    world.completed(bid)


@case(Reason.BROKER_REFUSES)
def _redis_full(world: World) -> None:
    client(world.settings).config_set("maxmemory", 1)
    bid = world.submit()
    found = world.remedied(bid, Reason.BROKER_REFUSES)
    assert "maxmemory" in found.message
    world.completed(bid)


@case(Reason.BROKER_FOREIGN)
def _prefix_of_another(world: World) -> None:
    (worker,) = [process for process in world.fleet.running if process.name == "w1"]
    worker.terminate()
    worker.stop(20)
    world.fleet.running.remove(worker)
    deployment.note_broker(world.session, "the prefix that it had")
    client(world.settings).set(claim_key(world.settings), "b" * 32)
    world.fleet.worker("w1", PROCESSES, wait=False)
    bid = world.submit()
    found = world.remedied(bid, Reason.BROKER_FOREIGN)
    assert "b" * 32 in found.message
    world.completed(bid)


@case(Reason.BEING_WORKED_ON)
def _at_work(world: World) -> None:
    held = world.held()
    world.moves_itself(held.jid, Reason.BEING_WORKED_ON)
    held.gate.set()
    world.completed(held.bid)


def _held_manifest(world: World, gate: threading.Event) -> str:
    """A batch that is being split until the gate is opened; then it fails, its manifest being empty."""
    url = world.put(b"#%checkm_0.7\n", hold=gate)
    return world.submit(url, type=SubmissionType.BATCH_MANIFEST)


@case(Reason.BEING_SPLIT)
def _splitting(world: World) -> None:
    gate = world.gate()
    bid = _held_manifest(world, gate)
    world.moves_itself(bid, Reason.BEING_SPLIT)
    gate.set()
    assert batch_ended(world.session, bid).status.status is BatchState.FAILED


@case(Reason.WORKERS_BUSY)
def _busy(world: World) -> None:
    gate = world.gate()
    for _ in range(PROCESSES):
        world.expect(_held_manifest(world, gate), Reason.BEING_SPLIT)
    bid = world.submit()
    world.moves_itself(bid, Reason.WORKERS_BUSY)
    gate.set()
    world.completed(bid)


@case(Reason.WAITING_FOR_HOST)
def _host(world: World) -> None:
    first = world.held()
    second = world.submit(profile="shy")
    world.moves_itself(world.job(second), Reason.WAITING_FOR_HOST)
    first.gate.set()
    world.completed(second)


@case(Reason.HOST_DOWN)
def _host_down(world: World) -> None:
    path = paths.host(world.source.place)
    silent = hosts.BackOff(seconds=8, unanswered=1, cause="timeout while connecting")
    world.session.ensure_node(path)
    world.session.ask(world.session.zk.set_async, path, codec.encode(silent))
    bid = world.submit()
    world.moves_itself(world.job(bid), Reason.HOST_DOWN)
    world.completed(bid)


@case(Reason.HOST_BACKING_OFF)
def _backing_off(world: World) -> None:
    FleetHostLimiter(world.session, lambda: 1).back_off(world.source.place, 8)
    bid = world.submit()
    world.moves_itself(world.job(bid), Reason.HOST_BACKING_OFF)
    world.completed(bid)


@case(Reason.WAITING_FOR_SPACE)
def _space(world: World) -> None:
    first = world.held(body=b"x" * 600_000)
    second = world.submit(world.put(b"y" * 600_000))
    world.moves_itself(world.job(second), Reason.WAITING_FOR_SPACE)
    first.gate.set()
    world.completed(second)


@case(Reason.WAITING_FOR_REVIEW)
def _review(world: World) -> None:
    """The two remedies are alternatives: one job is approved, another one rejected."""
    approved, rejected = (world.submit(profile="reviewed") for _ in range(2))
    for bid, number in ((approved, 0), (rejected, 1)):
        found = world.expect(world.job(bid), Reason.WAITING_FOR_REVIEW)
        assert [remedy.action for remedy in found.remedies] == [Action.APPROVE, Action.REJECT]
        world.follow(found.remedies[number : number + 1])
    world.completed(approved)
    assert batch_ended(world.session, rejected).status.status is BatchState.FAILED
    # a failed job would be in the advice of other cases
    world.arkline("delete", rejected, "--reason", "not accepted", "--yes")


@case(Reason.EXCEEDS_SPACE)
def _too_large(world: World) -> None:
    bid = world.submit(world.put(b"x" * 900_000))
    jid = world.job(bid)
    assert batch_ended(world.session, bid).status.status is BatchState.FAILED
    found = world.expect(jid, Reason.EXCEEDS_SPACE)
    with world.more_space():
        world.follow(found.remedies)
        world.job_completes(jid)
    world.follow(found.afterwards)
    world.completed(bid)


@case(Reason.WAITING_FOR_OBJECT)
def _same_object(world: World) -> None:
    _handed_back(world, OBJECT, Reason.WAITING_FOR_OBJECT)


@case(Reason.WAITING_FOR_CHECK)
def _check_at_its_limit(world: World) -> None:
    _handed_back(world, CHECK, Reason.WAITING_FOR_CHECK)


def _handed_back(world: World, waits_for: WaitsFor, reason: Reason) -> None:
    """A job whose worker gave it back to wait continues by itself."""
    with world.without_beat(leader=True):
        job = world.planted()
        ticket = record.redispatch(world.session, job, lost=False)
        locked = jobs.acquire(world.session, ticket, "test")
        record.hand_back(world.session, locked, "test", delay=2, waits_for=waits_for)
        world.moves_itself(job.jid, reason)
    world.completed(job.bid)


@case(Reason.RECORD_FULL)
def _record_full(world: World) -> None:
    with world.without_beat(leader=True):
        bid = batches.submit(world.session, planting.submission(payload_url=world.put()))
        locked = batches.acquire(world.session, record.ticket(batches.load(world.session, bid)), "test")
        record.hand_back(world.session, locked, "test", delay=2, waits_for=RECORD)
        found = world.expect(bid, Reason.RECORD_FULL)
        assert found.moves_itself
        assert [remedy.action for remedy in found.remedies] == [Action.CLEAN_UP]
    world.completed(bid)


@case(Reason.BETWEEN_TRIES)
def _between_tries(world: World) -> None:
    bid = world.submit(world.put(b"x", status=500, status_times=3))
    world.moves_itself(world.job(bid), Reason.BETWEEN_TRIES)
    world.completed(bid)


@case(Reason.SERVICE_DOWN)
def _mail_away(world: World) -> None:
    outbox = world.settings.outbox_folder
    moved = outbox.with_name("outbox-away")
    outbox.mkdir(parents=True, exist_ok=True)
    outbox.rename(moved)
    outbox.touch()  # no mail can be written below a file
    bid = world.submit()
    found = world.moves_itself(bid, Reason.SERVICE_DOWN)
    assert (found.waits_for, found.outage_since is not None) == (Service.MAIL, True)
    outbox.unlink()
    moved.rename(outbox)
    world.completed(bid)
    assert batches.load(world.session, bid).status.message == ""
