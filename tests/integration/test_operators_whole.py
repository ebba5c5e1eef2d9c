"""What operators do to the whole: collections, the queue, working storage, workers."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from entrypoints.render.fleet_status import given_back
from operations.fleet import fleet
from operations.fleet.working_storage import GivesBack, clean_up, space_view
from operations.jobs.batch_view import batch_view, report
from operations.run import Run, Stopped
from operations.site import Site
from operations.verbs import holds as stopping
from operations.verbs.verbs import act
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.inventory.archive import find_batch
from pipeline.principal import Forbidden
from pipeline.profiles.profile import Profiles, UnknownProfile
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind, JobState
from pipeline.working_storage import capacity
from tasks.broker import read_queues
from tests.support import planting
from tests.support.fleet import fleet as running_fleet
from tests.support.operators import ANN, downloading_job
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.fleet import counters, holds
from zkstate.fleet.holds import Hold
from zkstate.record import batches, jobs, journal
from zkstate.record.journal import JournalAction, Stamp


@pytest.fixture
def profiles(settings: Settings) -> Profiles:
    return Profiles(settings.profiles)


def test_a_hold_keeps_who_when_and_why_until_it_is_released(
    session: Session, site: Site, profiles: Profiles
) -> None:
    first = stopping.hold_collection(site, ANN, "demo", reason="because")
    again = stopping.hold_collection(site, ANN, "demo", reason="because")
    released = stopping.release_collection(site, ANN, "demo", reason="because")

    assert first.hold is not None
    assert (first.hold.by, first.hold.reason, first.changed) == ("ann@desk", "because", True)
    assert (again.hold, again.changed) == (first.hold, False)
    assert (released.hold, released.changed) == (None, True)
    assert holds.collection_hold(session, "demo") is None
    assert not stopping.release_collection(site, ANN, "demo", reason="because").changed


def test_what_operators_do_to_a_collection_and_the_queue_stays_in_their_journals(
    session: Session, profiles: Profiles, site: Site
) -> None:
    bob = ANN.model_copy(update={"name": "bob@desk"})
    stopping.hold_collection(site, ANN, "demo", reason="because")
    stopping.hold_collection(site, bob, "demo")
    stopping.release_collection(site, bob, "demo")
    stopping.release_collection(site, bob, "demo")
    stopping.pause(site, ANN, reason="because")
    stopping.unpause(site, bob)

    def entries(collection: str | None) -> list[tuple[str, str, str, str | None]]:
        history = stopping.history(site, ANN, collection)
        return [(entry.action, entry.by, entry.reason, entry.via) for entry in history.entries]

    assert entries("demo") == [
        ("hold", "ann@desk", "because", "cli"),
        ("release", "bob@desk", "", "cli"),
    ]
    assert entries(None) == [("pause", "ann@desk", "because", "cli"), ("unpause", "bob@desk", "", "cli")]
    assert entries("other") == []


def test_a_journal_is_bounded_and_drops_its_oldest_entries(session: Session) -> None:
    for number in range(journal.ENTRIES // 2 + 1):
        holds.place(session, Hold(by=f"op{number}", reason="x" * 10_000))
        holds.end(session, Stamp())

    entries = holds.actions(session)

    assert len(entries) == journal.ENTRIES
    assert (entries[0].by, entries[-2].by) == ("op1", f"op{journal.ENTRIES // 2}")
    assert {len(entry.reason) for entry in entries} == {0, journal.REASON_LIMIT}


def test_of_two_operators_who_pause_at_once_one_does_and_both_journals_agree(
    session: Session, settings: Settings
) -> None:
    with connect(settings) as other, ThreadPoolExecutor(2) as pool:
        for _ in range(10):
            pauses = list(pool.map(lambda who: holds.place(who, Hold(by="ann")), (session, other)))
            releases = list(pool.map(lambda who: holds.end(who, Stamp()), (session, other)))
            assert sorted(pauses) == sorted(releases) == [False, True]

    actions = [entry.action for entry in holds.actions(session)]
    assert actions == ["pause", "unpause"] * 10


def test_without_rights_for_all_collections_the_queue_is_not_paused(
    session: Session, site: Site, profiles: Profiles
) -> None:
    demo = ANN.model_copy(update={"collections": frozenset({"demo"})})

    stopping.hold_collection(site, demo, "demo")
    with pytest.raises(Forbidden, match="all collections"):
        stopping.pause(site, demo)
    with pytest.raises(Forbidden, match="collection other"):
        stopping.release_collection(site, demo, "other")

    assert holds.paused(session) is None


def test_a_collection_that_has_no_profile_is_not_held(site: Site, profiles: Profiles) -> None:
    with pytest.raises(UnknownProfile):
        stopping.hold_collection(site, ANN, "demmo")


@pytest.mark.parametrize("files", [(), ("demo.yaml",), ("demo.yaml", "demo.txt")])
def test_a_collection_whose_profile_is_gone_or_invalid_is_held(
    session: Session, settings: Settings, tmp_path: Path, files: tuple[str, ...]
) -> None:
    planting.one_job(session)
    for file in files:
        (tmp_path / file).write_text("{name")
    site = Site(settings.model_copy(update={"profiles": tmp_path}), session)

    assert stopping.hold_collection(site, ANN, "demo", reason="bad metadata").changed

    assert holds.is_held(session, "demo")


def test_a_release_of_a_collection_releases_its_held_batches_and_jobs(
    session: Session, site: Site, profiles: Profiles
) -> None:
    stopping.hold_collection(site, ANN, "demo")
    batch = planting.batch_in(session, BatchState.HELD)
    job = planting.job_in(session, JobState.HELD)

    done = stopping.release_collection(site, ANN, "demo")

    assert done.released is not None
    assert [acted.id for acted in done.released.done] == [batch.bid, job.jid]
    assert batches.load(session, batch.bid).status.status is BatchState.PENDING
    assert jobs.load(session, job.jid).status.status is JobState.PENDING


def test_a_release_can_leave_what_is_held(session: Session, site: Site, profiles: Profiles) -> None:
    stopping.hold_collection(site, ANN, "demo")
    job = planting.job_in(session, JobState.HELD)

    done = stopping.release_collection(site, ANN, "demo", keep_held=True)

    assert done.released is None
    assert jobs.load(session, job.jid).status.status is JobState.HELD


def test_a_pause_stops_the_queue_and_an_unpause_feeds_it(
    session: Session, site: Site, settings: Settings
) -> None:
    job = planting.one_job(session)

    assert stopping.pause(site, ANN).changed
    assert not stopping.pause(site, ANN).changed
    stopping.unpause(site, ANN)

    assert {jid for jid, _ in read_queues(settings).tickets} == {job.jid}
    assert not stopping.unpause(site, ANN).changed


def test_space_is_shown_with_the_jobs_that_reserve_it(session: Session, settings: Settings) -> None:
    job = downloading_job(session, settings)

    view = space_view(Site(settings.model_copy(update={"working_capacity": 1000}), session), ANN)

    assert (view.total, view.used, view.reserved) == (1000, 1, 700)
    (reservation,) = view.reservations
    assert (reservation.jid, reservation.state, reservation.bytes) == (job.jid, JobState.DOWNLOADING, 700)


def test_space_says_who_gives_it_back_when(session: Session, settings: Settings) -> None:
    working = downloading_job(session, settings)
    completed = planting.complete(session, planting.one_job(session, working=settings.working))
    failed = planting.apply_event(session, downloading_job(session, settings), Event.FAIL)
    for job in (completed, failed):
        Path(job.configuration.working_dir).mkdir(parents=True, exist_ok=True)
        Path(job.configuration.working_dir, "content").write_text("x")
    capacity.measure_again()

    parts = space_view(Site(settings, session), ANN, {JobState.DOWNLOADING: 90.0}).reservations

    given = {part.jid: (part.gives_back, part.usual, given_back(part)) for part in parts}
    assert given == {
        working.jid: (
            GivesBack.AT_ITS_END,
            90.0,
            "when it ends; 95 % of jobs are downloading for less than 1 minute",
        ),
        failed.jid: (GivesBack.WHEN_NEEDED, None, "when other jobs need it, or when it is deleted"),
        completed.jid: (GivesBack.CLEAN_UP, None, "at the next clean-up"),
    }
    assert {part.since for part in parts} == {
        jobs.load(session, jid).status.since for jid in (working.jid, failed.jid, completed.jid)
    }


def test_a_reservation_without_a_job_is_not_given_back_by_itself(
    session: Session, settings: Settings
) -> None:
    session.zk.create(paths.reservation("jid0000000777"), b"5")

    try:
        (part,) = space_view(Site(settings, session), ANN).reservations
    finally:
        session.zk.delete(paths.reservation("jid0000000777"))

    assert (part.state, part.gives_back) == (None, GivesBack.NEVER)
    assert "`arkline check --record`" in given_back(part)


def test_a_clean_up_removes_the_folders_that_no_job_needs(
    session: Session, site: Site, settings: Settings
) -> None:
    needed = Path(downloading_job(session, settings).configuration.working_dir)
    counters.raise_to(session, "job", 9)
    forgotten = settings.working / "bid0000000009" / "jid0000000009"
    forgotten.mkdir(parents=True)

    planned = clean_up(site, ANN, dry_run=True)
    assert forgotten.exists()
    done = clean_up(site, ANN)

    assert planned.folders == done.folders == (str(forgotten),)
    assert not forgotten.parent.exists()
    assert needed.exists()


def test_a_clean_up_archives_completed_batches_that_are_old(
    session: Session, site: Site, settings: Settings
) -> None:
    settings.working.mkdir()
    batch = planting.batch_in(session, BatchState.COMPLETED)

    kept = clean_up(site, ANN)
    planned = clean_up(site, ANN, older_than=0.000001, dry_run=True)
    gone = clean_up(site, ANN, older_than=0.000001)

    assert kept.batches == ()
    assert planned.batches == gone.batches == (batch.bid,)
    assert session.exists(paths.batch(batch.bid)) is None
    archived = find_batch(site.inventory(), batch.bid)
    assert archived is not None
    assert archived.disposition.who == ANN.name
    assert [(entry.action, entry.by) for entry in holds.actions(session)] == [("clean-up", ANN.name)] * 2
    shown = batch_view(Site(settings, session), ANN, batch.bid)
    assert shown.report is not None
    assert report(Site(settings, session), ANN, batch.bid).bid == batch.bid


@pytest.mark.parametrize("looks", [0, 1])
def test_a_clean_up_that_is_stopped_removes_nothing_further(
    session: Session, site: Site, settings: Settings, looks: int
) -> None:
    """... a batch, and where all looks at batches are over, a folder."""
    counters.raise_to(session, "job", 9)
    forgotten = settings.working / "bid0000000009" / "jid0000000009"
    forgotten.mkdir(parents=True)
    batch = planting.batch_in(session, BatchState.COMPLETED)
    answers = iter([False] * looks + [True])

    with pytest.raises(Stopped, match="a further clean-up does the rest"):
        clean_up(site, ANN, older_than=0.000001, run=Run(should_stop=lambda: next(answers)))

    assert (session.exists(paths.batch(batch.bid)) is None) == bool(looks)
    assert forgotten.exists()


def test_a_clean_up_needs_the_working_storage(site: Site) -> None:
    with pytest.raises(UsageRefused, match="run this where the workers run"):
        clean_up(site, ANN)


def test_the_report_says_why_jobs_failed_and_why_others_were_deleted(session: Session, site: Site) -> None:
    bid, jids = planting.split_batch(session, 3)
    for jid in jids[:2]:
        planting.apply_event(session, jobs.load(session, jid), Event.FAIL, FailureKind.CONTENT)
    act(site, ANN, jids[1], Event.DELETE, reason="because")

    found = report(site, ANN, bid)

    assert [(job.jid, job.message) for job in found.failed] == [(jids[0], "said so")]
    assert [(job.jid, job.message) for job in found.deleted] == [(jids[1], "because")]
    assert found.counts.unfinished == 1


@pytest.mark.e2e
def test_a_drained_worker_consumes_no_queue_until_the_drain_is_undone(
    session: Session, settings: Settings
) -> None:
    with running_fleet(settings) as running:
        running.worker("w1", concurrency=1)
        (name,) = [worker.name for worker in fleet.workers(settings)]

        site = Site(settings, session)
        drained = fleet.drain(site, ANN, name)
        assert drained.queues == ()
        with pytest.raises(UsageRefused, match=name):
            fleet.drain(site, ANN, "w9@nowhere")
        back = fleet.drain(site, ANN, name, undo=True)

    assert back.queues == ("control", "download", "io", "process", "split")
    assert [(entry.action, entry.target, entry.by) for entry in holds.actions(session)] == [
        (JournalAction.DRAIN, name, "ann@desk"),
        (JournalAction.UNDO_DRAIN, name, "ann@desk"),
    ]


@pytest.mark.e2e
def test_a_worker_that_says_that_it_is_ready_answers_the_first_question(settings: Settings) -> None:
    with running_fleet(settings) as running:
        running.start("late", "-m", "tests.support.late_worker", "-c", "1", "-n", "late@%h")

        (name,) = fleet.taking(settings)

    assert name.startswith("late@")


def test_workers_cannot_be_asked_while_the_broker_is_away(settings: Settings) -> None:
    away = settings.model_copy(update={"broker_url": "redis://:secret@127.0.0.1:1/0"})

    with pytest.raises(ServiceUnreachable, match=r"Redis at 127\.0\.0\.1:1 does not answer"):
        fleet.taking(away)


def test_of_many_operators_who_hold_a_collection_one_does_and_is_recorded(session: Session) -> None:
    def hold(number: int) -> bool:
        return holds.place(session, Hold(by=f"operator {number}"), "demo")

    with ThreadPoolExecutor(8) as operators:
        done = list(operators.map(hold, range(8)))

    held = holds.collection_hold(session, "demo")
    assert sum(done) == 1
    assert held is not None
    assert [entry.by for entry in holds.actions(session, "demo")] == [held.by]


def test_of_many_operators_who_release_a_collection_at_once_one_does_and_is_recorded(
    session: Session,
) -> None:
    holds.place(session, Hold(by="ann"), "demo")

    with ThreadPoolExecutor(8) as operators:
        done = list(operators.map(lambda _: holds.end(session, Stamp(), "demo"), range(8)))

    assert sum(done) == 1
    assert len(holds.actions(session, "demo")) == 2
