"""What a restore refuses, and what a backup of a record keeps."""

import json
import re
import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.protocol.states import ZnodeStat

from entrypoints.cli import exit_codes
from operations.checks.check import check
from operations.checks.deployment import back_up, initialize, restore, restore_inventory
from operations.checks.stores import MARGIN
from operations.site import Site
from pipeline import backup_files
from pipeline.backup_files import BackupManifest
from pipeline.deployment import OutdatedStore
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.inventory.copy import restore_inventory_copy
from pipeline.inventory.search.by_findings import FindingSearch
from pipeline.inventory.sight import EVERYTHING
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.outcome import Service, ServiceDown
from pipeline.records import HistoryEntry, JobStatus
from pipeline.settings import Settings
from pipeline.states import BatchState, Bucket, Event, JobState
from tasks.stores import ConfirmedStores, count_up
from tests.servers.proxy import Proxy
from tests.support import cli, planting
from tests.support.operators import ANN
from tests.support.recordings import ARK, recording
from tests.support.records import a_submission
from tests.support.repository import Repository
from tests.support.stores import with_record
from zkstate import codec, paths
from zkstate.care import audit, copy, deployment
from zkstate.care.quarantine import quarantine
from zkstate.connection.session import Session
from zkstate.fleet import counters, holds
from zkstate.fleet.holds import Hold
from zkstate.record import batches, jobs
from zkstate.record.journal import Stamp

if TYPE_CHECKING:
    from tests.servers import postgresql


@pytest.fixture
def backup(session: Session, settings: Settings, tmp_path: Path) -> Path:
    """A backup of a record with one submission."""
    initialize(Site(settings, session))
    batches.submit(session, a_submission())
    back_up(Site(settings, session), tmp_path / "backup")
    return tmp_path / "backup"


def test_a_record_that_is_not_empty_is_replaced_only_when_that_is_said(
    session: Session, settings: Settings, backup: Path
) -> None:
    later = batches.submit(session, a_submission())

    with pytest.raises(UsageRefused, match="is not empty"):
        restore(Site(settings, session), backup)
    restore(Site(settings, session), backup, replace=True)

    assert session.children("/batches") == ["bid0000000001"]
    assert batches.submit(session, a_submission()) > later
    assert audit.audit(session) == ()


def test_the_drain_of_a_worker_is_in_a_backup(session: Session, settings: Settings, tmp_path: Path) -> None:
    initialize(Site(settings, session))
    drain = Hold.of(ANN, "because")
    holds.place(session, drain, worker="worker1@here")
    back_up(Site(settings, session), tmp_path / "backup")

    restore(Site(settings, session), tmp_path / "backup", replace=True)

    assert holds.drained(session) == {"worker1@here": drain}


def test_a_backup_at_whose_end_zookeeper_is_away_is_complete_and_says_that_it_was_not_noted(
    session: Session,
    settings: Settings,
    zookeeper_proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    initialize(Site(settings, session))
    batches.submit(session, a_submission())
    publish = backup_files.publish

    def then_away(*complete: Any) -> BackupManifest:
        manifest = publish(*complete)
        zookeeper_proxy.refuse()
        return manifest

    monkeypatch.setattr(backup_files, "publish", then_away)
    through = settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})
    (done,) = cli.run_all(through, [["backup", str(tmp_path / "backup")]])
    zookeeper_proxy.accept()

    assert done.code == 0, done.err
    assert "ZooKeeper did not answer when it was to be noted" in " ".join(done.err.split())
    restore(Site(settings, session), tmp_path / "backup", replace=True)
    assert session.children("/batches") == ["bid0000000001"]


@pytest.mark.parametrize("present", ["none", "another"])
def test_an_inventory_that_is_lost_or_replaced_during_a_backup_is_not_in_a_backup(
    session: Session, settings: Settings, tmp_path: Path, present: str
) -> None:
    initialize(Site(settings, session))
    batches.submit(session, a_submission())
    inventory = settings.home / "inventory.sqlite"

    def lose(_: int) -> None:
        for part in settings.home.glob("inventory.sqlite*"):
            part.unlink()
        if present == "another":
            sqlite3.connect(inventory).execute("create table other (id integer)").connection.close()

    with pytest.raises((ServiceDown, ServiceUnreachable), match="inventory"):
        back_up(Site(settings, session), tmp_path / "backup", lose)

    assert not (tmp_path / "backup").exists()


