"""List pages: batches, jobs, failures by cause. Only the rows of jobs are read from ZooKeeper."""

from __future__ import annotations

import re
from typing import TypeVar

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from entrypoints.web.context import context_of
from entrypoints.web.limits import slow
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import page
from operations.board.values import BatchSearch, FailureGroup, JobSearch, scope_of
from operations.jobs import job_view
from operations.verbs.overruling import names_in
from pipeline.errors import UsageRefused
from pipeline.notify import report_mail
from pipeline.outcome import WaitKind
from pipeline.principal import Principal
from pipeline.states import BatchState, FailureKind, JobState
from zkstate.errors import Missing

router = page_router()

M = TypeVar("M", BatchState, JobState, FailureKind, WaitKind)

_AGE = re.compile(r"(\d{1,9}(?:\.\d+)?)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

ROWS = 100
"""Rows per page of a list."""


@router.get("/batches")
def batches(request: Request, caller: PageCaller, after: str | None = None) -> HTMLResponse:
    web, scope = context_of(request), scope_of(caller)
    query, board = request.query_params, web.board
    search = BatchSearch(
        status=_member(BatchState, query.get("status")),
        collection=query.get("collection") or None,
        q=query.get("q") or None,
    )
    listed = web.with_time_left(board.batches(scope, search, ROWS, after))
    return page(
        request,
        "batches.html",
        page=listed,
        search=search,
        states=list(BatchState),
        freshness=board.freshness(),
    )


@router.get("/jobs")
def jobs(request: Request, caller: PageCaller, after: str | None = None) -> HTMLResponse:
    board, scope = context_of(request).board, scope_of(caller)
    query = request.query_params
    search = JobSearch(
        state=_member(JobState, query.get("state")),
        bid=query.get("bid") or None,
        collection=query.get("collection") or None,
        kind=_member(FailureKind, query.get("kind")),
        waiting=_member(WaitKind, query.get("waiting")),
        older_than=_seconds(query.get("older_than")),
        slow=bool(query.get("slow")),
        q=query.get("q") or None,
    )
    return page(
        request,
        "jobs.html",
        page=job_view.rows(context_of(request).session, board, scope, search, ROWS, after),
        search=search,
        states=list(JobState),
        kinds=list(FailureKind),
        waits=list(WaitKind),
        freshness=board.freshness(),
    )


@router.get("/failures")
def failures(request: Request, caller: PageCaller) -> HTMLResponse:
    board = context_of(request).board
    return page(
        request,
        "failures.html",
        groups=board.failures(scope_of(caller)),
        freshness=board.freshness(),
    )


@router.get("/failures/{cause}.csv")
@slow("record_work")
def failure_list(request: Request, caller: PageCaller, cause: str) -> Response:
    context, scope = context_of(request), scope_of(caller)
    session, board = context.session, context.board
    group = _group(request, caller, cause)
    rows: list[tuple[str, ...]] = []
    after: str | None = None
    while True:
        part = job_view.rows(session, board, scope, JobSearch(cause=group.id), 1000, after)
        rows += (
            (row.jid, row.bid, row.collection, row.name, row.kind or "", row.message) for row in part.rows
        )
        after = part.next
        if after is None:
            break
    disposition = {"Content-Disposition": f'attachment; filename="failures-{group.id}.csv"'}
    rows_text = report_mail.written(("jid", "bid", "collection", "name", "kind", "message"), rows)
    return Response(rows_text, media_type="text/csv", headers=disposition)


@router.get("/failures/{cause}")
def failure(request: Request, caller: PageCaller, cause: str, after: str | None = None) -> HTMLResponse:
    context, group = context_of(request), _group(request, caller, cause)
    search = JobSearch(cause=group.id)
    return page(
        request,
        "failure.html",
        group=group,
        findings=names_in(context.session, group.example),
        page=job_view.rows(context.session, context.board, scope_of(caller), search, ROWS, after),
    )


def _group(request: Request, caller: Principal, cause: str) -> FailureGroup:
    for group in context_of(request).board.failures(scope_of(caller), cause):
        return group
    raise Missing("no job has failed by this cause, or not any more")


def _seconds(text: str | None) -> float | None:
    """Seconds of an age such as `10m`; a bare number is seconds, as in the API."""
    if not text:
        return None
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise UsageRefused(f"'{text}' is not an age: write a number and its unit, as 90s, 10m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]


def _member(kind: type[M], text: str | None) -> M | None:
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise UsageRefused(f"'{text}' is not one of {', '.join(map(str, kind))}") from None
