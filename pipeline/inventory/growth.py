"""What is stored by collection and day, and by format; and what working storage held, day by day.

Rule: a version, or a run of a check that identifies formats, is counted in the transaction that marks it as
counted, so that it counts once. A version is counted with its recording; scheduled work, `count_portion`,
counts those that a release without counters entered.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    Executable,
    Table,
    case,
    delete,
    func,
    literal_column,
    not_,
    or_,
    select,
    update,
)

from pipeline.checks import FORMAT_IDENTIFICATION, CheckVerdict
from pipeline.inventory.base import Recording
from pipeline.inventory.tables import (
    FORMAT_LENGTH,
    checks,
    files,
    findings,
    formats,
    growth,
    ingests,
    insert_for,
    insert_new,
    space_days,
    versions,
)
from pipeline.names import PRODUCER

PORTION = 100
"""Versions, and runs of checks, that scheduled work counts in one transaction, at most."""

FILES_OF_PORTION = 100_000
"""Files after which no further version is counted in the transaction."""

FORMATS = 50
"""Formats of a collection in a report, the most frequent ones."""

KEPT_DAYS = 3_660
"""Days of which the figures of working storage are kept."""


@dataclass(frozen=True)
class Stored:
    """What versions added."""

    objects: int = 0
    versions: int = 0
    files: int = 0
    """Files of depositors whose bytes were added."""
    bytes: int = 0

    def __add__(self, other: "Stored") -> "Stored":
        return Stored(
            self.objects + other.objects,
            self.versions + other.versions,
            self.files + other.files,
            self.bytes + other.bytes,
        )


@dataclass(frozen=True)
class Format:
    name: str
    files: int


@dataclass(frozen=True)
class Formats:
    """The formats of a collection's files."""

    check: str
    """The check that identified them; empty if these are the media types of the files' names."""
    formats: tuple[Format, ...]
    """The most frequent ones."""
    others: int
    """How many further formats there are."""


DEPOSITED = files.c.source == PRODUCER.rstrip("/")
"""A file of the depositor, and not one that the repository added."""


def enter_recorded(
    connection: Connection, recording: Recording, identified: Mapping[str, Mapping[str, int]]
) -> None:
    """Count the version, which is entered as counted in this transaction.

    `identified`: check -> format -> files, of runs that are entered as counted, too.
    """
    version, types = recording.version, Counter[str]()
    added = [file for file in version.files if file.added and file.size]
    for file in added:
        types[recording.type_of(file)[:FORMAT_LENGTH]] += file.path.startswith(PRODUCER)
    size = sum(file.size for file in added)
    _add_day(connection, recording.profile, version.number, version.created, types.total(), size)
    _add_formats(connection, recording.profile, {"": types, **identified})


def count_version(connection: Connection, version_id: int) -> int:
    """Count the version unless it is counted; returns the number of its files."""
    mark = update(ingests).where(ingests.c.inv_version_id == version_id, ingests.c.counted.is_(None))
    profile = connection.scalar(mark.values(counted=True).returning(ingests.c.profile))
    if profile is None:
        return 0
    version = connection.execute(
        select(versions.c.number, versions.c.created).where(versions.c.id == version_id)
    ).one()
    deposited = DEPOSITED & (files.c.billable_size > 0)
    rows = connection.execute(
        select(
            files.c.mime_type,
            func.count().label("all"),
            func.count(case((deposited, 1))).label("deposited"),
            func.sum(files.c.billable_size).label("bytes"),
        )
        .where(files.c.inv_version_id == version_id)
        .group_by(files.c.mime_type)
    ).all()
    types = Counter[str]()
    for row in rows:
        types[row.mime_type[:FORMAT_LENGTH]] += row.deposited
    size = sum(int(row.bytes) for row in rows)
    _add_day(connection, profile, version.number, version.created, types.total(), size)
    _add_formats(connection, profile, {"": types})
    return sum(row.all for row in rows)


