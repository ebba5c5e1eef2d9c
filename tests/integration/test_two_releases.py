"""Two releases at work at once lose no field: a later release's in this one's hands, and 0.1.0's."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from operations.site import Site
from operations.verbs.bulk import cancel
from operations.verbs.holds import hold_collection, pause, release_collection, unpause
from operations.verbs.verbs import act
from pipeline.attempt import UNATTENDED
from pipeline.outcome import Done
from pipeline.profiles.profile import Profiles
from pipeline.profiles.snapshot import take_snapshot
from pipeline.records import StatusReport
from pipeline.settings import Settings
from pipeline.states import JOB, BatchState, Event, JobState
from tests.servers.http_source import HttpSource
from tests.support import planting
from tests.support.operators import ANN
from tests.support.waits import HOST, RETRY
from tests.upgrade import recording
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.queue import queue
from zkstate.queue.job_record import ZooKeeperJobRecord
from zkstate.record import batches, callbacks, jobs, record
from zkstate.record.batches import BatchMove
from zkstate.record.callbacks import Owed
from zkstate.record.jobs import JobMove
from zkstate.record.record import Lock

LATER = {"later": {"from": "9.0", "list": [1, 2]}}
"""A field of a later release."""


def plant(session: Session, path: str) -> None:
    """Add the later field to the value at `path`; in a list, to every entry."""
    value = json.loads(session.get(path)[0])
    planted = [entry | LATER for entry in value] if isinstance(value, list) else value | LATER
    session.zk.set(path, json.dumps(planted).encode())


def at(session: Session, path: str) -> Any:
    return json.loads(session.get(path)[0])


def has_later(value: dict[str, Any]) -> bool:
    return value.get("later") == LATER["later"]


def test_a_later_releases_fields_of_a_job_survive_every_change_by_this_one(session: Session) -> None:
    job = planting.one_job(session)
    for path in (paths.job_status, paths.identifiers, paths.configuration, paths.history):
        plant(session, path(job.jid))
    job = jobs.load(session, job.jid)

    for waits_for in (None, HOST, RETRY):
        held = planting.acquire(session, jobs.load(session, job.jid))
        record.hand_back(session, held, "w", waits_for=waits_for)
    record.redispatch(session, jobs.load(session, job.jid), lost=True)
    held = planting.acquire(session, jobs.load(session, job.jid))
    written = ZooKeeperJobRecord(session, UNATTENDED)
    known = written.identifiers(held)
    written.write_identifiers(held, known.model_copy(update={"local_id": ("a",)}))
    written.mint(held, "fk4", lambda last: (last + 1, f"ark:/99999/fk4{last + 1}"))
    job = jobs.move(session, held, JobMove(Event.ACQUIRE, "w", done=Done(priority=7)))
    job = planting.apply_event(session, job, Event.FAIL)
    job = planting.complete(session, job)

    assert has_later(at(session, paths.job_status(job.jid)))
    assert has_later(at(session, paths.configuration(job.jid)))
    assert at(session, paths.identifiers(job.jid))["primary_id"] == "ark:/99999/fk41"
    assert has_later(at(session, paths.identifiers(job.jid)))
    first, *others = at(session, paths.history(job.jid))
    assert has_later(first)
    assert others


def test_a_later_releases_fields_of_a_batch_survive_every_change_by_this_one(
    session: Session, settings: Settings
) -> None:
    batch = planting.batch_in(session, BatchState.FAILED)
    bid = batch.bid
    for path in (paths.batch_status, paths.submission, paths.batch_history, paths.status_report):
        plant(session, path(bid))

    batch = planting.apply_batch_event(session, batches.load(session, bid), Event.UPDATE_REPORT)
    record.hand_back(session, batches.acquire(session, record.ticket(batch), "w"), "w", waits_for=RETRY)
    batch = batches.acquire(session, record.ticket(batches.load(session, bid)), "w")
    again = StatusReport(failed_jobs=(), successful_jobs=("jid0000000001",))
    batches.move(session, batch, BatchMove(Event.FAIL, "w", report=again))

    assert all(has_later(at(session, path(bid))) for path in (paths.batch_status, paths.submission))
    assert has_later(at(session, paths.batch_history(bid))[0])
    assert has_later(at(session, paths.status_report(bid)))
    assert at(session, paths.status_report(bid))["successful_jobs"] == ["jid0000000001"]


def test_a_later_releases_fields_of_a_profile_snapshot_survive_a_renewal(
    session: Session, settings: Settings
) -> None:
    batch = planting.batch_in(session, BatchState.PENDING)
    batch = batches.acquire(session, record.ticket(batch), "w")
    profile = Profiles(settings.profiles).get("demo")
    start = BatchMove(Event.ACQUIRE, "w", profile=take_snapshot(profile), lock=Lock.KEEP)
    batch = batches.move(session, batch, start)
    plant(session, paths.profile_snapshot(batch.bid))

    batches.renew_profile(session, batch, take_snapshot(profile, by="ann"))

    assert has_later(at(session, paths.profile_snapshot(batch.bid))["earlier"][0])
    batches.finish_split(session, batch)


def test_a_later_releases_fields_of_a_callback_and_of_a_journal_survive(session: Session) -> None:
    job = planting.job_in(session, JobState.FAILED)
    owed = partial(callbacks.owed, session, job.jid, job.status.epoch)
    plant(session, _path(owed()))
    holds.place(session, Hold(by="ann"), "demo")
    plant(session, paths.actions("demo"))

    assert callbacks.claim(session, _there(owed()))
    callbacks.put_off(session, _there(owed()), 90)
    holds.end(session, Hold(by="ann"), "demo")

    ours = {"tries": 1, "delay": 90.0, "message": "", "service_faults": 0}
    assert at(session, _path(owed())) == {**ours, **LATER}
    assert has_later(at(session, paths.actions("demo")))
    assert len(at(session, paths.actions("demo"))["entries"]) == 2


def _there(owed: Owed | None) -> Owed:
    assert owed is not None
    return owed


def _path(owed: Owed | None) -> str:
    return _there(owed).path


def fields(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all fields of a JSON value that are not null."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if inner is not None:
                yield f"{path}.{name}"
                yield from fields(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from fields(inner, f"{path}[{number}]")


def record_fields(session: Session) -> dict[str, set[str]]:
    """The fields of every znode that holds JSON, but no listing in another node's name."""
    return {
        path: set(fields(json.loads(data)))
        for path, data in planting.tree(session).items()
        if data.startswith((b"{", b"["))
    }


