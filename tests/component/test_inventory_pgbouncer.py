"""The inventory behind a pool of connections, which gives each transaction another one of the server."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy import make_url

from pipeline.inventory.engine import new_engine
from pipeline.inventory.sql import open_inventory
from tests.servers import pgbouncer, postgresql
from tests.support.recordings import of_job

AT_ONCE = 6
EACH = 12
"""The driver prepares a statement when a connection executes it for the sixth time."""


@pytest.fixture
def pool(postgresql_server: postgresql.Server) -> Iterator[str]:
    with pgbouncer.before(postgresql_server) as url:
        yield url
        open_inventory(url).database.close()


def test_several_connections_record_and_read_through_a_pool(pool: str) -> None:
    inventory = open_inventory(pool)

    def record(one: int) -> list[str]:
        names = [f"{one}x{number}" for number in range(EACH)]
        for name in names:
            inventory.record(of_job(name))
        return names

    with ThreadPoolExecutor(AT_ONCE) as threads:
        recorded = [name for names in threads.map(record, range(AT_ONCE)) for name in names]
    arks = {f"ark:/99999/fk4{name}" for name in recorded}
    assert inventory.known_arks([*arks]) == arks


def prepares(url: str) -> bool:
    engine = new_engine(make_url(url).set(drivername="postgresql+psycopg"))
    try:
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            return driver.prepare_threshold is not None
    finally:
        engine.dispose()


def test_statements_are_prepared_at_the_server_alone(pool: str, postgresql_server: postgresql.Server) -> None:
    assert not prepares(pool)
    assert prepares(postgresql_server.dsn("postgres"))