def _add_day(
    connection: Connection, profile: str, number: int, created: datetime, deposited: int, size: int
) -> None:
    """Add a version to its day: with `deposited` new files of the depositor, and `size` new bytes."""
    day = {
        "profile": profile,
        "day": _day(created),
        "objects": int(number == 1),
        "versions": 1,
        "files": deposited,
        "bytes": size,
    }
    _add(connection, growth, [day])


_UNCOUNTED = checks.c.counted.is_(None) & literal_column(f"inv_checks.event = '{FORMAT_IDENTIFICATION}'")
"""With a literal, so that the index of these runs is used."""


def count_runs(connection: Connection, version_id: int) -> None:
    """Count the formats that the last runs of checks identified, and subtract those of earlier runs."""
    replaced = checks.c.counted & not_(checks.c.last)
    runs = connection.execute(
        select(checks.c.id, checks.c.check_name, checks.c.last, checks.c.counted, ingests.c.profile)
        .join(ingests, ingests.c.inv_version_id == checks.c.inv_version_id)
        .where(checks.c.inv_version_id == version_id, or_(_UNCOUNTED, replaced))
        .with_for_update(of=checks)
    )
    for run in runs.all():
        if run.last or run.counted:
            rows = connection.execute(
                select(findings.c.code, func.count())
                .where(findings.c.inv_check_id == run.id, findings.c.code.is_not(None))
                .where(findings.c.verdict == CheckVerdict.FINE.value)
                .group_by(findings.c.code)
            )
            codes = {code: number if run.last else -number for code, number in rows}
            _add_formats(connection, run.profile, {run.check_name: codes})
        connection.execute(update(checks).where(checks.c.id == run.id).values(counted=run.last))


def _add_formats(connection: Connection, profile: str, identified: Mapping[str, Mapping[str, int]]) -> None:
    """`identified`: check -> format -> files."""
    rows = [
        {"profile": profile, "check_name": check, "format": name, "files": number}
        for check, numbers in sorted(identified.items())  # so that two transactions cannot deadlock
        for name, number in sorted(numbers.items())
        if number
    ]
    if rows:
        _add(connection, formats, rows)


