"""A completed batch is deleted from ZooKeeper after the retention time, and the archive has its record."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from operations.jobs.batch_view import batch_view
from operations.jobs.job_view import job_view
from operations.site import Site
from pipeline.inventory.archive import find_batch, find_job, find_report
from pipeline.inventory.sql import SqlInventory
from pipeline.records import Batch
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, JobState
from pipeline.steps.context import open_clients
from pipeline.storage.ocfl.storage import OcflStorage
from tasks import retention
from tasks.app import make_context
from tasks.retention import ended_jobs, orphans
from tasks.scheduled import beat
from tests.support import planting
from tests.support.boards import requests_of
from tests.support.operators import ANN
from zkstate import paths
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session, connect
from zkstate.queue import listings
from zkstate.record import batches, deletion, jobs
from zkstate.record.batches import BatchMove
from zkstate.record.record import Lock


def later(session: Session, seconds: float) -> ServerClock:
    with single_flight(session, "clock") as clock:
        assert clock is not None
        return ServerClock(clock.read_ms + int(seconds * 1000), time.monotonic())


def completed_batch(session: Session, count: int) -> tuple[str, list[str]]:
    bid, jids = planting.split_batch(session, count)
    for jid in jids:
        done = planting.complete(session, jobs.load(session, jid))
        jobs.clean_up(session, done)
    reporting = batches.finish_if_ended(session, bid, "test")
    assert reporting is not None
    planting.apply_batch_event(session, reporting, Event.SUCCEED)
    return bid, jids


def test_a_completed_batch_is_archived_and_removed_after_its_time(
    session: Session, settings: Settings
) -> None:
    clients = open_clients(settings)
    bid, jids = completed_batch(session, 3)

    retention.remove_old_batches(session, later(session, settings.retention - 60), clients)
    assert session.exists(paths.batch(bid)) is not None
    retention.remove_old_batches(session, later(session, settings.retention + 60), clients)

    assert session.children(paths.BATCHES) == []
    assert session.children(paths.JOBS) == []
    assert session.children(paths.OPEN_BATCHES) == []
    archived = find_batch(clients.inventory, bid)
    assert archived is not None
    assert json.loads(find_report(clients.inventory, bid) or "")["counts"]["completed"] == 3
    job = find_job(clients.inventory, jids[0])
    assert job is not None
    assert [entry.state for entry in job.history][-1] is JobState.COMPLETED


def test_the_archive_remembers_when_a_batch_and_its_jobs_ended_and_were_reported(
    session: Session, settings: Settings
) -> None:
    clients = open_clients(settings)
    bid, jids = completed_batch(session, 2)
    told = ("status", "since", "buckets", "jobs", "percent", "total", "failed_jobs")
    shown = ("state", "since", "ark", "name", "message", "working_dir", "space_needed", "retry_count")
    living = batch_view(Site(settings, session), ANN, bid)
    before, sent = living.model_dump(include=set(told)), living.report
    before_jobs = [job_view(Site(settings, session), ANN, jid).model_dump(include=set(shown)) for jid in jids]

    retention.remove_old_batches(session, later(session, settings.retention + 60), clients)

    def archive() -> SqlInventory:
        return clients.inventory

    archived = batch_view(Site(settings, session), ANN, bid)
    assert archived.model_dump(include=set(told)) == before
    assert sent is not None
    assert archived.report is not None
    assert archived.report.last_modified == sent.last_modified
    assert [
        job_view(Site(settings, session), ANN, jid).model_dump(include=set(shown)) for jid in jids
    ] == before_jobs


def test_a_removal_that_was_interrupted_is_finished(session: Session, settings: Settings) -> None:
    clients = open_clients(settings)
    bid, jids = completed_batch(session, 2)
    batch = batches.load(session, bid)
    retention.archive(session, batch, clients, by="test", reason="")
    batches.move(session, batch, BatchMove(Event.DELETE, "test", lock=Lock.FREE))
    for path in (paths.job_lock, paths.history, paths.priority):
        if session.exists(path(jids[0])) is not None:
            session.zk.delete(path(jids[0]))

    retention.remove_old_batches(session, later(session, 1), clients)

    assert session.children(paths.BATCHES) == []
    assert session.children(paths.JOBS) == []


def test_a_clean_up_reads_what_is_due_and_one_page_of_younger_batches(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day of a million objects in batches of 50 leaves 20,000 batches; a run comes every 10 minutes."""
    monkeypatch.setattr(listings, "READ_PAGE", 4)
    clients = open_clients(settings)
    clock = later(session, settings.retention - 60)
    costs = []
    for count in (8, 32):
        while len(session.children(paths.BATCHES)) < count:
            planting.batch_in(session, BatchState.HELD)
        before = requests_of(session)
        retention.remove_old_batches(session, clock, clients)
        costs.append(requests_of(session) - before)

    # two listings, and two nodes of each batch of a page
    assert costs == [2 + 2 * 4] * 2


