import multiprocessing
import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, make_url, text

from pipeline.errors import UsageRefused
from pipeline.fixity import StoredFile
from pipeline.inventory.base import Provenance
from pipeline.inventory.database import Database
from pipeline.inventory.engine import new_engine, transaction
from pipeline.inventory.schema import OLDEST, SCHEMA, Revision, revision
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.inventory.tables import files, ingests, objects
from pipeline.outcome import Service, ServiceDown, StepFailed
from pipeline.states import FailureKind
from tests.support.recordings import ARK, FIRST_DAY, OTHER_OWNER, OWNER, of_job, recording, stored_file

FORK = multiprocessing.get_context("fork")

EARLIER = Path(__file__).parent.parent / "upgrade" / "inventory"
"""The statements by which earlier releases made an inventory, for each database."""

RELEASES = ("0.2.0", "0.2.1", "0.3.0")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/home/inventory.sqlite"


@pytest.fixture
def other_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/other/inventory.sqlite"


@pytest.fixture
def inventory(url: str) -> SqlInventory:
    return open_inventory(url)


def count(inventory: SqlInventory, table: object) -> int:
    return inventory.database.read(lambda c: int(c.scalar(text(f"SELECT count(*) FROM {table}"))))


def execute(inventory: SqlInventory, statement: str) -> None:
    inventory.database.write(lambda connection: connection.execute(text(statement)))


def test_a_recorded_version_can_be_read_back(inventory: SqlInventory) -> None:
    inventory.record(recording(local_id=("loc-1",), note="first"))

    found = inventory.describe_object(ARK)
    assert found is not None
    assert (found.owner, found.collections, found.local_id) == (OWNER, ("ark:/99999/m5000000",), ("loc-1",))
    assert found.erc == (("who", "Tracy Seneca"), ("what", "Husky Chicken 1"), ("where", ARK))
    (version,) = found.versions
    assert (version.number, version.jid, version.note, version.created) == (
        1,
        "jid0000000001",
        "first",
        FIRST_DAY,
    )
    assert [(f.path, f.size, f.mime_type) for f in version.files] == [
        ("producer/a.jpg", 10, "image/jpeg"),
        ("system/mrt-erc.txt", 10, "application/octet-stream"),
    ]
    assert version.files[0].digest == f"sha512:{stored_file('producer/a.jpg').sha512}"


def test_how_a_file_arrived_is_kept_with_the_version_that_it_arrived_with(inventory: SqlInventory) -> None:
    came = Provenance("ab" * 64, "md5:" + "cd" * 16, "submission", "box.zip", "http://source.example/box.zip")
    inventory.record(recording(provenance={"producer/a.jpg": came}, downloaded=FIRST_DAY))
    bare = recording(number=2, jid="jid0000000002", provenance={"producer/a.jpg": Provenance("ab" * 64)})
    inventory.record(replace(bare, version=replace(bare.version, verified=FIRST_DAY)))

    found = inventory.describe_object(ARK)
    assert found is not None
    first, second = found.versions
    assert [file.provenance for file in first.files] == [came, None]
    assert [file.provenance for file in second.files] == [Provenance("ab" * 64), None]
    assert [(version.downloaded, version.verified) for version in found.versions] == [
        (FIRST_DAY, None),
        (None, FIRST_DAY),
    ]


def test_what_an_earlier_schema_holds_has_no_arrival(inventory: SqlInventory, url: str) -> None:
    inventory.record(recording())
    columns = ("landed_digest", "source_digest", "source_declared_by", "source_container", "source_url")
    for table, names in (("inv_files", columns), ("inv_ingests", ("landed", "verified"))):
        for name in names:
            execute(inventory, f"ALTER TABLE {table} DROP {name}")
    for name in ("job_key", "recorded"):
        execute(inventory, f"ALTER TABLE inv_ingests DROP {name}")
    execute(inventory, "ALTER TABLE arc_jobs DROP remark")
    schedule = ("inv_fixities", "inv_fixity_reads", "inv_events")
    for table in ("deployment", "minted_arks", "arc_reports", "tokens", "logins", *schedule):
        execute(inventory, f"DROP TABLE {table}")
    execute(inventory, "UPDATE alembic_version SET version_num = '0001'")
    execute(inventory, "DROP TABLE inv_schema")
    inventory.database.close()

    found = open_inventory(url).describe_object(ARK)

    assert found is not None
    assert [file.provenance for version in found.versions for file in version.files] == [None, None]
    (version,) = found.versions
    assert (version.downloaded, version.verified, version.recorded) == (None, None, None)
    assert inventory.database.read(revision) == Revision(OLDEST, SCHEMA)