def _add(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows; where the table has one with the same key, add the numbers to it."""
    connection.execute(_adding(connection.dialect.name, table), rows)


@cache
def _adding(dialect: str, table: Table) -> Executable:
    statement, keys = insert_for(dialect, table), list(table.primary_key.columns)
    sums = {one.name: one + statement.excluded[one.name] for one in table.c if not one.primary_key}
    return statement.on_conflict_do_update(index_elements=keys, set_=sums)


def count_portion(connection: Connection) -> int:
    """Count the first versions and runs that are not counted; returns how many."""
    waiting = select(ingests.c.inv_version_id).where(ingests.c.counted.is_(None))
    counted, read = 0, 0
    for version_id in connection.scalars(waiting.order_by(ingests.c.id).limit(PORTION)).all():
        counted, read = counted + 1, read + count_version(connection, version_id)
        if read > FILES_OF_PORTION:
            return counted
    checked = select(checks.c.inv_version_id).where(_UNCOUNTED).order_by(checks.c.id).limit(PORTION)
    for version_id in set(connection.scalars(checked)):
        counted += 1
        count_runs(connection, version_id)
    return counted


def all_counted(connection: Connection) -> bool:
    return connection.scalar(select(ingests.c.id).where(ingests.c.counted.is_(None)).limit(1)) is None


def days_of(connection: Connection, profile: str) -> dict[date, Stored]:
    """What was stored in the collection on each day on which something was, in order."""
    query = select(growth).where(growth.c.profile == profile).order_by(growth.c.day)
    return {
        date.fromisoformat(row.day): Stored(row.objects, row.versions, row.files, row.bytes)
        for row in connection.execute(query)
    }


def bytes_by_day(connection: Connection, since: date) -> dict[date, int]:
    """The bytes that were added in all collections on each day since."""
    query = select(growth.c.day, func.sum(growth.c.bytes)).where(growth.c.day >= since.isoformat())
    rows = connection.execute(query.group_by(growth.c.day).order_by(growth.c.day))
    return {date.fromisoformat(day): int(added) for day, added in rows}


def first_day(connection: Connection) -> date | None:
    """The first day on which anything was stored."""
    first = connection.scalar(select(func.min(growth.c.day)))
    return date.fromisoformat(first) if first else None


def formats_of(connection: Connection, profile: str) -> Formats:
    """The formats that a check identified, if any did; of several checks, of the one with the most files."""
    own = (formats.c.profile == profile) & (formats.c.files > 0)
    check = connection.scalar(
        select(formats.c.check_name)
        .where(own, formats.c.check_name != "")
        .group_by(formats.c.check_name)
        .order_by(func.sum(formats.c.files).desc(), formats.c.check_name)
        .limit(1)
    )
    of_check = own & (formats.c.check_name == (check or ""))
    query = select(formats.c.format, formats.c.files).where(of_check)
    shown = connection.execute(query.order_by(formats.c.files.desc(), formats.c.format).limit(FORMATS))
    named = tuple(Format(*row) for row in shown)
    total = connection.scalar(select(func.count()).select_from(formats).where(of_check)) or 0
    return Formats(check or "", named, total - len(named))


@dataclass(frozen=True)
class SpaceDay:
    """The bytes of working storage, and of the storage root if its file system is known, on a day."""

    day: date
    working_total: int
    working_used: int
    root_total: int | None
    root_free: int | None


def enter_space(connection: Connection, space: SpaceDay) -> None:
    """Enter the figures of the day unless it has some; remove those that are too old."""
    oldest = space.day - timedelta(days=KEPT_DAYS)
    connection.execute(delete(space_days).where(space_days.c.day <= oldest.isoformat()))
    insert_new(connection, space_days, [{**vars(space), "day": space.day.isoformat()}])


def space_by_day(connection: Connection, limit: int) -> tuple[SpaceDay, ...]:
    """The last days with figures, oldest first."""
    rows = connection.execute(select(space_days).order_by(space_days.c.day.desc()).limit(limit)).all()
    days = [SpaceDay(**{**row._asdict(), "day": date.fromisoformat(row.day)}) for row in rows]
    return tuple(reversed(days))


@dataclass(frozen=True)
class StoredVersions:
    """Versions of one collection and one depositor."""

    collection: str
    depositor: str
    """Empty if it is not known."""
    number: int
    bytes: int
    """Of the files that were new in their version."""


@dataclass(frozen=True)
class StoredOfBatch:
    """What was stored of one batch."""

    number: int
    last: datetime


def stored_between(connection: Connection, start: datetime, end: datetime) -> tuple[StoredVersions, ...]:
    """A version counts when storage made it, so that an inventory rebuilt from storage shows no burst."""
    size = select(func.sum(files.c.billable_size)).where(files.c.inv_version_id == versions.c.id)
    query = (
        select(ingests.c.profile, ingests.c.depositor, func.count(), func.sum(size.scalar_subquery()))
        .join(ingests, ingests.c.inv_version_id == versions.c.id)
        .where(versions.c.created >= start, versions.c.created < end)
        .group_by(ingests.c.profile, ingests.c.depositor)
    )
    return tuple(
        StoredVersions(collection, depositor or "", number, int(size or 0))
        for collection, depositor, number, size in connection.execute(query)
    )


def stored_of_batches(connection: Connection, since: datetime) -> Mapping[str, StoredOfBatch]:
    """BID -> what was stored of the batch since then; a batch without a version is left out."""
    query = (
        select(ingests.c.batch_id, func.count(), func.max(versions.c.created))
        .join(versions, versions.c.id == ingests.c.inv_version_id)
        .where(versions.c.created >= since)
        .group_by(ingests.c.batch_id)
    )
    return {bid: StoredOfBatch(number, last) for bid, number, last in connection.execute(query)}


def _day(moment: datetime) -> str:
    return moment.astimezone(UTC).date().isoformat()
