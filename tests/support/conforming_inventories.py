"""Inventories as the suite gets them: SQLite, PostgreSQL, and a site's service, right and wrong."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from pipeline.inventory.base import Recording
from pipeline.outcome import Service, ServiceDown, content, system
from plugins.conformance.subjects import InventoryPlace, OwnInventory, Registry
from tests.servers import postgresql

SCHEMA = """
CREATE TABLE ids (owner, id, ark, PRIMARY KEY (owner, id));
CREATE TABLE versions (ark, number, PRIMARY KEY (ark, number));
CREATE TABLE readers (allowed);
"""


POSTGRESQL = "TEST_POSTGRESQL"
"""The variable with the database of a running server."""


@contextmanager
def of_sqlite(folder: Path) -> Iterator[InventoryPlace]:
    yield InventoryPlace(f"sqlite:///{folder}/inventory.sqlite")


@contextmanager
def of_postgresql(_folder: Path) -> Iterator[InventoryPlace]:
    yield InventoryPlace(postgresql.new_schema(os.environ[POSTGRESQL]))


class Catalogue:
    """A site's catalogue in a file, which may be away or locked."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def arks_of(self, owner: str, local_id: Sequence[str]) -> dict[str, str]:
        return {
            name: ark
            for name in local_id
            for (ark,) in self.ask("SELECT ark FROM ids WHERE owner = ? AND id = ?", (owner, name))
        }

    def local_ids_of(self, ark: str) -> tuple[str, ...]:
        return tuple(name for (name,) in self.ask("SELECT id FROM ids WHERE ark = ?", (ark,)))

    def reserve_local_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> None:
        self.change("INSERT INTO ids VALUES (?, ?, ?)", [(owner, name, ark) for name in local_id])

    def add_version(self, recording: Recording) -> None:
        version = recording.version
        self.change("INSERT OR IGNORE INTO versions VALUES (?, ?)", [(version.ark, version.number)])

    def versions(self, ark: str) -> list[int] | None:
        rows = self.ask("SELECT number FROM versions WHERE ark = ? ORDER BY number", (ark,))
        return [number for (number,) in rows] or None

    def ask(self, statement: str, values: Sequence[str]) -> list[tuple[Any]]:
        with closing(self.opened()) as connection:
            return connection.execute(statement, values).fetchall()

    def change(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        with closing(self.opened()) as connection, connection:
            if connection.execute("SELECT 1 FROM readers").fetchone():
                raise system("the catalogue cannot be changed: ask its curator")
            try:
                connection.executemany(statement, rows)
            except sqlite3.IntegrityError as error:
                raise content("an id belongs to another object in the catalogue") from error

    def opened(self) -> sqlite3.Connection:
        if not self.file.exists():
            raise ServiceDown(Service.INVENTORY, "the catalogue is away")
        return sqlite3.connect(self.file, timeout=30)


class _Forgetful(Catalogue):
    """Says that it added a version, and did not."""

    def add_version(self, recording: Recording) -> None:
        del recording


class _Overwriting(Catalogue):
    """Gives ids of other objects away."""

    def reserve_local_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> None:
        self.change("REPLACE INTO ids VALUES (?, ?, ?)", [(owner, name, ark) for name in local_id])


class _Halting(Catalogue):
    """Reserves one id after the other."""

    def reserve_local_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> None:
        for name in local_id:
            super().reserve_local_ids(owner, ark, (name,))


class _Folding(Catalogue):
    """Takes `Case` and `case` for one id."""

    def arks_of(self, owner: str, local_id: Sequence[str]) -> dict[str, str]:
        arks = super().arks_of(owner, [name.lower() for name in local_id])
        return {name: arks[name.lower()] for name in local_id if name.lower() in arks}

    def reserve_local_ids(self, owner: str, ark: str, local_id: Sequence[str]) -> None:
        super().reserve_local_ids(owner, ark, [name.lower() for name in local_id])


class _Hasty(Catalogue):
    """Fails jobs while it is away."""

    def opened(self) -> sqlite3.Connection:
        try:
            return super().opened()
        except ServiceDown as down:
            raise system(down.message) from down


class _Counting(Catalogue):
    """Adds a version as often as it is told of it."""

    def add_version(self, recording: Recording) -> None:
        ark = recording.version.ark
        self.change("INSERT INTO versions VALUES (?, ?)", [(ark, len(self.versions(ark) or ()) + 1)])


Subject = Callable[[Path], AbstractContextManager[InventoryPlace]]


def _subject(kind: type[Catalogue]) -> Subject:
    @contextmanager
    def place(folder: Path) -> Iterator[InventoryPlace]:
        file, elsewhere = folder / "catalogue.sqlite", folder / "elsewhere"
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript(SCHEMA)

        @contextmanager
        def away() -> Iterator[None]:
            file.rename(elsewhere)
            yield
            elsewhere.rename(file)

        @contextmanager
        def refuses() -> Iterator[None]:
            kind(file).change("INSERT INTO readers VALUES (?)", [(1,)])
            yield
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute("DELETE FROM readers")

        service = OwnInventory(lambda: kind(file), Registry(kind(file).versions, away, refuses))
        with of_sqlite(folder) as database:
            yield InventoryPlace(database.database, service)

    return place


catalogue = _subject(Catalogue)
forgetful = _subject(_Forgetful)
overwriting = _subject(_Overwriting)
halting = _subject(_Halting)
folding = _subject(_Folding)
hasty = _subject(_Hasty)
counting = _subject(_Counting)
