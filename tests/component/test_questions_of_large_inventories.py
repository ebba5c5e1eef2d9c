"""What is asked every minute, and what a page shows, reads as much of ten million objects as of a few."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, text

from benchmarks import _planted_deposits as deposits
from benchmarks._questions import answers, questions
from pipeline.inventory.base import InventoryObject
from pipeline.inventory.search import index
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.inventory.tables import objects
from tests.servers.postgresql import Server

OBJECTS = 4_000
MOST = 1_300
"""Rows: the search compares the newest 500 objects twice, and the sums read the days of each collection."""

NEWEST = 100


@pytest.fixture(scope="module")
def planted(postgresql_server: Server) -> Iterator[SqlInventory]:
    url = postgresql_server.new_database()
    deposits.plant(url, OBJECTS)
    inventory = open_inventory(url)
    yield inventory
    inventory.database.close()


def test_no_question_of_scheduled_work_or_a_page_reads_a_table_from_end_to_end(planted: SqlInventory) -> None:
    # tables of this size are read and joined faster from end to end, and those of ten million objects are not
    engine = planted.database.read(lambda connection: connection.engine)
    name = engine.url.database
    for way in ("seqscan", "hashjoin", "mergejoin"):
        planted.database.run(text(f"ALTER DATABASE {name} SET enable_{way} = off"))
    planted.database.close()

    asked = questions(deposits.known(OBJECTS // 2), NEWEST)
    read = {name: answer.rows for name, answer in answers(planted, asked)}

    assert {name: rows for name, rows in read.items() if rows > MOST} == {}


def described(inventory: SqlInventory, number: int) -> tuple[InventoryObject, frozenset[str]]:
    """The object without its times, and its tokens."""
    known = inventory.describe_object(deposits.known(number).ark)
    assert known is not None
    assert known.fixity is not None
    (version,) = known.versions
    timeless = replace(version, submitted=deposits.AT, created=deposits.AT, downloaded=None, recorded=None)
    tokens = inventory.database.read(
        lambda connection: connection.scalar(
            select(index._searches.c.tokens)
            .join(objects, objects.c.id == index._searches.c.rowid)
            .where(objects.c.ark == known.ark)
        )
    )
    assert tokens is not None
    return replace(
        known, versions=(timeless,), created=deposits.AT, modified=deposits.AT, fixity=None
    ), tokens


def test_a_planted_object_has_what_its_recording_would_have_entered(
    planted: SqlInventory, tmp_path: Path
) -> None:
    recorded = open_inventory(f"sqlite:///{tmp_path}/inventory.sqlite")
    for number in (98, 3_210):
        recorded.record(deposits.stored(number % deposits.TEMPLATES, number))

        assert described(planted, number) == described(recorded, number)
