"""The drills: back up under load, continue, lose ZooKeeper, the inventory or both, restore, deposit on."""

import os
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from entrypoints.cli import exit_codes
from entrypoints.stack import child
from entrypoints.stack.home import StackInfo, read_info
from operations.checks.deployment import back_up
from operations.site import Site
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from pipeline.storage.factory import open_storage
from tests.e2e.collection import File, body_of, deposit, put_batch, put_object, submit
from tests.e2e.test_pipeline import rows
from tests.servers import zookeeper as zookeeper_servers
from tests.servers.http_source import HttpSource
from tests.support import cli
from tests.support.fleet import Fleet, assert_completed, batch_ended, job_reaches, quiet, wait_for
from zkstate import paths
from zkstate.care import audit
from zkstate.connection.session import Session, connect
from zkstate.queue import listings
from zkstate.record import batches, jobs

pytestmark = pytest.mark.timeout(300)


def lose(server: zookeeper_servers.Server, data: Path) -> None:
    server.process.terminate()
    server.process.wait(20)
    shutil.rmtree(data)
    server.start()


def await_first_ended(session: Session, bid: str) -> None:
    """Wait until the batch has jobs, of which the first one has ended and others have not."""
    wait_for(
        session, paths.batch_status(bid), lambda: bool(batches.all_jobs(session, bid)), 60, lambda: "no jobs"
    )
    job_reaches(session, batches.all_jobs(session, bid)[0], JobState.COMPLETED)


def test_a_lost_zookeeper_is_restored_from_a_backup_under_load_and_nothing_is_given_or_stored_twice(
    own_fleet: Fleet, own_zookeeper: zookeeper_servers.Server, source: HttpSource, tmp_path: Path
) -> None:
    fleet, settings = own_fleet, own_fleet.settings
    data, backup = tmp_path / "zookeeper" / "data", tmp_path / "backup"
    fleet.worker()
    fleet.beat()
    with connect(settings) as session:
        before = deposit(session, settings, source, 2)
        assert_completed(batch_ended(session, before, timeout=120))
        last = threading.Event()
        during = deposit(session, settings, source, 16, last)
        await_first_ended(session, during)

        view = back_up(Site(settings, session), backup)

        assert view.manifest.batches == 2
        assert batches.load(session, during).status.status not in (BatchState.COMPLETED, BatchState.FAILED)
        last.set()
        assert_completed(batch_ended(session, during, timeout=120))
        after = deposit(session, settings, source, 3)
        assert_completed(batch_ended(session, after, timeout=120))
        quiet(session)
    fleet.stop()
    lose(own_zookeeper, data)

    restored = cli.run(settings, "restore", str(backup), "--json")

    assert restored.code == 0, restored.err
    assert restored.json()["unknown"] == 0
    fleet.worker("worker2")
    fleet.beat("beat2")
    with connect(settings) as session:
        assert_completed(batch_ended(session, during, timeout=120))
        again = deposit(session, settings, source, 3)
        assert again > after
        assert_completed(batch_ended(session, again, timeout=120))
        quiet(session)
        states = {jobs.load(session, jid).status.status for jid in listings.all_jobs(session)}
        assert states == {JobState.COMPLETED}
        assert audit.audit(session) == ()
    assert_known_once(settings, 2 + 16 + 3 + 3)


def assert_known_once(settings: Settings, objects: int) -> None:
    """Every stored version is in the inventory, and no ARK was given twice."""
    entered = rows(settings, "select ark, number from inv_versions")
    stored = [(version.ark, version.number) for version in open_storage(settings).versions()]
    assert sorted(stored) == sorted(entered)
    assert len({ark for ark, _ in stored}) == objects


def lose_inventory(settings: Settings) -> None:
    for part in settings.home.glob("inventory.sqlite*"):
        part.unlink()


def again_and_again(source: HttpSource) -> str:
    """A batch of one object with a local id: each submission is another version of the object."""
    name = uuid.uuid4().hex
    url = put_object(source, f"{name}-0", [File("a.txt", body_of(name))])
    return put_batch(source, [url], name)


