"""The list of collections, and the page of one: what it stores, how that grows, what failed, what is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from fastapi import Request
from fastapi.responses import HTMLResponse

from entrypoints.render import collection as rendered
from entrypoints.web.context import context_of
from entrypoints.web.limits import slow
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import page
from entrypoints.web.parameters import Collection
from operations.board.values import scope_of
from operations.collection_report import Month, collection_report
from operations.verbs.collection_profiles import listed
from pipeline.inventory.growth import Formats, Stored

router = page_router()

SHOWN_FORMATS = 6
"""Formats that the drawing tells apart; their colours are `.format-0` to `.format-5`."""

WIDTH, HEIGHT = 1000, 200
"""Of the drawing of growth, in units."""


@dataclass(frozen=True)
class MonthEnd:
    """What was stored at the end of a month, as a bar and as a point of the line of objects."""

    month: str
    stored: Stored
    added: Stored
    x: float
    width: float
    height: float
    line: float


@dataclass(frozen=True)
class Share:
    """A format in the bar of all files."""

    label: str
    x: float
    width: float


@router.get("/collections")
def collections(request: Request, caller: PageCaller) -> HTMLResponse:
    web = context_of(request)
    counts = {row.collection: row for row in web.board.collections(scope_of(caller))}
    profiles = {line.name: line for line in listed(web.site.profiles, caller)}
    rows = [(name, profiles.get(name), counts.get(name)) for name in sorted({*counts, *profiles})]
    return page(request, "collections.html", rows=rows, freshness=web.board.freshness())


@router.get("/collections/{name}")
@slow("record_work")
def collection(request: Request, caller: PageCaller, name: Collection) -> HTMLResponse:
    web = context_of(request)
    report = collection_report(web.site, web.board, caller, name)
    return page(
        request,
        "collection.html",
        report=report,
        months=month_ends(report.months, report.as_of.date()),
        shares=shares(report.formats),
        words=rendered,
        freshness=web.board.freshness(),
    )


def month_ends(months: Sequence[Month], today: date) -> list[MonthEnd]:
    """The last months to the present one, those without a deposit too, with the sizes of their bars."""
    added = {month.month: month.added for month in months}
    if not added:
        return []
    names, total, ends = [], Stored(), []
    year, month = map(int, min(added).split("-"))
    while (year, month) <= (today.year, today.month):
        names.append(f"{year}-{month:02}")
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    for name in names:
        total += added.get(name, Stored())
        ends.append((name, total, added.get(name, Stored())))
    shown = ends[-rendered.MONTHS :]
    most, step = max(total.bytes, 1), WIDTH / max(len(shown), 1)
    return [
        MonthEnd(
            month=name,
            stored=stored,
            added=new,
            x=round(number * step + step * 0.1, 1),
            width=round(step * 0.8, 1),
            height=round(stored.bytes / most * HEIGHT, 1),
            line=round(HEIGHT - stored.objects / max(total.objects, 1) * HEIGHT * 0.97, 1),
        )
        for number, (name, stored, new) in enumerate(shown)
    ]


def shares(formats: Formats | None) -> list[Share]:
    """The most frequent formats as parts of one bar; the last part has all others that are listed."""
    if formats is None or not formats.formats:
        return []
    first = [(one.name, one.files) for one in formats.formats[: SHOWN_FORMATS - 1]]
    if rest := sum(one.files for one in formats.formats[SHOWN_FORMATS - 1 :]):
        first.append(("others", rest))
    total, x, parts = sum(files for _, files in first), 0.0, []
    for name, files in first:
        width = files / total * WIDTH
        parts.append(Share(f"{name}: {files / total:.0%}", round(x, 1), round(width, 1)))
        x += width
    return parts
