"""An inventory of deposits of one file each, in PostgreSQL, with the rows and tokens that a recording enters.

The rows of a few hundred deposits, made by the recording's own functions, become texts with gaps for what
differs between objects: a number fills the gaps, and COPY enters the text. Indexes and constraints follow the
rows. A folder is planted once; an interrupted planting begins anew.
"""

import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2s, sha512
from multiprocessing import get_context
from pathlib import Path

import psycopg
from sqlalchemy import Connection, Table, make_url, select

from benchmarks._planted_inventories import WORDS, bound, copied, rows_of
from benchmarks._questions import Known
from pipeline.fixity import StoredFile
from pipeline.inventory import recording
from pipeline.inventory.base import Recording
from pipeline.inventory.search import index
from pipeline.inventory.search.tokens import identifier
from pipeline.inventory.sql import open_inventory
from pipeline.inventory.tables import (
    collections,
    dublin_kernels,
    files,
    fixities,
    growth,
    ingests,
    local_ids,
    memberships,
    minted_arks,
    objects,
    owners,
    versions,
)
from tests.servers import postgresql
from tests.support import recordings

TEMPLATES = 400
COLLECTIONS = 20
DEPOSITORS = 100
OF_BATCH = 50
"""Objects of one batch."""

SPREAD = timedelta(days=330)
"""The time over which the deposits are spread; it ends at the planting."""

SYSTEM = (
    *("mrt-dc.xml", "mrt-erc.txt", "mrt-ingest.txt", "mrt-manifest.txt", "mrt-membership.txt", "mrt-mom.txt"),
    *("mrt-owner.txt", "mrt-premis.xml"),
)
"""What the repository adds to a file."""

NUMBER, BATCH = 987_654_321, 876_543_210
"""The number of an object and of its batch in a template."""

AT = datetime(2001, 1, 1, tzinfo=UTC)
"""The time of a deposit in a template."""

SAME_TIME = 64
"""Consecutive objects with the same time."""

PORTION = 2_000
"""Objects in one piece of COPY."""

PARTS: tuple[tuple[Table, ...], ...] = (
    (files,),
    (index._searches, memberships, local_ids),
    (objects, versions, dublin_kernels),
    (ingests, fixities, minted_arks),
)
"""The tables that one process fills."""

AT_ONCE = 4
"""Indexes that are created at the same time."""

FEW = 10_000
"""Objects up to which one process fills all tables."""

SERVER = {
    "wal_level": "minimal",  # no log of rows that COPY enters in a table which the same transaction empties
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "shared_buffers": "1GB",
    "maintenance_work_mem": "512MB",
}
READY = "planted"
"""The file in the folder with the number of objects, once they are all there."""


