"""Renders the report of a collection: on a terminal, as CSV, and its sentences for the page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Any

from entrypoints.render import screen
from entrypoints.render.screen import Column
from entrypoints.render.views import when
from pipeline.humanize import by_whom, counted
from pipeline.inventory.fixity import COUNTED
from pipeline.notify import report_mail
from pipeline.working_storage.capacity import in_units

if TYPE_CHECKING:
    from operations.collection_report import CollectionReport, Quota
    from operations.forecast import Forecast
    from operations.verbs.collection_profiles import ProfileLine
    from pipeline.inventory.growth import Formats, SpaceDay

MONTHS = 24
"""Months that a terminal and the page show, the last ones; JSON and CSV have all."""

_LIMITS = {
    "object_bytes": "An object may have {}.",
    "object_files": "An object may have {:,} files.",
    "batch_jobs": "A deposit may have {:,} objects.",
    "live_jobs": "{:,} objects may be in processing or waiting at a time.",
    "recipients": "A report goes to {:,} mail addresses at most.",
    "jobs_at_work": "{:,} objects are processed at a time.",
    "host_connections": "{:,} connections to one source are open at a time.",
}


def profile_words(profile: ProfileLine) -> Iterator[str]:
    """What the profile asks of a deposit, and its limits."""
    yield "A deposit needs files; title, creator, date and identifiers are optional."
    yield f"The ARKs of new objects begin with {' or '.join(profile.ark_prefixes)}."
    if profile.new_versions:
        yield "A deposit that names an object that is here becomes its next version."
    if profile.review:
        yield "An operator approves each deposit before it is stored."
    if profile.checks:
        yield f"Files are checked by {', '.join(profile.checks)}."
    if profile.sources:
        yield f"Files come from {', '.join(profile.sources)} alone."
    for name, limit in profile.limits.items():
        if text := _LIMITS.get(name):
            yield text.format(in_units(limit) if name == "object_bytes" else limit)


def quota_text(quota: Quota) -> str:
    used, limit, share = quota.used, quota.limit, f"{quota.used / quota.limit:.0%}"
    if quota.name == "quota_bytes":
        return f"Stored: {in_units(used)} of the agreed {in_units(limit)} ({share})"
    what = "Not ended" if quota.name == "live_jobs" else "In processing"
    return f"{what}: {counted(used, 'object')} of {limit:,} ({share})"


def forecast_text(forecast: Forecast) -> str:
    """`Full on 3 March 2027 at the rate of the last 90 days, 1.2 GB a day.` and the error of earlier ones."""
    rate = f"at the rate of the last {forecast.rate_days} days, {in_units(int(forecast.rate))} a day"
    if forecast.used >= forecast.capacity:
        text = f"Full: {in_units(forecast.used)} of {in_units(forecast.capacity)} are used."
    elif forecast.full_on is None:
        text = f"Not full within a hundred years {rate}."
    else:
        text = f"Full on {day_text(forecast.full_on)} {rate}."
    if forecast.median_error is None:
        return text
    of = "the forecast of 30 days ago" if forecast.compared == 1 else f"{forecast.compared} earlier forecasts"
    return f"{text} Median error of {of} for 30 days ahead: {in_units(forecast.median_error)}."


def working_text(space: SpaceDay) -> str:
    used, total = in_units(space.working_used), in_units(space.working_total)
    return f"Working storage on {day_text(space.day)}: {used} of {total} used."


def day_text(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


def formats_title(formats: Formats) -> str:
    return f"Files by format, {f'as {formats.check} identified them' if formats.check else 'by media type'}"


def fixity_words(report: CollectionReport) -> Iterator[str]:
    fixity = report.fixity
    if fixity is None:
        return
    if not report.fixity_days:
        yield "Stored files are not read again by schedule."
    else:
        yield f"Every stored file is read again within {counted(report.fixity_days, 'day')}."
        yield f"{_capped(fixity.due)} due to be read; {_capped(fixity.overdue)} not read within this period."
    if fixity.damaged:
        yield f"Alarm: {_capped(fixity.damaged)} damaged."


def _capped(number: int) -> str:
    verb = "is" if number == 1 else "are"
    return f"{f'{COUNTED:,} or more objects' if number == COUNTED else counted(number, 'object')} {verb}"


def as_csv(report: CollectionReport) -> str:
    """One fact a row: `months,2026-11,added.bytes,1024`."""
    rows = (
        row for section, value in report.model_dump(mode="json").items() for row in _facts(section, value)
    )
    return report_mail.written(("section", "name", "measure", "value"), rows)


def _facts(section: str, value: Any, name: str = "", measure: str = "") -> Iterator[tuple[str, ...]]:
    """Of a list of records, the first field of each is its name."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _facts(section, part, name, f"{measure}.{key}" if measure else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for record in value:
            first, *others = record
            for key in others:
                yield from _facts(section, record[key], str(record[first]), key)
    elif value is not None:
        yield section, name, measure, " ".join(map(str, value)) if isinstance(value, list) else str(value)


def show(report: CollectionReport) -> None:
    stored, profile, fixity = report.stored, report.profile, report.fixity
    screen.say(report.collection, "bold")
    if profile and profile.description:
        screen.say(profile.description)
    if not report.complete:
        screen.note("Not complete: what an earlier release stored is being counted.")
    hold, root = report.hold, report.storage.forecast if report.storage else None
    days = report.storage.days if report.storage else ()
    last = fixity.last_checked if fixity else None
    screen.facts(
        (
            ("stored", f"{counted(stored.objects, 'object')}, {in_units(stored.bytes)}"),
            *(("quota", quota_text(quota)) for quota in report.quotas),
            ("forecast", forecast_text(report.forecast) if report.forecast else None),
            ("storage root", forecast_text(root) if root else None),
            ("working storage", working_text(days[-1]) if days else None),
            ("on hold", by_whom(hold.by, hold.reason, hold.at) if hold else None),
            *(("fixity", text) for text in fixity_words(report)),
            ("last read", when(last) if last else None),
            ("tokens", ", ".join(f"{one.name} ({one.role})" for one in report.tokens or ())),
            *(("profile", text) for text in (profile_words(profile) if profile else ())),
        )
    )
    screen.table(
        report.months[-MONTHS:],
        Column("month", lambda month: month.month),
        Column("objects added", lambda month: f"{month.added.objects:,}"),
        Column("bytes added", lambda month: in_units(month.added.bytes)),
    )
    if report.formats:
        screen.say(formats_title(report.formats))
        screen.table(
            report.formats.formats,
            Column("format", lambda one: one.name, long=True),
            Column("files", lambda one: f"{one.files:,}"),
        )
    for group in report.failures:
        screen.say(group.title)
    screen.table(
        report.deposits,
        Column("last deposits", lambda batch: batch.bid),
        Column("name", lambda batch: batch.name, long=True),
        Column("state", lambda batch: screen.state(batch.status)),
    )
