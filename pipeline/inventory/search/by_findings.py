"""Objects by what checks found in them, a page at a time, in the order in which objects were entered.

Rule: the last run of each check of each version counts. An object was not checked where a version has no run
of the check, or where its last run left files unchecked: silence is never fine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, false, func, not_, or_, select, true

from pipeline.checks import CheckVerdict
from pipeline.inventory import growth, outdated
from pipeline.inventory.sight import EVERYTHING, Sight, candidates, deposited_by, sees
from pipeline.inventory.tables import checks, files, findings, ingests, objects, versions

SHOWN_MATCHES = 10
"""Findings of an object in a list."""


@dataclass(frozen=True)
class FindingSearch:
    """Without conditions, all objects are meant."""

    code: str | None = None
    verdict: CheckVerdict | None = None
    check: str | None = None
    outdated: bool = False
    """Only last runs of an older version of a check than its newest one."""
    installed: Mapping[str, str] = field(default_factory=dict)
    """Check -> its version on the workers, if that is known: the newest one if it is unused as yet."""


@dataclass(frozen=True)
class OutdatedRun:
    """A last run of an older version of a check than its newest one."""

    version: int
    check: str
    check_version: str
    at: datetime


@dataclass(frozen=True)
class Match:
    """A finding that meets the conditions."""

    version: int
    path: str
    """In the object; in the deposit, if the file was not stored."""
    check: str
    check_version: str
    at: datetime
    verdict: CheckVerdict
    code: str
    message: str


@dataclass(frozen=True)
class FoundObject:
    ark: str
    title: str
    modified: datetime
    matches: tuple[Match, ...]
    """The first findings that meet the conditions."""
    more: bool
    """There are further such findings."""
    never_checked: tuple[int, ...]
    """Versions without a run of the check; if no check is named, without a run of any."""
    outdated: tuple[OutdatedRun, ...] = ()
    """The first runs of older versions of a check, if the search is for those."""
    creator: str = ""
    date: str = ""
    """As the depositor described it."""
    collection: str = ""
    """The collection of the current version."""
    files: int = 0
    """The depositor's files in the current version."""
    file: str = ""
    """The first deposited file that a search by text found it by; empty if it was not by a file."""


def keys(
    connection: Connection, search: FindingSearch, sight: Sight = EVERYTHING, limit: int = 100, after: int = 0
) -> tuple[int, ...]:
    """The keys above `after` of objects that meet the conditions, in their order."""
    column, query = _matching(search, _older(connection, search))
    if search == FindingSearch() and (own := candidates(sight)):
        column, query = own
    elif sight.depositor is not None:
        query = query.where(column.in_(deposited_by(sight.depositor, after)))
    # in the order of an index, so that a page reads its own rows only
    query = query.distinct().where(column > after, sees(sight, column)).order_by(column)
    return tuple(connection.scalars(query.limit(limit)))


def meets(
    connection: Connection, search: FindingSearch, object_id: ColumnElement[int]
) -> ColumnElement[bool]:
    """Whether the object of this key meets the conditions."""
    if search == FindingSearch():
        return true()
    column, query = _matching(search, _older(connection, search))
    return query.where(column == object_id).correlate(object_id.table).exists()


def found_objects(
    connection: Connection, search: FindingSearch, keys: Sequence[int]
) -> tuple[FoundObject, ...]:
    """The objects with these keys, in this order."""
    of_version = files.c.inv_version_id == versions.c.id
    rows = connection.execute(
        select(
            objects,
            ingests.c.profile,
            select(func.count())
            .select_from(files)
            .where(of_version, growth.DEPOSITED)
            .scalar_subquery()
            .label("files"),
        )
        .join(
            versions,
            and_(versions.c.inv_object_id == objects.c.id, versions.c.number == objects.c.version_number),
        )
        .join(ingests, ingests.c.inv_version_id == versions.c.id)
        .where(objects.c.id.in_(keys))
    )
    known = {row.id: row for row in rows}
    older = _older(connection, search)
    shown = []
    for key in keys:
        row, matches = known[key], _matches(connection, search, older, key)
        shown.append(
            FoundObject(
                ark=row.ark,
                title=row.erc_what,
                creator=row.erc_who,
                date=row.erc_when,
                collection=row.profile,
                files=row.files,
                modified=row.modified,
                matches=matches[:SHOWN_MATCHES],
                more=len(matches) > SHOWN_MATCHES,
                never_checked=_never_checked(connection, search, key),
                outdated=_outdated_runs(connection, search, older, key),
            )
        )
    return tuple(shown)