@contextmanager
def planted(folder: Path, count: int) -> Iterator[postgresql.Server]:
    """A server with that many objects in its database `postgres`."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / READY
    server = postgresql.Server(folder)
    server.configure(SERVER)
    try:
        server.start()
        if not ready.exists() or int(ready.read_text()) != count:
            ready.unlink(missing_ok=True)
            plant(server.dsn("postgres"), count)
            ready.write_text(str(count))
        yield server
    finally:
        server.close()


def plant(url: str, count: int) -> None:
    """Replace what the database has by an inventory of objects with the numbers 1 to `count`."""
    _execute(url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    inventory = open_inventory(url)
    inventory.database.read(lambda _: None)  # creates the tables
    inventory.database.close()
    if not count:
        return
    with psycopg.connect(url, autocommit=True) as connection:
        again = _drop_indexes(connection)
        fill = partial(_fill, url, count, datetime.now(UTC))
        if count > FEW:
            with get_context("spawn").Pool(len(PARTS)) as pool:
                pool.map(fill, range(len(PARTS)))
        else:
            list(map(fill, range(len(PARTS))))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for of_one_kind in again:  # foreign keys need the unique ones
            list(threads.map(partial(_execute, url), of_one_kind))
    inventory.database.write(_complete)
    inventory.database.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def _drop_indexes(connection: psycopg.Connection) -> tuple[list[str], list[str], list[str]]:
    """Drop the indexes and constraints of all tables to fill; returns the statements that create them.

    The index of the tokens takes longest, and comes first.
    """
    filled = [table.name for part in PARTS for table in part]
    constraints = connection.execute(
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), contype = 'f' "
        "FROM pg_constraint WHERE conrelid::regclass::text = ANY(%s) OR confrelid::regclass::text = ANY(%s) "
        "ORDER BY contype = 'f' DESC",
        (filled, filled),
    ).fetchall()
    unique, foreign_keys = list[str](), list[str]()
    for table, name, definition, foreign in constraints:
        connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}".encode())
        # the rows are known to be right; new ones are compared
        added = f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}"
        if foreign:
            foreign_keys.append(f"{added} NOT VALID")
        else:
            unique.append(added)
    indexes = connection.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = ANY(%s)", (filled,)
    ).fetchall()
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}".encode())
    own = sorted((definition for _, definition in indexes), key=lambda text: " gin " not in text)
    return own, unique, foreign_keys


def _fill(url: str, count: int, end: datetime, part: int) -> None:
    """Fill the tables of this part, each in one transaction."""
    templates = [Template.of(number, PARTS[part]) for number in range(min(count + 1, TEMPLATES))]
    with psycopg.connect(url) as connection:
        for place, table in enumerate(PARTS[part]):
            names = ", ".join(templates[0].columns[place])
            connection.execute(f"TRUNCATE {table.name}".encode())
            copying = f"COPY {table.name} ({names}) FROM STDIN WITH (FREEZE)".encode()
            with connection.cursor().copy(copying) as copy:
                for first in range(1, count + 1, PORTION):
                    numbers = range(first, min(first + PORTION, count + 1))
                    copy.write(
                        "".join(templates[n % TEMPLATES].texts[place] % _Gaps(n, count, end) for n in numbers)
                    )
            connection.commit()


class Template:
    """The rows of one deposit as texts, by table, with gaps."""

    def __init__(self, texts: list[str], columns: list[list[str]]) -> None:
        self.texts = texts
        self.columns = columns

    @classmethod
    def of(cls, number: int, tables: tuple[Table, ...]) -> "Template":
        entry = stored(number)
        rows = dict(rows_of(NUMBER, entry))
        rows[ingests][0] |= {"recorded": AT, "counted": True}
        ark, profile = entry.version.ark, entry.profile
        rows[minted_arks] = [{"ark": ark, "job_id": entry.jid, "job_key": entry.key, "created": AT}]
        rows[fixities] = [
            {"inv_object_id": NUMBER, "profile": profile, "since": AT, "checked": AT, "proved": AT}
            | {"versions": 1, "files": 1 + len(SYSTEM), "bytes": 90_000, "damaged": 0}
        ]
        dialect = make_url("postgresql+psycopg://").get_dialect()()
        texts = [_with_gaps(copied(bound(dialect, table, rows[table]))) for table in tables]
        return cls(texts, [[*rows[table][0]] for table in tables])


def stored(template: int, number: int = NUMBER) -> Recording:
    """A deposit; its words, collection and depositor are those of the template."""
    chosen = random.Random(template)
    batch = BATCH if number == NUMBER else number // OF_BATCH

    def words(length: int) -> str:
        return " ".join(WORDS[min(len(WORDS), int(chosen.paretovariate(0.7))) - 1] for _ in range(length))

    entry = recordings.recording(
        f"ark:/99999/fk4{number:09d}",
        jid=f"jid{number:010d}",
        key="0" * 32,
        files=tuple(
            StoredFile(path, 10_000, digest_of(number, place), added=True)
            for place, path in enumerate(("producer/page.txt", *(f"system/{name}" for name in SYSTEM)), 1)
        ),
        local_id=(f"mue-{number:09d}",),
        erc=(("who", words(2)), ("what", words(4)), ("when", str(1700 + template % 60))),
        bid=f"bid{batch:010d}",
        profile=collection(template),
        submitted=AT,
        downloaded=AT,
        depositor=f"token:{_letters(template % DEPOSITORS)}",
    )
    return replace(entry, version=replace(entry.version, created=AT))


def collection(number: int) -> str:
    return f"harbour-{_letters(number % COLLECTIONS)}"


def _letters(number: int) -> str:
    return chr(ord("a") + number // 10) + chr(ord("a") + number % 10)


def _beginnings(number: int) -> str:
    """A pattern of the number's first two digits or more."""
    digits = str(number)
    return digits[:2] + "".join(f"(?:{digit}" for digit in digits[2:]) + ")?" * len(digits[2:])


