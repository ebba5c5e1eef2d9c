"""Stored versions whose last run of a check is outdated, in the order in which the runs were entered.

Rule: a version of a check is newer than another one if it was used first later. So hosts that have different
versions for a while do not take turns in repeating each other's work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from pipeline.inventory.columns import distinct_values
from pipeline.inventory.tables import CHECK_VERSION_LENGTH, checks, ingests, objects, versions

BOTH = (True, False)


@dataclass(frozen=True)
class Outdated:
    """Which last runs of a check are outdated, in some collections."""

    profiles: tuple[str, ...]
    versions: tuple[str, ...] = ()
    """Runs of these versions of the check."""
    before: datetime | None = None
    """Runs that ended earlier than this."""


@dataclass(frozen=True)
class OutdatedVersion:
    """A stored version of an object."""

    run: int
    """The key of the outdated run."""
    ark: str
    number: int
    profile: str


def older_versions(connection: Connection, check: str, version: str) -> tuple[str, ...]:
    """The versions of the check in last runs that are older than `version`, which may be unused as yet."""
    own = version[:CHECK_VERSION_LENGTH]
    used = select(checks.c.check_version).where(checks.c.check_name == check, checks.c.last).distinct()
    began = _first_use(connection, check, own)
    return tuple(
        other
        for other in connection.scalars(used)
        if other != own and (began is None or _first_use(connection, check, other) < began)  # type: ignore[operator]
    )


def older_than_newest(
    connection: Connection, installed: Mapping[str, str], check: str | None
) -> dict[str, tuple[str, ...]]:
    """Check -> the versions of its runs that are older than its newest one; of all checks, or of `check`.

    `installed`: check -> its version on the workers, which may be unused as yet.
    """
    older = {}
    for name in (check,) if check is not None else distinct_values(connection, checks.c.check_name):
        runs = [and_(checks.c.check_name == name, checks.c.last == last) for last in BOTH]
        used = {one for of in runs for one in distinct_values(connection, checks.c.check_version, of)}
        first = {version: _first_use(connection, name, version) for version in used}
        own = installed.get(name, "")[:CHECK_VERSION_LENGTH]
        began = max(filter(None, first.values()), default=None) if own in first or not own else None
        older[name] = tuple(
            version for version, at in first.items() if began is None or (at is not None and at < began)
        )
    return older


def _first_use(connection: Connection, check: str, version: str) -> datetime | None:
    # with both values of `last`, the query reads the beginnings of an index
    query = select(func.min(checks.c.at)).where(
        checks.c.check_name == check, checks.c.last.in_(BOTH), checks.c.check_version == version
    )
    first: datetime | None = connection.scalar(query)
    return first


def next_outdated(
    connection: Connection, check: str, outdated: Sequence[Outdated], after: int, limit: int
) -> tuple[OutdatedVersion, ...]:
    """The first versions with an outdated run whose key is above `after`."""
    query = (
        _outdated(
            select(checks.c.id.label("run"), objects.c.ark, versions.c.number, ingests.c.profile),
            check,
            outdated,
        )
        .join(versions, versions.c.id == checks.c.inv_version_id)
        .join(objects, objects.c.id == checks.c.inv_object_id)
        .where(checks.c.id > after)
        .order_by(checks.c.id)
        .limit(limit)
    )
    return tuple(OutdatedVersion(**row) for row in connection.execute(query).mappings())


def count_outdated(connection: Connection, check: str, outdated: Sequence[Outdated]) -> int:
    """The versions with an outdated run."""
    return connection.scalar(_outdated(select(func.count()).select_from(checks), check, outdated)) or 0


def _outdated(query: Select[Any], check: str, outdated: Sequence[Outdated]) -> Select[Any]:
    return query.join(ingests, ingests.c.inv_version_id == checks.c.inv_version_id).where(
        checks.c.check_name == check, checks.c.last, or_(*map(_is, outdated))
    )


def _is(outdated: Outdated) -> ColumnElement[bool]:
    conditions: list[ColumnElement[bool]] = [ingests.c.profile.in_(outdated.profiles)]
    if outdated.before is None:
        conditions.append(checks.c.check_version.in_(outdated.versions))
    else:
        conditions.append(checks.c.at < outdated.before)
    return and_(*conditions)
