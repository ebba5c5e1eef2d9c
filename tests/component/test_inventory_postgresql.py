import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from sqlalchemy import Connection, text

from pipeline.inventory.database import Database
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.outcome import Service, ServiceDown, StepFailed
from tests.servers import postgresql
from tests.support.recordings import ARK, recording

# The whole specification, met once more by PostgreSQL: the fixtures below replace those imported here.
from tests.unit.test_archive import *  # noqa: F403
from tests.unit.test_finding_search import *  # noqa: F403
from tests.unit.test_growth import *  # noqa: F403
from tests.unit.test_inventory import *  # noqa: F403
from tests.unit.test_object_search import *  # noqa: F403
from tests.unit.test_recorded_checks import *  # noqa: F403


@pytest.fixture  # type: ignore[no-redef]
def url(postgresql_server: postgresql.Server) -> str:
    return postgresql_server.new_schema()


@pytest.fixture  # type: ignore[no-redef]
def other_url(postgresql_server: postgresql.Server) -> str:
    return postgresql_server.new_schema()


@pytest.fixture  # type: ignore[no-redef]
def inventory(url: str) -> Iterator[SqlInventory]:
    opened = open_inventory(url)
    yield opened
    opened.database.close()


def test_of_two_that_wait_for_each_other_both_end(inventory: SqlInventory) -> None:
    inventory.record(recording("ark:/1", jid="jid1"))
    inventory.record(recording("ark:/2", jid="jid2"))
    both_hold_one = threading.Barrier(2)
    tries: list[str] = []

    def lock(connection: Connection, first: str, second: str) -> None:
        tries.append(first)
        statement = text("SELECT id FROM inv_objects WHERE ark = :ark FOR UPDATE")
        connection.execute(statement, {"ark": first})
        if len(tries) <= 2:
            both_hold_one.wait(30)
        connection.execute(statement, {"ark": second})

    with ThreadPoolExecutor(2) as pool:
        ends = [
            pool.submit(inventory.database.write, partial(lock, first=first, second=second))
            for first, second in (("ark:/1", "ark:/2"), ("ark:/2", "ark:/1"))
        ]
    for end in ends:
        end.result()

    assert len(tries) == 3


def test_a_restarted_server_is_found_again(
    inventory: SqlInventory, postgresql_server: postgresql.Server
) -> None:
    inventory.record(recording())
    postgresql_server.stop()
    postgresql_server.start()
    inventory.record(recording(number=2, jid="jid0000000002"))

    found = inventory.describe_object(ARK)
    assert found is not None
    assert len(found.versions) == 2


def test_a_connection_lost_in_the_middle_is_made_again(inventory: SqlInventory) -> None:
    inventory.record(recording())
    tries: list[int] = []

    def work(connection: Connection) -> int:
        tries.append(1)
        if len(tries) == 1:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        return int(connection.scalar(text("SELECT count(*) FROM inv_objects")) or 0)

    assert inventory.database.write(work) == 1
    assert len(tries) == 2


def test_a_server_that_is_down_is_a_passing_fault(
    inventory: SqlInventory, postgresql_server: postgresql.Server
) -> None:
    inventory.record(recording())
    postgresql_server.stop()
    try:
        with pytest.raises(ServiceDown, match="cannot be used") as failure:
            SqlInventory(Database(postgresql_server.dsn("nowhere"), tries=2)).record(recording())
    finally:
        postgresql_server.start()

    assert failure.value.service is Service.INVENTORY


def test_a_driver_less_scheme_means_the_driver_that_is_installed(url: str) -> None:
    assert Database(url).name.startswith("postgresql+psycopg://")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_lacks_characters_is_refused_before_anything_is_entered(
    postgresql_server: postgresql.Server, encoding: str
) -> None:
    opened = open_inventory(postgresql_server.new_database(encoding))

    with pytest.raises(StepFailed, match=f"has the encoding {encoding}: create its database with CREATE"):
        opened.known_arks([ARK])
    opened.database.close()
