"""The list of collections, and the page of one: what it stores, how that grows, what failed, what is due."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import HTMLResponse

from entrypoints.render import collection_figures
from entrypoints.web.context import context_of
from entrypoints.web.limits import slow
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import page
from entrypoints.web.parameters import Collection
from operations.board.values import scope_of
from operations.collection_report import collection_report
from operations.verbs.collection_profiles import listed

router = page_router()


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
        months=report.months[-collection_figures.MONTHS :],
        words=collection_figures,
        freshness=web.board.freshness(),
    )