def test_a_job_that_moves_while_its_nodes_are_read_is_copied_as_it_was_at_one_moment(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = planting.job_in(session, JobState.ESTIMATING)
    read, status = session.get_many, paths.job_status(job.jid)

    def move_within(nodes: Sequence[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        if status not in nodes:
            return read(nodes)
        monkeypatch.setattr(session, "get_many", read)
        place = nodes.index(status) + 1
        first = read(nodes[:place])
        planting.apply_event(session, job, Event.SUCCEED)
        return first + read(nodes[place:])

    monkeypatch.setattr(session, "get_many", move_within)

    copied = next(entry for entry in copy.read_record(session) if entry.job)

    state = codec.decode(JobStatus, copied.data["status"], status).status
    history = codec.decode(tuple[HistoryEntry, ...], copied.data["history"], paths.history(job.jid))
    assert (state, history[-1].state) == (JobState.PROVISIONING, JobState.PROVISIONING)


def test_nodes_of_other_applications_at_the_same_root_are_kept(
    session: Session, settings: Settings, backup: Path
) -> None:
    session.ensure_node("/brokers/topics", b"theirs")

    restore(Site(settings, session), backup, replace=True)

    node = session.find("/brokers/topics")
    assert node is not None
    assert node[0] == b"theirs"


def test_a_record_that_is_cleared_has_no_node_but_the_empty_folders(
    session: Session, settings: Settings, backup: Path
) -> None:
    examples = {
        "BID": "bid0000000001", "JID": "jid0000000001", "NNNN": "0001", "STATE": "pending",
        "PP": "05", "EPOCH": "3", "NAME": "job", "KIND": "localid", "HOST": "source.example", "N": "1",
        "KEY": "0" * 64, "SERVICE": "storage", "ID": "0" * 16,
    }  # fmt: skip
    named = re.findall(r"^    (/\S+)", paths.__doc__ or "", re.MULTILINE)
    for pattern in named:
        for path in _spelled(pattern):
            session.ensure_node(re.sub("[A-Z]+", lambda name: examples[name[0]], path))

    copy.clear(session)

    folders = {
        "/".join(path.split("/")[:end]) for path in paths.SKELETON for end in range(2, path.count("/") + 2)
    }
    # the mark of a restore goes with its session
    assert set(planting.tree(session)) == folders | {paths.RESTORE}


def _spelled(pattern: str) -> list[str]:
    """`/batches/BID/{status,lock}` -> both paths."""
    head, _, rest = pattern.partition("{")
    return [head + name for name in rest.rstrip("}").split(",")]


@pytest.mark.parametrize(
    "path",
    [
        "/locks/theirs/one",
        "/locks/leader-election",
        "/ids/theirs",
        "/jobs/theirs/status",
        "/batches/theirs",
        "/space/x",
    ],
)
def test_nodes_of_others_inside_the_folders_of_the_record_are_neither_copied_nor_deleted(
    session: Session, settings: Settings, tmp_path: Path, path: str
) -> None:
    initialize(Site(settings, session))
    batches.submit(session, a_submission())
    session.ensure_node(path, b"theirs")

    back_up(Site(settings, session), tmp_path / "backup")
    restore(Site(settings, session), tmp_path / "backup", replace=True)

    node = session.find(path)
    assert node is not None
    assert node[0] == b"theirs"
    assert b"theirs" not in (tmp_path / "backup" / "record.jsonl").read_bytes()
    assert session.children("/batches") == ["bid0000000001"]


DAMAGE = b"\xff{"
OF_JOB = ("bid", "configuration", "identifiers", "status", "priority", "space_needed", "history")
OF_BATCH = ("submission", "status", "history")


@pytest.fixture
def restored(session: Session, settings: Settings, tmp_path: Path) -> Callable[..., None]:
    """Damages znodes, makes a backup of the record, and restores it."""
    initialize(Site(settings, session))

    def restore_damaged(*damaged: str) -> None:
        for path in damaged:
            session.zk.set(path, DAMAGE)
        back_up(Site(settings, session), tmp_path / "backup")
        restore(Site(settings, session), tmp_path / "backup", replace=True)

    return restore_damaged


@pytest.mark.parametrize("state", [JobState.DOWNLOADING, JobState.FAILED])
@pytest.mark.parametrize("node", OF_JOB)
def test_a_job_with_a_damaged_znode_is_restored_as_it_was_and_can_be_repaired(
    session: Session, settings: Settings, restored: Callable[..., None], node: str, state: JobState
) -> None:
    job = planting.job_in(session, state)
    whole = planting.job_in(session, state)

    restored(f"{paths.job(job.jid)}/{node}")

    stored = session.find(f"{paths.job(job.jid)}/{node}")
    assert stored is not None
    assert stored[0] == DAMAGE
    quarantine(session, job.jid, settings.working, Stamp(by="ann@here"))
    assert jobs.load(session, job.jid).status.status is state
    assert jobs.load(session, whole.jid).status == whole.status
    assert audit.audit(session) == ()


def test_a_job_without_a_readable_status_and_history_is_restored_as_a_failed_one(
    session: Session, settings: Settings, restored: Callable[..., None]
) -> None:
    job = planting.job_in(session, JobState.DOWNLOADING)

    session.zk.delete(paths.job_status(job.jid))
    restored(paths.history(job.jid))

    quarantine(session, job.jid, settings.working, Stamp(by="ann@here"))
    assert jobs.load(session, job.jid).status.status is JobState.FAILED
    assert audit.audit(session) == ()


@pytest.mark.parametrize("state", [BatchState.PENDING, BatchState.PROCESSING])
@pytest.mark.parametrize("node", OF_BATCH)
def test_a_batch_with_a_damaged_znode_is_restored_as_it_was_and_can_be_repaired(
    session: Session, settings: Settings, restored: Callable[..., None], node: str, state: BatchState
) -> None:
    batch = planting.batch_in(session, state)

    restored(f"{paths.batch(batch.bid)}/{node}")

    quarantine(session, batch.bid, settings.working, Stamp(by="ann@here"))
    assert batches.load(session, batch.bid).status.status is state
    assert audit.audit(session) == ()


def test_a_batch_that_does_not_list_one_of_its_jobs_is_backed_up_with_it(
    session: Session, restored: Callable[..., None]
) -> None:
    first, second = (planting.one_job(session) for _ in range(2))
    session.zk.delete(paths.batch_entry(first.bid, Bucket.PROCESSING, first.jid))

    restored()

    assert [jobs.load(session, one.jid).status for one in (first, second)] == [first.status, second.status]
    assert audit.audit(session) == ()


def test_a_job_that_two_batches_list_is_restored_once(
    session: Session, restored: Callable[..., None]
) -> None:
    first, second = (planting.one_job(session) for _ in range(2))
    session.zk.create(paths.batch_entry(second.bid, Bucket.PROCESSING, first.jid))

    restored()

    assert jobs.load(session, first.jid).status == first.status
    assert audit.audit(session) == ()


def test_a_damaged_key_of_a_submission_keeps_no_record_from_being_restored(
    session: Session, restored: Callable[..., None]
) -> None:
    job = planting.one_job(session)
    session.ensure_node(paths.submission_key("once"))

    restored(paths.submission_key("once"))

    assert jobs.load(session, job.jid).status == job.status


def test_numbers_continue_beyond_what_the_inventory_knows(
    session: Session, settings: Settings, backup: Path
) -> None:
    open_inventory(settings.inventory).record(recording(jid="jid0000000041"))
    copy.clear(session)

    restore(Site(settings, session), backup)

    assert counters.last(session, "job") == 41 + MARGIN


def test_a_backup_of_another_deployment_is_refused(
    session: Session, settings: Settings, backup: Path, tmp_path: Path
) -> None:
    copy.clear(session)
    other = Settings.model_validate(settings.model_dump(exclude_unset=True) | {"home": tmp_path / "other"})
    initialize(Site(other, session))
    copy.clear(session)

    with pytest.raises(ServiceDown, match="belongs to deployment"):
        restore(Site(other, session), backup)
    assert deployment.read(session) is None


def test_two_restores_of_one_record_exclude_each_other(
    session: Session, settings: Settings, backup: Path
) -> None:
    refused: list[str] = []

    def begin_another(_: int) -> None:
        if not refused:
            for again in (restore, restore_inventory):
                with pytest.raises(UsageRefused, match="another restore works on the record") as refusal:
                    again(Site(settings, session), backup)
                refused.append(str(refusal.value))

    restore(Site(settings, session), backup, replace=True, on_progress=begin_another)

    assert len(refused) == 2
    assert session.children("/batches") == ["bid0000000001"]
    assert session.exists(paths.RESTORE) is None
    restore(Site(settings, session), backup, replace=True)


@pytest.mark.parametrize("name", ["record.jsonl", "backup.json", "inventory.sqlite"])
def test_a_damaged_backup_is_refused_and_nothing_is_changed(
    session: Session, settings: Settings, backup: Path, name: str
) -> None:
    file = backup / name
    file.write_bytes(file.read_bytes()[:-20])

    with pytest.raises(UsageRefused, match="is damaged"):
        restore(Site(settings, session), backup, replace=True)
    assert session.children("/batches") == ["bid0000000001"]


def test_a_backup_of_a_later_format_is_refused(session: Session, settings: Settings, backup: Path) -> None:
    manifest = json.loads((backup / "backup.json").read_text())
    (backup / "backup.json").write_text(json.dumps(manifest | {"format": 2}))

    with pytest.raises(UsageRefused, match="has format 2"):
        restore(Site(settings, session), backup, replace=True)


def lose_inventory(settings: Settings) -> Path:
    """The file of the inventory, which is gone."""
    open_inventory(settings.inventory).database.close()
    file = settings.data / "inventory.sqlite"
    for part in file.parent.glob("inventory.sqlite*"):
        part.unlink()
    return file


def finds(inventory: SqlInventory, text: str) -> int:
    return len(inventory.objects_by_text(text, FindingSearch(), EVERYTHING, 10))


def test_a_lost_inventory_is_restored_and_not_used_before_it_is_reconciled(
    session: Session, settings: Settings, backup: Path
) -> None:
    lose_inventory(settings)

    restore_inventory(Site(settings, session), backup)

    stores = ConfirmedStores(settings)
    stores.confirm(session)
    with pytest.raises(OutdatedStore, match="makes the missing entries from storage"):
        stores.expected(Service.INVENTORY)
    check(Site(settings, session), ANN, repair=True)
    stores.doubt()
    stores.confirm(session)
    assert stores.expected(Service.INVENTORY) == stores.id


@pytest.mark.parametrize("rest", ["inventory.sqlite", "inventory.sqlite-wal"])
def test_an_inventory_that_is_there_is_not_overwritten(
    session: Session, settings: Settings, backup: Path, rest: str
) -> None:
    """A log of the lost database would be replayed onto the older copy."""
    file = lose_inventory(settings).with_name(rest)
    file.write_bytes(b"something")

    with pytest.raises(UsageRefused, match=f"{rest} away first"):
        restore_inventory(Site(settings, session), backup)
    assert file.read_bytes() == b"something"


def test_an_inventory_that_is_older_than_the_backup_is_refused_and_the_remedy_works(
    session: Session, settings: Settings, backup: Path, tmp_path: Path
) -> None:
    for _ in range(3):
        count_up(session, open_inventory(settings.inventory))
    back_up(Site(settings, session), tmp_path / "newer")
    lose_inventory(settings)
    restore_inventory(Site(settings, session), backup)

    done = cli.run(settings, "restore", str(tmp_path / "newer"), "--replace", "--yes")

    assert done.code == 2
    assert "is older than the backup" in done.err
    assert session.children("/batches") == ["bid0000000001"]

    (advised,) = re.findall(rf"arkline (restore {tmp_path / 'newer'} --inventory):", done.err)
    lose_inventory(settings)
    assert cli.run(settings, *advised.split()).code == 0
    assert cli.run(settings, "restore", str(tmp_path / "newer"), "--replace", "--yes").code == 0


def test_versions_that_only_storage_knows_keep_the_fleet_waiting_until_they_are_entered(
    session: Session, repository: Repository, settings: Settings, tmp_path: Path
) -> None:
    store = with_record(repository, session, settings)
    before = repository.recorded(repository.job(1)).ark
    back_up(Site(repository.settings, session), tmp_path / "backup")
    after = repository.recorded(repository.job(2)).ark
    lose_inventory(repository.settings)
    copy.clear(session)
    restore_inventory(Site(repository.settings, session), tmp_path / "backup")

    view = restore(Site(repository.settings, session), tmp_path / "backup")

    assert view.unknown == 1
    assert "from job jid0000000002" in view.listed[0]
    with pytest.raises(OutdatedStore):
        ConfirmedStores(repository.settings).confirm(session)
    check(Site(repository.settings, session), ANN, repair=True)
    ConfirmedStores(repository.settings).confirm(session)
    inventory = store.repository.inventory
    assert inventory.last_job() == 2
    assert finds(inventory, before) == finds(inventory, after) == 1


def test_an_inventory_in_postgresql_is_copied_and_restored(
    session: Session, settings: Settings, tmp_path: Path, postgresql_server: "postgresql.Server"
) -> None:
    first, second = postgresql_server.new_database(), postgresql_server.new_database()
    given = Settings.model_validate(settings.model_dump(exclude_unset=True) | {"inventory_url": first})
    initialize(Site(given, session))
    counters.raise_to(session, "job", 1)
    open_inventory(first).record(recording(depositor="token:anna"))
    open_inventory(first).database.close()
    view = back_up(Site(given, session), tmp_path / "backup")

    with pytest.raises(UsageRefused, match="it has tables"):
        restore_inventory(Site(given, session), tmp_path / "backup")
    moved = Settings.model_validate(settings.model_dump(exclude_unset=True) | {"inventory_url": second})
    restore_inventory(Site(moved, session), tmp_path / "backup")

    assert view.inventory_copied
    restored = open_inventory(second)
    assert restored.describe_object(ARK) is not None
    assert (finds(restored, "husky"), restored.indexing()) == (1, None)
    marker, record = restored.read_deployment(), deployment.read(session)
    assert marker is not None
    assert record is not None
    assert (marker.id, record.mark) == (record.id, marker.mark + 2)
    restored.database.close()


def test_without_pg_dump_the_backup_says_how_the_inventory_is_copied(
    session: Session, settings: Settings, tmp_path: Path, postgresql_server: "postgresql.Server"
) -> None:
    given = Settings.model_validate(
        settings.model_dump(exclude_unset=True) | {"inventory_url": postgresql_server.new_schema()}
    )
    initialize(Site(given, session))
    open_inventory(given.inventory).database.close()

    done = cli.run(given, "backup", str(tmp_path / "backup"), PATH="/nowhere")

    assert done.code == 0
    assert "pg_dump --format=custom" in done.err
    with pytest.raises(UsageRefused, match=r"has no inventory\.pgdump"):
        restore_inventory_copy(given.inventory, tmp_path / "backup")


def test_a_folder_that_exists_is_not_overwritten(session: Session, settings: Settings, backup: Path) -> None:
    with pytest.raises(UsageRefused, match="name a new folder"):
        back_up(Site(settings, session), backup)


def test_a_disk_that_fills_during_a_backup_is_named(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    initialize(Site(settings, session))
    batches.submit(session, a_submission())
    small = tmp_path / "small"
    small.mkdir()
    # one page for a file of another program, and folders and empty files need none
    full = 'mount -t tmpfs -o size=4k none "$0" && head -c 4096 /dev/zero > "$0/other" && exec "$@"'
    within = ("unshare", "--map-root-user", "--mount", "sh", "-c", full, str(small))

    done = subprocess.run(
        [*within, *cli.COMMAND, "backup", str(small / "monday")],
        env=cli.variables(settings),
        capture_output=True,
        text=True,
        timeout=cli.COMMAND_SECONDS,
        check=False,
    )

    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        exit_codes.REFUSED,
        f"error: {small}/monday.partial cannot be written: No space left on device; remove it, and name a "
        "folder on a disk that has room",
    )


def test_an_interrupted_restore_leaves_a_record_that_nothing_works_on_and_is_repeated(
    session: Session, settings: Settings, backup: Path
) -> None:
    open_inventory(settings.inventory).record(recording(jid="jid0000000041"))
    session.zk.delete("/deployment")
    session.zk.delete("/ids/job") if session.exists("/ids/job") else None

    with pytest.raises(ServiceDown, match="is empty, but the inventory"):
        initialize(Site(settings, session))
    restore(Site(settings, session), backup, replace=True)

    assert deployment.read(session) is not None


def test_an_empty_inventory_that_gets_the_id_is_not_used_before_it_is_reconciled(
    session: Session, repository: Repository, settings: Settings
) -> None:
    given = with_record(repository, session, settings).repository.settings
    ark = repository.recorded(repository.job(1)).ark
    stores = ConfirmedStores(given)
    stores.confirm(session)
    lose_inventory(given)

    joined = cli.run(given, "init", "--missing")

    assert joined.code == 0
    assert "jobs wait: the inventory" in joined.err
    assert "arkline check --repair" in joined.err
    for process in (stores, ConfirmedStores(given)):
        process.doubt()
        process.confirm(session)
        with pytest.raises(OutdatedStore, match="or repair the inventory, which makes the missing entries"):
            process.expected(Service.INVENTORY)
    assert cli.run(given, "init").code == 3
    assert cli.run(given, "check", "--repair").code == 0
    stores.doubt()
    stores.confirm(session)
    assert stores.expected(Service.INVENTORY) == stores.id
    assert open_inventory(given.inventory).describe_object(ark) is not None
    assert cli.run(given, "init", "--missing").err == ""
