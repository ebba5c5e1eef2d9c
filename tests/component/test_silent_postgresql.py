"""A PostgreSQL that hangs: it keeps its connections, and answers nothing."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from sqlalchemy import Connection

from pipeline.inventory import answering, database, silence
from pipeline.inventory.sql import open_inventory
from pipeline.inventory.tables import metadata
from pipeline.outcome import Service, ServiceDown
from tests.servers import postgresql
from tests.support.polling import eventually
from tests.support.recordings import of_job

SILENCE = 1.0
SOON = 30.0
"""Seconds; a new connection is tried, too, for 10 seconds."""


@pytest.fixture
def server(postgresql_server: postgresql.Server) -> Iterator[postgresql.Server]:
    """One of its own, to be suspended; where none can run, `postgresql_server` has said so."""
    with postgresql.running() as own:
        yield own


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answering.ANSWER_TIMEOUT > database.RETRY_SECONDS, "a second try would be silent as long"
    monkeypatch.setattr(answering.Connection, "answer_timeout", 2 * SILENCE)
    monkeypatch.setattr(answering, "PING_TIMEOUT", SILENCE)
    monkeypatch.setattr(database, "RETRY_SECONDS", SILENCE / 2)


def test_an_inventory_that_hangs_is_away_and_is_used_again_afterwards(server: postgresql.Server) -> None:
    inventory = open_inventory(server.new_schema())
    inventory.record(of_job("first"))
    began = time.monotonic()

    with server.hanging(), pytest.raises(ServiceDown, match="cannot be used") as down:
        inventory.record(of_job("second"))

    assert down.value.service is Service.INVENTORY
    assert time.monotonic() - began < SOON

    def recorded() -> bool:
        with suppress(ServiceDown):
            inventory.record(of_job("second"))
            return True
        return False

    eventually(recorded)
    arks = {"ark:/99999/fk4first", "ark:/99999/fk4second"}
    assert inventory.known_arks([*arks]) == arks
    inventory.database.close()


def test_one_thread_waits_for_an_inventory_that_hangs_and_the_others_do_not(
    server: postgresql.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "AWAY_FOR", 2 * SILENCE)
    inventory = open_inventory(server.new_schema())
    inventory.record(of_job("first"))

    def seconds_of(_: int) -> float:
        began = time.monotonic()
        with pytest.raises(ServiceDown):
            inventory.known_arks(["ark:/99999/fk4first"])
        return time.monotonic() - began

    with server.hanging(), ThreadPoolExecutor(20) as pool:
        waited = [seconds_of(0)]
        while len(waited) < 200:
            waited += pool.map(seconds_of, range(20))
            time.sleep(SILENCE / 4)

    slow = [seconds for seconds in waited if seconds > 0.9 * SILENCE]
    assert 2 <= len(slow) <= 5  # the first, and one after each time without a try
    eventually(lambda: inventory.database._silence.holds() is False)
    assert inventory.known_arks(["ark:/99999/fk4first"])
    inventory.database.close()


def test_a_server_that_was_restarted_is_no_outage(server: postgresql.Server) -> None:
    inventory = open_inventory(server.new_schema())
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(inventory.record, map(of_job, ("first", "second", "third"))))

    server.stop()
    server.start()

    assert inventory.known_arks(["ark:/99999/fk4first"])
    inventory.database.close()


def test_only_a_change_of_the_schema_takes_as_long_as_it_needs(
    server: postgresql.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = metadata.create_all

    def slowly(connection: Connection) -> None:
        connection.exec_driver_sql(f"SELECT pg_sleep({3 * SILENCE})")
        create(connection)

    monkeypatch.setattr(metadata, "create_all", slowly)

    inventory = open_inventory(server.new_schema())

    assert inventory.known_arks(["ark:/99999/fk4"]) == set()
    with pytest.raises(ServiceDown, match="has not answered for 2 s"):
        inventory.database.read(lambda connection: connection.exec_driver_sql("SELECT pg_sleep(20)"))
    inventory.database.close()