def test_an_object_that_was_never_recorded_is_not_described(inventory: SqlInventory) -> None:
    assert inventory.describe_object(ARK) is None


def test_recording_the_same_job_again_changes_nothing(inventory: SqlInventory) -> None:
    inventory.record(recording(local_id=("loc-1",)))
    before = inventory.describe_object(ARK)
    inventory.record(recording(local_id=("loc-1",)))

    assert inventory.describe_object(ARK) == before


def test_a_second_version_describes_the_object_anew(inventory: SqlInventory) -> None:
    inventory.record(recording())
    inventory.record(recording(number=2, jid="jid0000000002"))

    found = inventory.describe_object(ARK)
    assert found is not None
    assert [version.number for version in found.versions] == [1, 2]
    assert ("what", "Husky Chicken 2") in found.erc
    assert (found.created, found.modified) == (FIRST_DAY, FIRST_DAY + timedelta(days=1))


def test_versions_recorded_out_of_order_leave_the_latest_description(inventory: SqlInventory) -> None:
    inventory.record(recording(number=2, jid="jid0000000002"))
    inventory.record(recording(number=1, jid="jid0000000001"))

    found = inventory.describe_object(ARK)
    assert found is not None
    assert ("what", "Husky Chicken 2") in found.erc
    assert (found.created, found.modified) == (FIRST_DAY, FIRST_DAY + timedelta(days=1))


def test_bytes_of_an_earlier_version_are_not_billed_again(inventory: SqlInventory) -> None:
    inventory.record(
        recording(files=[stored_file("producer/a", 7), stored_file("producer/b", 5, added=False)])
    )

    rows = inventory.database.read(
        lambda c: c.execute(
            files.select().with_only_columns(files.c.full_size, files.c.billable_size).order_by(files.c.id)
        ).all()
    )
    assert [tuple(row) for row in rows] == [(7, 7), (5, 0)]


def test_files_are_told_apart_by_where_they_come_from(inventory: SqlInventory) -> None:
    paths = ("producer/a.txt", "system/mrt-erc.txt", "producer/mrt-dc.xml", "other/x")
    inventory.record(recording(files=[stored_file(path) for path in paths]))

    rows = inventory.database.read(lambda c: c.execute(files.select().order_by(files.c.id)).all())
    assert [(row.source, row.role) for row in rows] == [
        ("producer", "data"),
        ("system", "metadata"),
        ("producer", "metadata"),
        ("consumer", "data"),
    ]


def test_more_files_than_one_statement_takes_are_all_recorded(inventory: SqlInventory) -> None:
    inventory.record(recording(files=[stored_file(f"producer/{n}") for n in range(5_001)]))

    assert count(inventory, files) == 5_001


def test_a_version_number_that_another_job_has_is_refused(inventory: SqlInventory) -> None:
    inventory.record(recording())

    with pytest.raises(StepFailed, match=r"version 1 of ark:/99999/fk4abc from job jid0000000001") as refusal:
        inventory.record(recording(jid="jid0000000002"))
    assert refusal.value.kind is FailureKind.SYSTEM
    assert count(inventory, ingests) == 1


def test_a_job_that_made_another_version_is_refused(inventory: SqlInventory) -> None:
    inventory.record(recording())

    with pytest.raises(StepFailed, match="job jid0000000001 made version 1 of ark:/99999/other"):
        inventory.record(recording("ark:/99999/other"))
    assert count(inventory, objects) == 1


def test_an_object_of_another_owner_is_refused(inventory: SqlInventory) -> None:
    inventory.record(recording())

    with pytest.raises(StepFailed, match="does not belong to the owner") as refusal:
        inventory.record(recording(number=2, jid="jid0000000002", owner=OTHER_OWNER))
    assert refusal.value.kind is FailureKind.CONTENT


def test_known_local_ids_of_an_owner_name_their_arks(inventory: SqlInventory) -> None:
    inventory.reserve_local_ids(OWNER, ARK, ("a", "b"))
    inventory.reserve_local_ids(OTHER_OWNER, "ark:/99999/other", ("a",))

    assert inventory.arks_of(OWNER, ("a", "b", "c")) == {"a": ARK, "b": ARK}
    assert inventory.arks_of(OTHER_OWNER, ("a", "b")) == {"a": "ark:/99999/other"}
    assert inventory.arks_of(OWNER, ()) == {}