_IDENTIFIED = ("ark:/99999/fk4", "fk4", "mue-")
"""What stands before the number in the texts that an object is identified by."""

_IDENTIFIERS = {identifier(f"{text}{NUMBER:09d}"): f"i{place}" for place, text in enumerate(_IDENTIFIED)}

_GAP = re.compile(
    "|".join(
        (
            "(?P<identifier>=[0-9a-f]{32})",
            "(?P<other>[#@][0-9a-f]{32}|%)",
            rf"(?<![^\t\n])(?P<id>{NUMBER})(?=[\t\n])",
            rf"(?<![^\t\n])(?P<key>{NUMBER - 1})(?=[1-9]\t)",
            r"(?P<time>2001-01-01 00:00:00\+00:00)",
            r"(?P<digest>([1-9])\7{127})",
            r"(?P<compared>([1-9])\9{31})",
            rf"(?P<number>{_beginnings(NUMBER)}|(?:(?<=jid0)|(?<=fk4)|(?<=mue-))9)",
            rf"(?P<batch>{_beginnings(BATCH)}|(?<=bid0)8)",
        )
    )
)


def _with_gaps(text: str) -> str:
    def gap(match: re.Match[str]) -> str:
        text = match[0]
        match match.lastgroup:
            case "identifier":
                return f"=%({_IDENTIFIERS[text]})s"
            case "other":
                return text.replace("%", "%%")
            case "id" | "key" as name:
                return f"%({name})d"
            case "time":
                return "%(time)s"
            case "digest" | "compared" as name:
                return f"%({name}{text[0]})s"
            case name:
                return f"%({name}{len(text)})s"

    return _GAP.sub(gap, text)


class _Gaps(dict[str, object]):
    """What differs between objects, by the name of the gap; made when a template asks for it."""

    def __init__(self, number: int, count: int, end: datetime) -> None:
        super().__init__(id=number, key=number - 1)
        self._number = number
        self._ago = (count - number) // SAME_TIME * SAME_TIME / count
        self._end = end

    def __missing__(self, name: str) -> object:
        place = int(name[-1]) if name != "time" else 0
        match name.rstrip("0123456789"):
            case "time":
                return self._end - SPREAD * self._ago
            case "number":
                return f"{self._number:09d}"[:place]
            case "batch":
                return f"{self._number // OF_BATCH:09d}"[:place]
            case "digest":
                return digest_of(self._number, place)
            case "compared":
                return digest_of(self._number, place)[:32]
            case _:
                text = f"{_IDENTIFIED[place]}{self._number:09d}"
                return blake2s(text.encode(), digest_size=16).hexdigest()


def digest_of(number: int, place: int) -> str:
    """The sha512 of the object's file in this place, from 1 to 9; of a template, that digit only."""
    if number == NUMBER:
        return f"{place}" * 128
    return sha512(b"%d %d" % (number, place)).hexdigest()


def _complete(connection: Connection) -> None:
    """Enter what the objects have in common, and the sums of their collections."""
    first = stored(1)
    recording._id_of(connection, owners, first.owner)
    for ark in first.collections:
        recording._id_of(connection, collections, ark)
    for table in (objects, versions, files, dublin_kernels, ingests, local_ids):
        name = table.name
        connection.exec_driver_sql(
            f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), (SELECT max(id) FROM {name}))"
        )
    connection.exec_driver_sql(
        f"INSERT INTO {growth.name} SELECT profile, to_char(submitted AT TIME ZONE 'UTC', 'YYYY-MM-DD'), "
        f"count(*), count(*), count(*), 90000 * count(*) FROM {ingests.name} GROUP BY 1, 2"
    )
    connection.exec_driver_sql(
        f"INSERT INTO inv_formats SELECT profile, '', 'text/plain', count(*) FROM {ingests.name} GROUP BY 1"
    )
    assert connection.scalar(select(objects.c.id).limit(1))


def ark_of(number: int) -> str:
    return f"{_IDENTIFIED[0]}{number:09d}"


def known(number: int) -> Known:
    """The planted object with this number."""
    of_template = stored(number % TEMPLATES)
    return Known(
        ark=ark_of(number),
        local_id=f"mue-{number:09d}",
        jid=f"jid{number:010d}",
        profile=of_template.profile,
        depositor=of_template.depositor,
    )