def test_a_lost_inventory_is_restored_from_a_backup_under_load_and_completed_from_storage(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, tmp_path: Path
) -> None:
    backup, updated = tmp_path / "backup", again_and_again(source)
    fleet.worker()
    fleet.beat()
    assert_completed(batch_ended(session, deposit(session, settings, source, 2), timeout=120))
    last = threading.Event()
    during = deposit(session, settings, source, 6, last)
    await_first_ended(session, during)
    back_up(Site(settings, session), backup)
    last.set()
    assert_completed(batch_ended(session, during, timeout=120))
    assert_completed(batch_ended(session, submit(session, settings, updated), timeout=120))
    quiet(session)

    lose_inventory(settings)
    waiting = submit(session, settings, updated)
    restored = cli.run(settings, "restore", str(backup), "--inventory")
    reconciled = cli.run(settings, "check", "--repair", "--json")

    assert restored.code == 0, restored.err
    assert reconciled.code == 0, reconciled.err + reconciled.out
    assert reconciled.json()["repaired"]["not-entered"] >= 1
    assert_completed(batch_ended(session, waiting, timeout=120))
    assert_completed(batch_ended(session, deposit(session, settings, source, 2), timeout=120))
    quiet(session)
    assert_known_once(settings, 2 + 6 + 1 + 2)
    assert cli.run(settings, "check").code == 0


def test_zookeeper_and_the_inventory_are_lost_and_restored_and_nothing_is_given_or_stored_twice(
    own_fleet: Fleet, own_zookeeper: zookeeper_servers.Server, source: HttpSource, tmp_path: Path
) -> None:
    fleet, settings = own_fleet, own_fleet.settings
    backup, updated = tmp_path / "backup", again_and_again(source)
    fleet.worker()
    fleet.beat()
    with connect(settings) as session:
        assert_completed(batch_ended(session, deposit(session, settings, source, 2), timeout=120))
        last = threading.Event()
        during = deposit(session, settings, source, 6, last)
        await_first_ended(session, during)
        back_up(Site(settings, session), backup)
        last.set()
        assert_completed(batch_ended(session, during, timeout=120))
        assert_completed(batch_ended(session, submit(session, settings, updated), timeout=120))
        quiet(session)
    fleet.stop()
    lose(own_zookeeper, tmp_path / "zookeeper" / "data")
    lose_inventory(settings)

    done = [
        cli.run(settings, "restore", str(backup), "--inventory"),
        cli.run(settings, "restore", str(backup)),
        cli.run(settings, "check", "--repair", "--json"),
    ]

    assert [each.code for each in done] == [0, 0, 0], [each.err for each in done]
    assert "arkline check --repair" in done[1].out
    fleet.worker("worker2")
    fleet.beat("beat2")
    with connect(settings) as session:
        assert_completed(batch_ended(session, during, timeout=120))
        assert_completed(batch_ended(session, submit(session, settings, updated), timeout=120))
        assert_completed(batch_ended(session, deposit(session, settings, source, 2), timeout=120))
        quiet(session)
        assert audit.audit(session) == ()
    assert_known_once(settings, 2 + 6 + 1 + 2)
    assert cli.run(settings, "check").code == 0


def test_the_record_of_a_standalone_stack_is_restored_while_only_its_servers_run(tmp_path: Path) -> None:
    home, backup, file = tmp_path / "home", tmp_path / "backup", tmp_path / "hello.txt"
    file.write_text("hello")

    def arkline(*words: object, beside: bool = True) -> str:
        info = read_info(home) if beside else None
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ARKLINE_")}
        command = [*cli.COMMAND, *map(str, words)]
        environment = kept | (info.environment if info else {})
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done)
        return done.stdout

    @contextmanager
    def stack(*options: str) -> Iterator[StackInfo]:
        arkline("standalone", "start", "--detach", "--home", home, *options, beside=False)
        try:
            info = read_info(home)
            assert info is not None
            yield info
        finally:
            arkline("standalone", "stop", "--home", home, beside=False)

    with stack("--workers", "1"):
        bid = arkline("submit", file, "--profile", "demo", "--wait", "-o", "name").split()[0]
        arkline("backup", backup)
    shutil.rmtree(home / "zookeeper" / "data")
    began = time.monotonic()
    refused = subprocess.run(
        [*cli.COMMAND, "standalone", "start", "--home", str(home)],
        env={name: value for name, value in os.environ.items() if not name.startswith("ARKLINE_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert time.monotonic() - began < child.Command.ready_seconds
    assert refused.returncode == exit_codes.FAILED
    assert "restore ZooKeeper's data" in refused.stderr
    assert f"arkline standalone start --servers-only --home {home}" in refused.stderr.splitlines()[-1]
    with stack("--servers-only") as info:
        assert (set(info.services), info.web_url, info.token) == ({"zookeeper", "redis"}, "", "")
        arkline("restore", backup, "--yes")
    with stack("--workers", "1"):
        assert "completed" in arkline("status", bid)