def test_more_local_ids_than_one_query_takes_are_found(inventory: SqlInventory) -> None:
    names = [f"loc-{n}" for n in range(1_201)]
    inventory.reserve_local_ids(OWNER, ARK, names)

    assert inventory.arks_of(OWNER, names) == dict.fromkeys(names, ARK)


def test_reserving_again_is_the_same_as_once(inventory: SqlInventory) -> None:
    inventory.reserve_local_ids(OWNER, ARK, ("a", "a"))
    inventory.reserve_local_ids(OWNER, ARK, ("a", "b"))

    assert inventory.arks_of(OWNER, ("a", "b")) == {"a": ARK, "b": ARK}


def test_a_local_id_that_names_another_object_is_refused_with_all_of_its_company(
    inventory: SqlInventory,
) -> None:
    inventory.reserve_local_ids(OWNER, ARK, ("taken",))

    with pytest.raises(StepFailed, match=f"'taken' of owner {OWNER} belongs to {ARK}, not to") as refusal:
        inventory.reserve_local_ids(OWNER, "ark:/99999/other", ("new", "taken"))
    assert refusal.value.kind is FailureKind.CONTENT
    assert inventory.arks_of(OWNER, ("new", "taken")) == {"taken": ARK}


def test_local_ids_cannot_be_reserved_for_an_object_of_another_owner(inventory: SqlInventory) -> None:
    inventory.record(recording())

    with pytest.raises(StepFailed, match=f"{ARK} belongs to another owner"):
        inventory.reserve_local_ids(OTHER_OWNER, ARK, ("a",))


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_an_empty_or_endless_local_id_is_refused(inventory: SqlInventory, name: str) -> None:
    with pytest.raises(StepFailed, match="1 to 255 are allowed") as refusal:
        inventory.reserve_local_ids(OWNER, ARK, (name,))
    assert refusal.value.kind is FailureKind.CONTENT


def test_a_name_that_no_database_can_hold_is_the_depositors_to_mend(inventory: SqlInventory) -> None:
    with pytest.raises(StepFailed, match="the inventory cannot store") as refusal:
        inventory.record(recording(files=[replace(stored_file("producer/a"), path="producer/\udce9")]))
    assert refusal.value.kind is FailureKind.CONTENT


def test_a_description_that_no_database_can_hold_is_kept_as_far_as_it_can_be(inventory: SqlInventory) -> None:
    inventory.record(recording(erc=(("who", "a\x00b"), ("what", "c\udce9d"))))

    found = inventory.describe_object(ARK)
    assert found is not None
    assert found.erc == (("who", "a\ufffdb"), ("what", "c\ufffdd"))


def test_twenty_threads_record_at_once(inventory: SqlInventory) -> None:
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(inventory.record, [of_job(f"t{n}") for n in range(60)]))

    assert (count(inventory, objects), count(inventory, ingests)) == (60, 60)


def test_twenty_threads_that_record_the_same_job_make_one_version(inventory: SqlInventory) -> None:
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(inventory.record, [recording(local_id=("loc-1",))] * 20))

    assert (count(inventory, ingests), count(inventory, files)) == (1, 2)


def test_twenty_threads_that_reserve_the_same_ids_agree_on_one_object(inventory: SqlInventory) -> None:
    def reserve(number: int) -> FailureKind | None:
        try:
            names = ("a", "b", "c") if number % 2 else ("c", "b", "a")
            inventory.reserve_local_ids(OWNER, f"ark:/99999/{number}", names)
        except StepFailed as refusal:
            return refusal.kind
        return None

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(reserve, range(20)))

    assert sorted(map(str, answers)) == ["None", *["content"] * 19]
    winner = f"ark:/99999/{answers.index(None)}"
    assert inventory.arks_of(OWNER, ("a", "b", "c")) == dict.fromkeys("abc", winner)


def _record_some(url: str, own: str, begin: threading.Event) -> None:
    begin.wait()
    for number in range(10):
        open_inventory(url).record(of_job(f"p{own}n{number}"))
        open_inventory(url).record(of_job(f"shared{number}"))