def test_a_due_batch_is_removed_behind_a_page_of_failed_ones(
    session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listings, "READ_PAGE", 1)
    failed = planting.batch_in(session, BatchState.FAILED).bid
    due, _ = completed_batch(session, 1)

    retention.remove_old_batches(session, later(session, settings.retention + 60), open_clients(settings))

    assert session.children(paths.BATCHES) == [failed]
    assert find_batch(open_clients(settings).inventory, due) is not None


def test_a_batch_with_a_deleted_job_is_archived_too(session: Session, settings: Settings) -> None:
    clients = open_clients(settings)
    bid, jids = planting.split_batch(session, 2)
    deletion.delete_job(
        session, planting.apply_event(session, jobs.load(session, jids[0]), Event.FAIL), "operator"
    )
    jobs.clean_up(session, planting.complete(session, jobs.load(session, jids[1])))
    reporting = batches.finish_if_ended(session, bid, "test")
    assert reporting is not None
    done = planting.apply_batch_event(session, reporting, Event.SUCCEED)
    assert done.status.status is BatchState.COMPLETED

    retention.remove_old_batches(session, later(session, settings.retention + 60), clients)

    assert session.children(paths.BATCHES) == []


def test_staged_files_of_an_ended_job_are_removed_and_those_of_a_running_job_stay(
    session: Session, settings: Settings
) -> None:
    storage = OcflStorage(settings.storage)
    _, (ended,) = completed_batch(session, 1)
    alive = planting.one_job(session)
    for name in (f"{ended}-00ff", f"{ended}-11ff.gone", f"{alive.jid}-00ff", "jid0000999999-00ff"):
        (storage.root.staging / name / "content").mkdir(parents=True)
    (storage.root.staging / "root-00ff").touch()

    assert storage.tidy(ended_jobs(session)) == (ended,)

    left = {path.name for path in storage.root.staging.iterdir()}
    assert left == {f"{alive.jid}-00ff", "jid0000999999-00ff", "root-00ff"}


def test_only_folders_of_jobs_that_ended_in_this_record_are_orphans(
    session: Session, settings: Settings
) -> None:
    _, (ended,) = completed_batch(session, 1)
    alive = planting.one_job(session)
    for jid in (ended, alive.jid, "jid0000999999", "jid-odd"):
        (settings.working / "bid0000000001" / jid).mkdir(parents=True)

    assert [folder.name for folder in orphans(session, settings.working)] == [ended]


def test_scheduled_work_removes_the_folder_that_a_crash_left_of_a_completed_job(
    session: Session, settings: Settings
) -> None:
    context = make_context(settings)
    _, (ended,) = completed_batch(session, 1)
    failed = planting.job_in(session, JobState.FAILED)
    folders = [settings.working / "bid0000000001" / ended, settings.working / failed.bid / failed.jid]
    for folder in folders:
        folder.mkdir(parents=True)

    beat.WORK["clean_up_jobs"](context, session, later(session, 0))

    assert [folder.exists() for folder in folders] == [False, True]
    context.drop_session()


def test_a_stray_entry_among_the_completed_jobs_costs_no_job_its_folder(
    session: Session, settings: Settings
) -> None:
    context = make_context(settings)
    _, (ended,) = completed_batch(session, 1)
    working = planting.job_in(session, JobState.PROCESSING)
    stray = paths.queue_entry(JobState.COMPLETED, working.priority, working.jid)
    session.ensure_node(stray)
    orphan, folder = (settings.working / working.bid / jid for jid in (ended, working.jid))
    for path in (orphan, folder):
        path.mkdir(parents=True)

    beat.WORK["clean_up_jobs"](context, session, later(session, 0))

    assert (orphan.exists(), folder.exists()) == (False, True)
    session.zk.delete(stray)
    context.drop_session()


def test_a_folder_that_cannot_be_removed_keeps_no_other_from_being_removed(
    session: Session, settings: Settings
) -> None:
    context = make_context(settings)
    bid, jids = completed_batch(session, 3)
    batch, elsewhere = settings.working / bid, settings.home / "elsewhere"
    for folder in (elsewhere, batch / jids[0], batch / jids[2]):
        folder.mkdir(parents=True)
    (batch / jids[1]).symlink_to(elsewhere)

    beat.WORK["clean_up_jobs"](context, session, later(session, 0))

    assert [path.name for path in batch.iterdir()] == [jids[1]]
    context.drop_session()


def test_an_operator_and_scheduled_work_may_remove_one_batch_at_the_same_moment(
    session: Session, settings: Settings
) -> None:
    with connect(settings) as other, ThreadPoolExecutor(2) as removers:
        for _ in range(12):
            bid, _ = completed_batch(session, 1)
            deleted = planting.apply_batch_event(session, batches.load(session, bid), Event.DELETE)
            together = threading.Barrier(2)

            def remove(by: Session, batch: Batch = deleted, start: threading.Barrier = together) -> bool:
                start.wait(30)
                return deletion.remove_batch(by, batch)

            assert list(removers.map(remove, (session, other))) == [True, True]
            assert session.exists(paths.batch(bid)) is None