def test_a_later_releases_fields_survive_holds_releases_and_the_deletion_of_another_job(
    session: Session, settings: Settings
) -> None:
    site = Site(settings, session)
    bid, (kept, deleted) = planting.split_batch(session, 2)
    places = (paths.job_status(kept), paths.history(kept), paths.configuration(kept), paths.batch_status(bid))
    for path in places:
        plant(session, path)

    for jid in (kept, deleted):
        act(site, ANN, jid, Event.HOLD)
    hold_collection(site, ANN, "demo")
    plant(session, paths.hold("demo"))
    hold_collection(site, ANN, "demo")
    act(site, ANN, deleted, Event.DELETE)

    assert has_later(at(session, paths.hold("demo")))
    release_collection(site, ANN, "demo")
    assert jobs.load(session, kept).status.status is JobState.PENDING
    values = [at(session, path) for path in places]
    assert all(has_later(value[0] if isinstance(value, list) else value) for value in values)
    assert not session.exists(paths.job_status(deleted))
    planting.apply_event(session, jobs.load(session, kept), Event.FAIL)
    batches.finish_if_ended(session, bid, "test")


@pytest.mark.parametrize("version", recording.released())
def test_hold_and_delete_keep_all_fields_of_an_earlier_releases_records(
    session: Session, settings: Settings, source: HttpSource, version: str
) -> None:
    recording.restore(version, session, settings, source)
    before = record_fields(session)
    site = Site(settings, session)
    (held,) = queue.queued(session, JobState.HELD)
    (failed,) = queue.queued(session, JobState.FAILED)
    (pending,) = queue.queued(session, JobState.PENDING)

    act(site, ANN, pending, Event.HOLD)
    hold_collection(site, ANN, "demo")
    pause(site, ANN)
    unpause(site, ANN)
    for jid in (held, failed):
        act(site, ANN, jid, Event.DELETE)
    release_collection(site, ANN, "demo")
    after = record_fields(session)

    assert jobs.load(session, pending).status.status is JobState.PENDING
    gone = {path for path in before if path.startswith((paths.job(held), paths.job(failed)))}
    assert gone
    assert gone.isdisjoint(after)
    may_go = {".kind", ".dispatched_at"}  # a verb clears them
    lost = {path: before[path] - after.get(path, set()) - may_go for path in before.keys() - gone}
    assert {path: names for path, names in lost.items() if names} == {}


@pytest.mark.parametrize("version", recording.released())
def test_every_verb_keeps_all_fields_of_an_earlier_releases_records(
    session: Session, settings: Settings, source: HttpSource, version: str
) -> None:
    recording.restore(version, session, settings, source)
    before = record_fields(session)
    site = Site(settings, session)
    may_go = {".kind", ".dispatched_at"}  # a verb clears them

    done = set()
    for jid in (entry for state in JOB.working() for entry in queue.queued(session, state)):
        record.hand_back(session, planting.acquire(session, jobs.load(session, jid)), "w", waits_for=RETRY)
        if act(site, ANN, jid, Event.FAIL).now == JobState.FAILED:  # a stored and recorded one completes
            act(site, ANN, jid, Event.RESUME)
        done.add(jid)
    (held,) = queue.queued(session, JobState.HELD)
    act(site, ANN, held, Event.RELEASE)
    (failed,) = queue.queued(session, JobState.FAILED)
    act(site, ANN, failed, Event.RESUME)
    for jid in (entry for state in JOB.working() for entry in queue.queued(session, state)):
        cancel(site, ANN, jobs.load(session, jid).bid)
    after = record_fields(session)

    assert len(done) == len(JOB.working())
    lost = {path: before[path] - after.get(path, set()) - may_go for path in before}
    assert {path: names for path, names in lost.items() if names} == {}
    assert any(path.endswith("/history") for path in before)
