"""List pages: batches, jobs, failures by cause. Only the rows of jobs are read from ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from pydantic import ValidationError

from entrypoints.web.context import context_of
from entrypoints.web.limits import slow
from entrypoints.web.pages import acts
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import page
from operations.board.values import (
    BatchSearch,
    BoardBatch,
    BoardJob,
    FailureGroup,
    JobSearch,
    scope_of,
)
from operations.jobs import job_view
from operations.verbs.overruling import names_in
from pipeline.attempt import Attempt
from pipeline.errors import Action, UsageRefused
from pipeline.humanize import seconds
from pipeline.notify import report_mail
from pipeline.outcome import WaitKind
from pipeline.principal import Principal
from pipeline.states import BATCH, JOB, BatchState, Event, FailureKind, JobState, Raiser
from zkstate.errors import Missing

router = page_router()

F = TypeVar("F", BatchSearch, JobSearch)

ROWS = 100
"""Rows per page of a list."""


@router.get("/batches")
def batches(request: Request, caller: PageCaller, after: str | None = None) -> HTMLResponse:
    web, scope = context_of(request), scope_of(caller)
    search = filter_of(BatchSearch, request.query_params)
    listed = web.with_time_left(web.board.batches(scope, search, ROWS, after))
    return page(
        request,
        "batches.html",
        page=listed,
        search=search,
        states=list(BatchState),
        filtered=_filter_of(request),
        named=(
            Named("Failed", "?status=failed"),
            Named("At work", "?status=processing"),
            Named("On hold", "?status=held"),
            Named("My deposits that failed", f"?{urlencode({'status': 'failed', 'owner': caller.identity})}"),
        ),
        acts=_batch_acts(listed.rows),
    )


def filter_of(kind: type[F], query: Mapping[str, str]) -> F:
    """The conditions in the address of a list; UsageRefused names one that is impossible.

    Ages are as `10m`; a bare number is seconds, as in the API.
    """
    given = {name: text.strip() for name, text in query.items() if text.strip() and name in kind.model_fields}
    try:
        for name in {"older_than", "younger_than"} & given.keys():
            text = given[name]
            given[name] = str(seconds(text if text[-1].isalpha() else f"{text}s"))
        return kind.model_validate(given)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UsageRefused(f"{wrong['loc'][0]} '{wrong['input']}': {wrong['msg']}") from error
    except ValueError as error:
        raise UsageRefused(str(error)) from error


@dataclass(frozen=True)
class Named:
    """A filter with a name; `query`: of its address."""

    name: str
    query: str


def _filter_of(request: Request) -> str:
    """The filter in the address of a list, without the place in the list."""
    return urlencode([pair for pair in request.query_params.multi_items() if pair[1] and pair[0] != "after"])


def _batch_acts(rows: Iterable[BoardBatch]) -> tuple[acts.Act, ...]:
    """What may be done with one of the batches at least."""
    possible: set[str] = set()
    for row in rows:
        possible |= BATCH.events(row.status, Raiser.OPERATOR) - {Event.FAIL}
        possible |= {Action.RESUME_BATCH} if row.jobs.get(JobState.FAILED) else set()
        possible |= set() if BATCH.facts[row.status].ended else {Action.CANCEL}
    return tuple(act for code, act in acts.ACTS.items() if code in possible)


def _job_acts(rows: Iterable[BoardJob]) -> tuple[acts.Act, ...]:
    possible = {event for row in rows for event in JOB.events(row.state, Raiser.OPERATOR)}
    return tuple(act for code, act in acts.ACTS.items() if code in possible)


@router.get("/jobs")
def jobs(request: Request, caller: PageCaller, after: str | None = None) -> HTMLResponse:
    board, scope = context_of(request).board, scope_of(caller)
    search = filter_of(JobSearch, request.query_params)
    listed = job_view.rows(context_of(request).session, board, scope, search, ROWS, after)
    return page(
        request,
        "jobs.html",
        page=listed,
        search=search,
        states=list(JobState),
        kinds=list(FailureKind),
        waits=list(WaitKind),
        filtered=_filter_of(request),
        named=(
            Named("Failed within a day", "?state=failed&younger_than=1d"),
            Named("Failed, for an operator", "?state=failed&kind=system"),
            Named("Waiting for a review", "?state=review"),
            Named("On hold", "?state=held"),
            Named("Slower than usual", "?slow=1"),
        ),
        acts=_job_acts(listed.rows),
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
def failure_list(request: Request, caller: PageCaller, cause: str, attempt: Attempt) -> Response:
    context, scope = context_of(request), scope_of(caller)
    session, board = context.session, context.board
    group = _group(request, caller, cause)
    rows: list[tuple[str, ...]] = []
    after: str | None = None
    while True:
        attempt.check()
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
