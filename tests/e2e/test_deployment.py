"""Record, storage root and inventory that do not belong together: work waits, and says why."""

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from entrypoints.render.remedies import command
from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline.inventory.sql import open_inventory
from pipeline.outcome import Service
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from tasks.stores import claim
from tests.e2e.collection import deposit
from tests.e2e.test_pipeline import rows
from tests.servers import zookeeper as zookeeper_servers
from tests.servers.http_source import HttpSource
from tests.support import cli, nightly
from tests.support.fleet import Fleet, assert_completed, batch_ended, quiet, wait_for
from tests.support.fleet import fleet as running_fleet
from tests.support.operators import ANN
from zkstate import paths
from zkstate.care import deployment
from zkstate.connection.session import Session, connect
from zkstate.fleet import outages
from zkstate.record import batches, jobs

pytestmark = pytest.mark.timeout(240)

VERSIONS = "select ark, number from inv_versions"


def log_of(fleet: Fleet) -> str:
    return "".join(process.command.log.read_text() for process in fleet.running)


def await_log(fleet: Fleet, text: str, seconds: float = 30) -> None:
    await_true(lambda: text in log_of(fleet), seconds, lambda: f"'{text}' in the logs")


def await_true(reached: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    """A file or a log offers no event to wait for."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what()}"
        time.sleep(0.1)


def no_outage(session: Session) -> bool:
    return all(known.outage.ended for known in outages.known(session).values())


def await_waiting(session: Session, bid: str, service: Service) -> str:
    """Wait until a job of the batch waits for the service; the job's message."""
    message = ""

    def waits() -> bool:
        nonlocal message
        for jid in batches.all_jobs(session, bid):
            status = jobs.load(session, jid).status
            if status.waits_for and status.waits_for.name == service:
                message = status.message
        return bool(message)

    await_true(waits, 60, lambda: f"a job of {bid} that waits for the {service}")
    return message


def restore(server: zookeeper_servers.Server, copy: Path, data: Path) -> None:
    server.process.terminate()
    server.process.wait(20)
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    server.start()


def test_a_zookeeper_restored_from_an_older_backup_is_noticed_and_gives_nothing_again(
    own_fleet: Fleet, own_zookeeper: zookeeper_servers.Server, source: HttpSource, tmp_path: Path
) -> None:
    fleet, settings = own_fleet, own_fleet.settings
    data, backup = tmp_path / "zookeeper" / "data", tmp_path / "backup"
    fleet.worker()
    with connect(settings) as session:
        beat = fleet.beat()
        assert_completed(batch_ended(session, deposit(session, settings, source, 3)))
        quiet(session)
    own_zookeeper.process.terminate()
    own_zookeeper.process.wait(20)
    shutil.copytree(data, backup)
    own_zookeeper.start()
    with connect(settings) as session:
        beat.wait(20)
        beat = fleet.beat("beat2")
        assert_completed(batch_ended(session, deposit(session, settings, source, 5)))
        quiet(session)
    before = sorted(rows(settings, VERSIONS))
    assert len(before) == 8

    restore(own_zookeeper, backup, data)

    await_log(fleet, "is older than it was")
    beat.wait(20)
    fleet.beat("beat3")
    with connect(settings) as session:
        bid = deposit(session, settings, source, 5)
        await_true(
            lambda: Service.RECORD in {known.outage.service for known in outages.known(session).values()},
            30,
            lambda: "an outage of the record",
        )
        assert batches.load(session, bid).status.status is BatchState.PENDING
        assert batches.all_jobs(session, bid) == []
        assert sorted(rows(settings, VERSIONS)) == before

        found = why(Site(settings, session), ANN, bid)
        assert (found.reason, found.outage_since is not None) == (Reason.RECORD_OUTDATED, True)
        for remedy in found.remedies:
            assert cli.run(settings, *command(remedy).split()[1:]).code == 0

        assert_completed(batch_ended(session, bid, timeout=120))
        quiet(session)
        await_true(lambda: no_outage(session), 60, lambda: "the end of the outage")
    after = sorted(rows(settings, VERSIONS))
    assert len(after) == len({ark for ark, _ in after}) == 13
    assert {number for _, number in after} == {1}


def mark_of(settings: Settings) -> int:
    """The mark of the inventory."""
    marker = open_inventory(settings.inventory).read_deployment()
    assert marker is not None
    return marker.mark


def test_a_fleet_that_starts_on_an_older_record_takes_no_message(
    own_fleet: Fleet, own_zookeeper: zookeeper_servers.Server, source: HttpSource, tmp_path: Path
) -> None:
    fleet, settings = own_fleet, own_fleet.settings
    data, backup = tmp_path / "zookeeper" / "data", tmp_path / "backup"
    with connect(settings) as session:
        fleet.worker()
        assert_completed(batch_ended(session, deposit(session, settings, source, 1)))
    own_zookeeper.process.terminate()
    own_zookeeper.process.wait(20)
    shutil.copytree(data, backup)
    own_zookeeper.start()
    fleet.beat()  # sends again what meets a worker that has no session yet
    with connect(settings) as session:
        assert_completed(batch_ended(session, deposit(session, settings, source, 2)))
    fleet.stop()
    restore(own_zookeeper, backup, data)

    with connect(settings) as session:
        late = fleet.worker("late", wait=False)
        await_log(fleet, "is older than it was")
        bid = deposit(session, settings, source, 1)

        assert not (fleet.folder / "late.ready").exists()
        assert late.running
        assert batches.load(session, bid).status.status is BatchState.PENDING


def test_a_storage_root_whose_mount_is_missing_is_waited_for(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker()
    fleet.beat()
    assert_completed(batch_ended(session, deposit(session, settings, source, 1)))
    elsewhere = settings.home / "disk"
    settings.storage.rename(elsewhere)
    settings.storage.mkdir()

    bid = deposit(session, settings, source, 2)

    assert "mount its disk" in await_waiting(session, bid, Service.STORAGE)
    await_true(lambda: bool(outages.known(session)), 20, lambda: "an outage")
    assert [known.outage.service for known in outages.known(session).values()] == [Service.STORAGE]
    assert list(settings.storage.iterdir()) == []

    def states() -> set[JobState]:
        return {jobs.load(session, jid).status.status for jid in batches.all_jobs(session, bid)}

    await_true(lambda: states() <= {JobState.DOWNLOADING, JobState.PROCESSING}, 20, lambda: str(states()))
    settings.storage.rmdir()
    elsewhere.rename(settings.storage)
    assert_completed(batch_ended(session, bid, timeout=120))
    quiet(session)
    assert rows(settings, "select count(*) from inv_versions") == [(3,)]
    await_true(lambda: no_outage(session), 60, lambda: "the end of the outage")


@pytest.mark.parametrize("fault", [pytest.param("deleted", marks=nightly.case), "replaced by an older copy"])
def test_an_inventory_file_that_is_taken_away_swallows_no_entry(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, fault: str
) -> None:
    file = settings.home / "inventory.sqlite"
    fleet.worker()
    fleet.beat()
    assert_completed(batch_ended(session, deposit(session, settings, source, 1)))
    older = settings.home / "older.sqlite"
    with closing(sqlite3.connect(file)) as live, closing(sqlite3.connect(older)) as copy:
        live.backup(copy)
    assert_completed(batch_ended(session, deposit(session, settings, source, 1)))
    marked = mark_of(settings)
    wait_for(
        session,
        paths.DEPLOYMENT,
        lambda: (deployment.read(session) or pytest.fail("no id")).mark > marked + 1,
        60,
        lambda: "the mark",
    )

    aside = settings.home / "aside"
    aside.mkdir()
    for part in settings.home.glob("inventory.sqlite*"):
        part.rename(aside / part.name)
    if fault != "deleted":
        shutil.copy(older, file)
    bid = deposit(session, settings, source, 2)

    message = await_waiting(session, bid, Service.INVENTORY)
    assert "inventory" in message
    assert fault != "deleted" or not file.exists()
    for part in settings.home.glob("inventory.sqlite*"):
        part.unlink()
    for part in aside.iterdir():
        part.rename(settings.home / part.name)
    assert_completed(batch_ended(session, bid, timeout=120))
    quiet(session)
    assert rows(settings, "select count(*) from inv_versions") == [(4,)]


def test_two_deployments_on_one_prefix_in_redis_do_not_take_each_others_messages(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, tmp_path: Path
) -> None:
    fleet.worker()
    other = settings.model_copy(update={"zk_root": f"{settings.zk_root}/other", "home": tmp_path / "other"})

    with running_fleet(other) as foreign, connect(other) as their_session:
        foreign.worker("foreign", wait=False)
        foreign.beat("foreign-beat", wait=False)
        await_log(foreign, f"the prefix {settings.broker_prefix} in Redis at")
        assert_completed(batch_ended(session, deposit(session, settings, source, 4)))

        assert not (foreign.folder / "foreign.ready").exists()
        theirs = deployment.read(their_session)
    own = deployment.read(session)
    assert own is not None
    assert theirs is not None
    assert own.id != theirs.id
    assert claim(settings, own.id) == own.id
    quiet(session)


def test_a_second_deployment_on_one_record_takes_no_message(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, tmp_path: Path
) -> None:
    """Its own storage root and inventory do not exist yet: nothing confirms that the record is its own."""
    fleet.worker()
    other = settings.model_copy(update={"home": tmp_path / "other"})

    with running_fleet(other) as foreign:
        foreign.worker("foreign", wait=False)
        await_log(foreign, "nothing confirms the record")
        assert_completed(batch_ended(session, deposit(session, settings, source, 4)))

        assert not (foreign.folder / "foreign.ready").exists()
        assert not other.storage.exists()
        assert not (other.home / "inventory.sqlite").exists()
    quiet(session)