Older = ColumnElement[bool]
"""The condition on a run that `outdated` sets; true without it."""


def _older(connection: Connection, search: FindingSearch) -> Older:
    if not search.outdated:
        return true()
    by_check = outdated.older_than_newest(connection, search.installed, search.check)
    conditions = (
        and_(checks.c.check_name == check, checks.c.check_version.in_(older))
        for check, older in by_check.items()
        if older
    )
    return and_(checks.c.last, or_(false(), *conditions))


def _matching(search: FindingSearch, older: Older) -> tuple[ColumnElement[int], Select[Any]]:
    """A column of keys of objects, and its rows that meet the conditions."""
    unchecked = search.verdict is CheckVerdict.UNCHECKED and search.code is None
    if search.outdated and (unchecked or (search.code, search.verdict) == (None, None)):
        column = checks.c.inv_object_id
        query = select(column).where(older, checks.c.unchecked > 0 if unchecked else true())
    elif unchecked:
        column = versions.c.inv_object_id
        query = select(column).where(_not_checked(search.check))
    elif search.code is not None or search.verdict is not None:
        column = findings.c.inv_object_id
        joined = select(column).join(checks, checks.c.id == findings.c.inv_check_id)
        query = joined.where(_meets(search), older)
    elif search.check is not None:
        column = checks.c.inv_object_id
        query = select(column).where(checks.c.check_name == search.check)
    else:
        column = objects.c.id
        query = select(column)
    return column, query


def _meets(search: FindingSearch) -> ColumnElement[bool]:
    """The finding, and its run, meet the conditions."""
    conditions: list[ColumnElement[bool]] = [checks.c.last]
    if search.code is not None:
        conditions.append(findings.c.code == search.code)
    if search.verdict is not None:
        conditions.append(findings.c.verdict == search.verdict.value)
    if search.check is not None:
        conditions.append(checks.c.check_name == search.check)
    return and_(*conditions)


def _not_checked(check: str | None) -> ColumnElement[bool]:
    """The version has no run of the check, or its last run left files unchecked."""
    own: ColumnElement[bool] = checks.c.inv_version_id == versions.c.id
    if check is not None:
        complete = exists().where(own, checks.c.check_name == check, checks.c.last, checks.c.unchecked == 0)
        return not_(complete)
    return or_(not_(exists().where(own)), exists().where(own, checks.c.last, checks.c.unchecked > 0))


def _matches(
    connection: Connection, search: FindingSearch, older: Older, object_id: int
) -> tuple[Match, ...]:
    """One more than are shown, if there are."""
    if search.code is None and search.verdict is None and search.check is None:
        return ()
    query: Select[Any] = (
        select(findings, checks, versions.c.number, files.c.pathname.label("stored_as"))
        .join(checks, checks.c.id == findings.c.inv_check_id)
        .join(versions, versions.c.id == checks.c.inv_version_id)
        .join(files, files.c.id == findings.c.inv_file_id, isouter=True)
        .where(findings.c.inv_object_id == object_id, _meets(search), older)
        .order_by(findings.c.id)
        .limit(SHOWN_MATCHES + 1)
    )
    return tuple(
        Match(
            version=row.number,
            path=row.stored_as or row.pathname,
            check=row.check_name,
            check_version=row.check_version,
            at=row.at,
            verdict=CheckVerdict(row.verdict),
            code=row.code or "",
            message=row.message or "",
        )
        for row in connection.execute(query)
    )


def _never_checked(connection: Connection, search: FindingSearch, object_id: int) -> tuple[int, ...]:
    if search.verdict is not CheckVerdict.UNCHECKED or search.outdated:
        return ()
    run: ColumnElement[bool] = checks.c.inv_version_id == versions.c.id
    if search.check is not None:
        run = and_(run, checks.c.check_name == search.check)
    query = select(versions.c.number).where(versions.c.inv_object_id == object_id, not_(exists().where(run)))
    return tuple(connection.scalars(query.order_by(versions.c.number)))


def _outdated_runs(
    connection: Connection, search: FindingSearch, older: Older, object_id: int
) -> tuple[OutdatedRun, ...]:
    if not search.outdated:
        return ()
    query = (
        select(versions.c.number, checks.c.check_name, checks.c.check_version, checks.c.at)
        .join(versions, versions.c.id == checks.c.inv_version_id)
        .where(checks.c.inv_object_id == object_id, older)
        .order_by(versions.c.number, checks.c.id)
        .limit(SHOWN_MATCHES)
    )
    return tuple(
        OutdatedRun(row.number, row.check_name, row.check_version, row.at)
        for row in connection.execute(query)
    )
