"""The report of a collection: what it stores and how that grows, what failed, what is due, and who may act.

Rule: numbers come from the inventory's counters and from the board, so that a report costs the same for ten
objects and for ten million. What a caller may not see is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import accumulate

from operations.board.board import Board, collection_counts
from operations.board.values import BatchSearch, BoardBatch, FailureGroup, Scope, Stop, scope_of
from operations.forecast import NEEDED_DAYS, Forecast, forecast
from operations.site import Site
from operations.tokens import list_tokens
from operations.verbs.collection_profiles import ProfileLine, profile_line
from operations.visibility import sees_fleet
from pipeline.inventory import fixity
from pipeline.inventory.fixity import CollectionFixity
from pipeline.inventory.growth import Formats, SpaceDay, Stored
from pipeline.inventory.sql import SqlInventory
from pipeline.preservation.fixity import LEAD, fixity_days
from pipeline.principal import Principal, Role
from pipeline.profiles.profile import Profile, ProfileError
from pipeline.records import Record, now
from pipeline.states import JOB, JobState

LATEST = 10
"""Deposits in a report."""

SPACE_DAYS = 90
"""Days of figures of working storage in a report."""


class Month(Record):
    """A month, such as `2026-11`: what was added, and what was stored at its end."""

    month: str
    added: Stored
    stored: Stored = Stored()


class Quota(Record):
    """A limit of the collection, and what of it is used: `quota_bytes`, `live_jobs` or `jobs_at_work`."""

    name: str
    limit: int
    used: int


class TokenName(Record):
    name: str
    role: Role


class StorageFigures(Record):
    """Bytes of working storage and of the storage root by day; a day without figures is left out."""

    days: tuple[SpaceDay, ...]
    forecast: Forecast | None = None
    """When the file system of the storage root is full; null if it or its growth is not known."""


class CollectionReport(Record):
    collection: str
    as_of: datetime
    profile: ProfileLine | None = None
    """Null if the collection has no profile now."""
    stored: Stored
    complete: bool
    """False while versions that an earlier release entered are being counted."""
    months: tuple[Month, ...] = ()
    """From the first deposit to now."""
    formats: Formats | None = None
    quotas: tuple[Quota, ...] = ()
    forecast: Forecast | None = None
    """When `quota_bytes` is used up; null without that quota, or with less than 14 days of data."""
    failures: tuple[FailureGroup, ...]
    """Those that the caller may see, as the deposits."""
    deposits: tuple[BoardBatch, ...]
    """The last ones that have not left the record."""
    fixity: CollectionFixity | None = None
    fixity_days: int
    """Days within which every file is read again; 0: never."""
    hold: Stop | None = None
    tokens: tuple[TokenName, ...] | None = None
    """The tokens with rights for the collection; null unless the caller may list tokens."""
    storage: StorageFigures | None = None
    """Null unless the caller sees all collections."""


def collection_report(site: Site, board: Board, principal: Principal, name: str) -> CollectionReport:
    """The report; Missing unless the collection exists and the principal may see it."""
    inventory, at = site.archive(), now()
    days = inventory.days_of_collection(name) if inventory and _in_scope(principal, name) else {}
    if not days:  # Missing, unless there is a profile or a deposit
        collection_counts(board, site.profiles, principal, name)
    scope = Scope(collections=frozenset({name}), owner=scope_of(principal).owner)
    stored, period = sum(days.values(), Stored()), fixity_days(name, site.profiles, site.settings)
    profile = _profile(site, name)
    report = CollectionReport(
        collection=name,
        as_of=at,
        profile=profile and profile_line(site.profiles, name).model_copy(update={"file": ""}),
        stored=stored,
        complete=inventory is None or inventory.all_counted(),
        months=_months(days, at.date()),
        quotas=_quotas(profile, board, name, stored) if profile else (),
        failures=board.failures(scope),
        deposits=board.batches(scope, BatchSearch(), LATEST).rows,
        fixity_days=period,
        hold=next(iter(board.stops(scope).collections), None),
    )
    if inventory is None:
        return report
    of_fixity = fixity.of_collection(inventory, name, timedelta(days=period) if period else None, LEAD, at)
    if principal.role is Role.DEPOSITOR:  # damaged objects may be those of others
        of_fixity = replace(of_fixity, damaged_objects=())
    added = {day: one.bytes for day, one in days.items()}
    quota = profile and profile.quota_bytes
    return report.model_copy(
        update={
            "formats": inventory.formats_of_collection(name),
            "forecast": quota and forecast(added, min(days, default=None), at.date(), stored.bytes, quota),
            "fixity": of_fixity,
            "tokens": _tokens(inventory, principal, name),
            "storage": storage_figures(inventory) if sees_fleet(principal) else None,
        }
    )


def storage_figures(inventory: SqlInventory) -> StorageFigures:
    """The figures of the last days; the forecast begins with the last one of the storage root."""
    days = inventory.space_by_day(SPACE_DAYS)
    last = days[-1] if days else None
    if last is None or last.root_total is None or last.root_free is None:
        return StorageFigures(days=days)
    added = inventory.bytes_by_day(last.day - timedelta(days=NEEDED_DAYS))
    used = last.root_total - last.root_free
    return StorageFigures(
        days=days, forecast=forecast(added, inventory.first_day(), last.day, used, last.root_total)
    )


def _in_scope(principal: Principal, name: str) -> bool:
    return principal.collections is None or name in principal.collections


def _profile(site: Site, name: str) -> Profile | None:
    try:
        return site.profile(name)
    except ProfileError:
        return None


def _months(days: Mapping[date, Stored], today: date) -> tuple[Month, ...]:
    added: dict[str, Stored] = {}
    day = min(days, default=date.max).replace(day=1)
    while day <= today:
        added[f"{day:%Y-%m}"] = Stored()
        day = (day + timedelta(days=31)).replace(day=1)
    for day, stored in days.items():
        added[f"{day:%Y-%m}"] = added.get(f"{day:%Y-%m}", Stored()) + stored
    totals = accumulate(added.values())
    return tuple(
        Month(month=month, added=new, stored=total)
        for (month, new), total in zip(added.items(), totals, strict=True)
    )


def _quotas(profile: Profile, board: Board, name: str, stored: Stored) -> tuple[Quota, ...]:
    jobs = board.counts(Scope(collections=frozenset({name})))

    def number(*states: JobState) -> int:
        return sum(jobs.get(state, 0) for state in states)

    used = {
        "quota_bytes": (profile.quota_bytes, stored.bytes),
        "live_jobs": (profile.limits.live_jobs, number(*JOB.where(lambda facts: not facts.ended))),
        "jobs_at_work": (profile.limits.jobs_at_work, number(*JOB.where(lambda facts: facts.occupies_place))),
    }
    return tuple(
        Quota(name=which, limit=limit, used=number_used)
        for which, (limit, number_used) in used.items()
        if limit is not None
    )


def _tokens(inventory: SqlInventory, principal: Principal, name: str) -> tuple[TokenName, ...] | None:
    if not principal.role.includes(Role.ADMIN) or principal.collections is not None:
        return None
    return tuple(
        TokenName(name=token.name, role=token.role)
        for token in list_tokens(inventory, principal)
        if token.revoked is None and (token.collections is None or name in token.collections)
    )