def _forked(work: Callable[..., None], *arguments: object) -> int:
    """A child by os.fork alone: multiprocessing would first close the broker pools of earlier tests in it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(*arguments)
            code = 0
        finally:
            os._exit(code)
    return pid


def _exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_four_processes_that_find_no_database_make_one_and_record_at_once(url: str) -> None:
    begin = FORK.Event()
    children = [_forked(_record_some, url, str(n), begin) for n in range(4)]
    begin.set()

    assert [_exit_code(child) for child in children] == [0] * 4
    assert count(open_inventory(url), ingests) == 4 * 10 + 10


def test_a_new_database_that_another_process_is_writing_is_waited_for(tmp_path: Path) -> None:
    writer = sqlite3.connect(tmp_path / "new.sqlite", isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN IMMEDIATE")
    end = threading.Timer(0.3, lambda: writer.execute("COMMIT"))
    end.start()

    inventory = open_inventory(f"sqlite:///{tmp_path / 'new.sqlite'}")
    inventory.record(of_job("first"))

    assert count(inventory, ingests) == 1
    end.join()
    writer.close()


def test_a_forked_child_uses_connections_of_its_own(inventory: SqlInventory, url: str) -> None:
    inventory.record(of_job("parent"))
    begin = FORK.Event()
    begin.set()
    child = _forked(_record_some, url, "child", begin)
    inventory.record(of_job("meanwhile"))

    assert _exit_code(child) == 0
    inventory.record(of_job("afterwards"))
    assert count(inventory, ingests) == 3 + 20


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(inventory: SqlInventory) -> None:
    silence = inventory.database._silence
    silence.begin()
    with silence._guard:  # as a thread that asks during the fork
        child = _forked(inventory.record, of_job("child"))
    silence.end()

    assert _exit_code(child) == 0
    assert count(inventory, ingests) == 1


class StalledFiles(tuple[StoredFile, ...]):
    """More files than one statement takes, of which the last never comes."""

    pipe: Pipe

    def __iter__(self) -> Iterator[StoredFile]:
        yield from super().__iter__()
        self.pipe.send("in the middle")
        time.sleep(3600)


def _record_and_stall(url: str, pipe: Pipe) -> None:
    stalled = StalledFiles(stored_file(f"producer/{n}") for n in range(5_001))
    stalled.pipe = pipe
    whole = recording(local_id=("loc-1",))
    open_inventory(url).record(replace(whole, version=replace(whole.version, files=stalled)))


def test_a_worker_killed_in_the_middle_of_recording_leaves_nothing(inventory: SqlInventory, url: str) -> None:
    assert inventory.describe_object(ARK) is None
    here, there = FORK.Pipe()
    child = _forked(_record_and_stall, url, there)
    assert here.recv() == "in the middle"
    os.kill(child, signal.SIGKILL)
    assert _exit_code(child) == -signal.SIGKILL

    assert inventory.describe_object(ARK) is None
    assert inventory.arks_of(OWNER, ("loc-1",)) == {}
    assert count(inventory, files) == 0
    inventory.record(recording(local_id=("loc-1",)))
    assert count(inventory, files) == 2


def shape(connection: Connection) -> dict[str, object]:
    """The tables: columns with type and NULL, indexes, unique constraints."""
    tables = inspect(connection)
    return {
        name: (
            sorted((c["name"], str(c["type"]), c["nullable"]) for c in tables.get_columns(name)),
            sorted((str(i["name"]), i["column_names"], bool(i["unique"])) for i in tables.get_indexes(name)),
            sorted(u["column_names"] for u in tables.get_unique_constraints(name)),
        )
        for name in tables.get_table_names()
    }


def made_by(release: str, url: str) -> None:
    """An inventory as this release made it, with one object."""
    parsed = make_url(url)
    dialect = parsed.get_backend_name()
    engine = new_engine(parsed if dialect == "sqlite" else parsed.set(drivername="postgresql+psycopg"))
    statements = (EARLIER / f"{release}.{dialect}.sql").read_text() + (EARLIER / "object.sql").read_text()
    with transaction(engine, writing=True) as connection:
        for statement in statements.split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.parametrize("release", RELEASES)
def test_the_inventory_of_an_earlier_release_is_used(url: str, release: str) -> None:
    made_by(release, url)
    inventory = open_inventory(url)

    inventory.record(recording("ark:/99999/fk4old", number=2, jid="jid0000000009", local_id=("new",)))

    entry = inventory.describe_object("ark:/99999/fk4old")
    assert entry is not None
    assert [version.jid for version in entry.versions] == ["jid0000000004", "jid0000000009"]
    assert [(file.path, file.provenance) for file in entry.versions[0].files] == [("producer/old.txt", None)]
    assert set(entry.local_id) == {"old", "new"}
    assert inventory.database.read(revision) == Revision(OLDEST, SCHEMA)


@pytest.mark.parametrize("release", RELEASES)
def test_the_tables_of_an_earlier_release_become_those_of_a_new_inventory(
    url: str, other_url: str, release: str
) -> None:
    made_by(release, url)
    earlier, new = open_inventory(url), open_inventory(other_url)

    assert earlier.database.read(shape) == new.database.read(shape)
    earlier.database.close()
    new.database.close()


def test_what_a_later_release_has_added_is_left_alone_and_used(inventory: SqlInventory, url: str) -> None:
    inventory.database.write(lambda c: c.execute(text("UPDATE inv_schema SET number = '9999'")))
    inventory.database.close()

    inventory.record(of_job("beside it"))

    assert inventory.database.read(revision) == Revision(OLDEST, "9999")
    assert count(inventory, ingests) == 1


def test_an_upgrade_that_cannot_be_undone_says_so_before_it_begins(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    made_by("0.2.1", url)
    open_inventory(url).arks_of(OWNER, ("a",))

    (said,) = caplog.messages
    assert re.search(r"refuse it from now on, and only a backup leads back to them$", said)


def test_a_schema_newer_than_this_release_is_left_alone(inventory: SqlInventory, url: str) -> None:
    inventory.database.write(lambda c: c.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    inventory.database.close()

    with pytest.raises(StepFailed, match="schema 9999, which this release does not know") as refusal:
        inventory.arks_of(OWNER, ("a",))
    assert refusal.value.kind is FailureKind.SYSTEM


def test_a_database_that_is_not_one_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "inventory.sqlite").write_text("these are not the bytes of a database " * 100)

    with pytest.raises(
        StepFailed, match=r"inventory\.sqlite refused the request: file is not a database"
    ) as refusal:
        open_inventory(f"sqlite:///{tmp_path}/inventory.sqlite").arks_of(OWNER, ("a",))
    assert refusal.value.kind is FailureKind.SYSTEM


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nonsense", "not an SQLAlchemy URL"),
        ("sqlite://", "needs a file"),
        ("mysql://user:secret@host/database", "not in mysql"),
    ],
)
def test_a_url_that_cannot_be_an_inventory_is_refused(url: str, told: str) -> None:
    with pytest.raises(UsageRefused, match=told) as refusal:
        open_inventory(url)
    assert "secret" not in str(refusal.value)


def test_an_unreachable_database_is_an_outage_when_stores_are_compared() -> None:
    with pytest.raises(ServiceDown, match="cannot be used") as down:
        open_inventory("postgresql://user:secret@127.0.0.1:1/inventory").read_deployment()

    assert down.value.service is Service.INVENTORY
    assert "secret" not in down.value.message


def test_an_unreachable_database_is_named_without_its_password() -> None:
    database = Database("postgresql://user:secret@127.0.0.1:1/inventory", tries=2)

    with pytest.raises(ServiceDown, match=r"postgresql\+psycopg://user:\*\*\*@127\.0\.0\.1:1/inv") as failure:
        SqlInventory(database).record(recording())
    assert failure.value.service is Service.INVENTORY
    assert "secret" not in str(failure.value)


def test_an_inventory_whose_connections_are_all_in_use_is_an_outage(
    inventory: SqlInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.1}
    monkeypatch.setattr("pipeline.inventory.engine._POOL", limits)
    database = inventory.database

    with pytest.raises(ServiceDown, match="all connections are in use") as down:
        database.read(lambda _: database.read(lambda connection: connection.scalar(text("SELECT 1"))))

    assert down.value.service is Service.INVENTORY


def test_an_inventory_that_has_to_exist_is_not_created(url: str) -> None:
    existing = open_inventory(url, create=False)

    with pytest.raises(ServiceDown, match="is not there") as down:
        existing.placement_of(ARK)

    assert down.value.service is Service.INVENTORY
    assert not existing.database.exists()


def test_a_further_connection_to_an_inventory_that_goes_creates_no_file_and_loses_no_entry(
    tmp_path: Path,
) -> None:
    """An empty file beside the log of the old one would make SQLite drop the log, with all that is in it."""
    file = tmp_path / "inventory.sqlite"
    inventory = open_inventory(f"sqlite:///{file}")
    inventory.record(recording(ARK))

    def further(connection: Connection) -> None:
        file.rename(file.with_suffix(".away"))
        with transaction(connection.engine, writing=True):
            pass

    with pytest.raises(ServiceDown):
        inventory.database.read(further)

    assert not file.exists()
    file.with_suffix(".away").rename(file)
    assert count(inventory, "inv_objects") == 1
