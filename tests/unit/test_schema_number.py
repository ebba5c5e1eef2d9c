"""A change of the tables has a number, and a number one change.

Two changes that both take the next number would merge without a word, and an inventory with one of them would
never get the other: here they change the same line.
"""

import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from pipeline.inventory.schema import SCHEMA
from pipeline.inventory.sql import open_inventory

KNOWN = ("0019", "9eb879a63bdc11cc")


def digest_of_schema(file: Path) -> str:
    open_inventory(f"sqlite:///{file}").all_counted()
    with closing(sqlite3.connect(file)) as database:
        made = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        ).fetchall()
    index = [name for name, sql in made if sql.startswith("CREATE VIRTUAL TABLE")]
    own = [sql for name, sql in made if not name.startswith(tuple(f"{one}_" for one in index))]
    return sha256("\n".join(" ".join(sql.split()) for sql in own).encode()).hexdigest()[:16]


def test_the_tables_are_those_of_the_number_of_the_schema(tmp_path: Path) -> None:
    """Of a change, raise SCHEMA, and write the number and the digest here, even if SCHEMA is new already."""
    assert (SCHEMA, digest_of_schema(tmp_path / "inventory.sqlite")) == KNOWN
