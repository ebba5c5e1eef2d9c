"""The same objects of nine files in an inventory of each kind, planted by many rows in one statement.

The rows and tokens are those of the recording's own functions. They depend on an object's number alone, so a
folder that is kept has the same objects for later runs: planting continues where it ended.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import lru_cache, partial
from hashlib import sha512
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Dialect, Table, func, select, text

from benchmarks._output import tell
from pipeline.fixity import StoredFile
from pipeline.inventory import recording
from pipeline.inventory.base import Recording
from pipeline.inventory.search import index
from pipeline.inventory.search.tokens import tokens_of
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.inventory.tables import (
    collections,
    dublin_kernels,
    files,
    ingests,
    local_ids,
    memberships,
    objects,
    owners,
    versions,
)
from tests.servers import postgresql
from tests.support import recordings

FILES = 9
DEPOSITORS = 100
COLLECTIONS = 100
YEARS = 300

PORTION = 1_000
"""Objects in one transaction."""

_WORDS = random.Random(7)
WORDS = ["".join(_WORDS.choices("abcdefghijklmnoprstuvwz", k=_WORDS.randint(3, 10))) for _ in range(20_000)]


def year_of(number: int) -> int:
    return 1700 + number // DEPOSITORS % YEARS


def digest_of(number: int, page: int) -> str:
    return sha512(f"{number} {page}".encode()).hexdigest()


def stored(number: int) -> Recording:
    """An object whose words are as unevenly frequent as those of a language."""
    chosen = random.Random(number)

    def word() -> str:
        return WORDS[min(len(WORDS), int(chosen.paretovariate(0.7))) - 1]

    pages = tuple(
        StoredFile(f"producer/scan_{number:07d}_{page:03d}.jpg", 10, digest_of(number, page), added=True)
        for page in range(1, FILES + 1)
    )
    return recordings.recording(
        f"ark:/99999/fk4{number:09d}",
        jid=f"jid{number:010d}",
        files=pages,
        local_id=(f"MUE-{number:07d}",),
        erc=(
            ("who", f"{word()}, {word()}"),
            ("what", " ".join(word() for _ in range(6))),
            ("when", str(year_of(number))),
        ),
        bid=f"bid{number // 100:010d}",
        profile=f"demo-{number // DEPOSITORS % COLLECTIONS:02d}",
        submitted=recordings.FIRST_DAY + timedelta(seconds=number),
        depositor=f"token:depositor-{number % DEPOSITORS}",
    )


@contextmanager
def inventories(folder: Path, *, with_postgresql: bool) -> Iterator[dict[str, str]]:
    """Kind of database -> URL; without PostgreSQL where it is not installed."""
    folder.mkdir(parents=True, exist_ok=True)
    urls = {"sqlite": f"sqlite:///{folder}/inventory.sqlite"}
    with ExitStack() as open_servers:
        if with_postgresql:
            place = folder / "postgresql"
            place.mkdir(exist_ok=True)
            try:
                server = open_servers.enter_context(postgresql.serving(place))
                urls["postgresql"] = server.dsn("postgres")
            except postgresql.PostgresqlMissing as missing:
                tell({"left_out": str(missing)})
        yield urls


def plant(urls: Mapping[str, str], count: int) -> None:
    """Enter the objects 1 to `count` that are missing, in all databases."""
    missing = {url: [*_missing(url, count)] for url in urls.values()}
    for url in (url for url, absent in missing.items() if absent):
        open_inventory(url).database.write(_prepare)
        open_inventory(url).database.close()
    with ProcessPoolExecutor() as pool:
        last = sorted({last for of in missing.values() for last in of})
        for _ in pool.map(partial(_plant_portion, {url: {*of} for url, of in missing.items()}), last):
            pass
    for url in urls.values():
        open_inventory(url).database.write(_complete)


def level(opened: Iterable[SqlInventory]) -> int:
    """Record what only another database has of earlier deposits; returns the highest number."""
    highest = {inventory: _highest(inventory) for inventory in opened}
    for inventory, own in highest.items():
        for number in range(own + 1, max(highest.values()) + 1):
            inventory.record(stored(number))
    return max(highest.values())


def _highest(inventory: SqlInventory) -> int:
    ark = inventory.database.read(lambda connection: connection.scalar(select(func.max(objects.c.ark))))
    return int(str(ark).rpartition("fk4")[2]) if ark else 0


def _missing(url: str, count: int) -> Iterator[int]:
    """The last number of each portion that is not there."""
    inventory = open_inventory(url)
    numbers = [*range(PORTION, count + 1, PORTION), *([count] if count % PORTION else [])]
    query = select(objects.c.id).where(objects.c.id.in_(numbers))
    present = set(inventory.database.read(lambda connection: connection.scalars(query).all()))
    inventory.database.close()
    yield from (number for number in numbers if number not in present)


def _prepare(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("DROP INDEX IF EXISTS ix_inv_search_tokens"))
    first = stored(1)
    recording._id_of(connection, owners, first.owner)
    for ark in first.collections:
        recording._id_of(connection, collections, ark)


def _complete(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL maintenance_work_mem = '2GB'"))
        for table in (objects, versions, files, dublin_kernels, ingests, local_ids):
            name = table.name
            connection.execute(
                text(f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), (SELECT max(id) FROM {name}))")
            )
        index.create(connection)
        connection.execute(text("ANALYZE"))


def _plant_portion(missing: Mapping[str, set[int]], last: int) -> None:
    numbers = range((last - 1) // PORTION * PORTION + 1, last + 1)
    for url, absent in missing.items():
        if last in absent:
            open_inventory(url).database.write(partial(_enter, numbers=numbers))


def _enter(connection: Connection, numbers: range) -> None:
    """Enter the objects of these numbers but those that an earlier run deposited."""
    query = select(objects.c.id).where(objects.c.id.between(numbers[0], numbers[-1]))
    present = set(connection.scalars(query))
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL session_replication_role = replica"))  # no look-up of foreign keys
    for table, of_table in _rows(tuple(number for number in numbers if number not in present)):
        _bulk(connection, table, of_table)


@lru_cache(maxsize=1)
def _rows(numbers: tuple[int, ...]) -> tuple[tuple[Table, list[dict[str, Any]]], ...]:
    of: dict[Table, list[dict[str, Any]]] = {}
    for number in numbers:
        for table, rows in rows_of(number, stored(number)):
            of.setdefault(table, []).extend(rows)
    return tuple(of.items())


def rows_of(number: int, entry: Recording) -> Iterator[tuple[Table, list[dict[str, Any]]]]:
    """The rows that the recording of a first version enters, with keys made of the object's number."""
    ingest = recording._ingest(entry)
    own = {"inv_object_id": number, "inv_version_id": number}
    version = entry.version
    described = {
        "ark": version.ark,
        "object_type": entry.object_type,
        "role": entry.object_role,
        "aggregate_role": entry.aggregate_role,
        "version_number": version.number,
        "created": version.created,
        "modified": version.created,
        **recording._erc_columns(entry),
    }
    named = {
        "inv_object_ark": version.ark,
        "inv_owner_ark": entry.owner,
        "local_id": entry.local_id[0],
        "created": version.created,
    }
    numbered = {"number": version.number, "note": entry.note, "created": version.created}
    yield objects, [{"id": number, "inv_owner_id": 1, **described}]
    yield versions, [{"id": number, "inv_object_id": number, "ark": version.ark, **numbered}]
    yield memberships, [{"inv_collection_id": 1, "inv_object_id": number}]
    yield local_ids, [{"id": number, **named}]
    yield ingests, [{"id": number, **own, **ingest, "index_number": 1}]
    for table, rows in (
        (files, recording._files(entry, own)),
        (dublin_kernels, recording._kernel(entry, own)),
    ):
        yield table, [{"id": (number - 1) * 10 + nth, **row} for nth, row in enumerate(rows, 1)]
    tokens = frozenset(tokens_of(recording._findable(entry, ingest)))
    yield index._searches, [{"rowid": number, "tokens": tokens}]


def _bulk(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows as SQLAlchemy would write them, by COPY or by one prepared statement."""
    names = [*rows[0]]
    values = bound(connection.dialect, table, rows)
    driver: Any = connection.connection.driver_connection
    listed = ", ".join(names)
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(names))
        driver.executemany(f"INSERT INTO {table.name} ({listed}) VALUES ({marks})", values)
        return
    with driver.cursor().copy(f"COPY {table.name} ({listed}) FROM STDIN") as copy:
        copy.write(copied(values))


def bound(dialect: Dialect, table: Table, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """The values as the driver gets them from SQLAlchemy."""
    names = [*rows[0]]
    types = [table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in names]
    columns = [[row[name] for row in rows] for name in names]
    converted = [
        map(convert, column) if convert else column for convert, column in zip(types, columns, strict=True)
    ]
    return zip(*converted, strict=True)


def copied(values: Iterable[Iterable[object]]) -> str:
    """The rows as COPY reads them."""
    return "".join("\t".join(map(_written, row)) + "\n" for row in values)


def _written(value: object) -> str:
    """As COPY reads it; no text of these objects has a character that means something to it."""
    if value is None:
        return "\\N"
    return '{"' + '","'.join(value) + '"}' if isinstance(value, list) else str(value)
