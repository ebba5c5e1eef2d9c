"""The forms behind the buttons: one address for all acts, a preview of a verb for many, and search."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated
from urllib.parse import parse_qsl, quote

from fastapi import Form, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import Field

from entrypoints.web.authentication import OperatorCaller
from entrypoints.web.context import WebContext, context_of, site_of
from entrypoints.web.limits import LONG, slow
from entrypoints.web.pages import acts
from entrypoints.web.pages.lists import filter_of
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import Notice, page, redirect
from entrypoints.web.pages.whole import whole_of
from entrypoints.web.parameters import REASON_LIMIT
from entrypoints.web.routes.verbs import CANCEL, FINDINGS, WITH_REASON, Finding, Verb
from operations.board.board import Board
from operations.board.values import BatchSearch, JobSearch, scope_of
from operations.objects.objects import visible_object
from operations.objects.search import find_objects
from operations.run import Run
from operations.verbs.bulk import carry_out, make_plan, read_plan
from operations.verbs.verbs import Resumption
from pipeline.errors import ArklineError, UsageRefused
from pipeline.inventory.search.by_findings import FindingSearch
from pipeline.outcome import StepFailed
from pipeline.principal import Forbidden, Principal
from pipeline.states import Event
from zkstate.errors import Missing

router = page_router()

SHOWN_WITHIN = 1.0
"""Seconds to wait for the board, so that the next page shows the effect of an act."""

Text = Annotated[str, Form()]
Findings = Annotated[tuple[Finding, ...], Form(max_length=FINDINGS)]


@router.post("/act")
async def act(  # noqa: PLR0913 - the fields of a form
    request: Request,
    caller: PageCaller,
    act: Text,
    target: Text = "",
    version: Annotated[int | None, Form()] = None,
    reason: Text = "",
    finding: Findings = (),
    back: Text = "/",
) -> Response:
    """Carry out the act, and show the page again with its result, or with who acted first."""
    web = context_of(request)
    before = web.board.changes_since(None).last
    try:
        result = await acts.perform(
            request, caller, act, target, version, reason.strip()[:REASON_LIMIT], finding
        )
    except (Forbidden, Missing):
        raise
    except ArklineError as refused:
        return redirect(request, back, Notice(str(refused), "bad"))
    whole_of(request).renew()
    await run_in_threadpool(_await_shown, web.board, before, target)
    return redirect(request, back, Notice(result))


def _await_shown(board: Board, before: str, target: str) -> None:
    """Wait until the board shows the effect of an act, at most SHOWN_WITHIN seconds."""
    on_job_or_batch = target.startswith(("jid", "bid"))
    deadline = time.monotonic() + SHOWN_WITHIN
    while (left := deadline - time.monotonic()) > 0:
        news = board.changes_since(before)
        shown = {change.subject if on_job_or_batch else change.kind for change in news.changes}
        if (target if on_job_or_batch else "stops") in shown:
            return
        before = news.last
        board.wait_change(before, left)


@router.get("/find")
@slow("record_work")
def find(request: Request, caller: PageCaller, q: str = "") -> Response:
    """Redirect to the batch, job or object of this name, or else to a list of jobs or of objects."""
    web, text = context_of(request), q.strip()
    kinds = {"bid": "batches", "jid": "jobs"}
    if text[:3] in kinds and text[3:].isdigit():
        return RedirectResponse(f"/{kinds[text[:3]]}/{text}", status_code=303)
    on_board = _on_board(request, web, caller, text) if text else {}
    try:
        place = _objects_found(web, caller, text)
    except StepFailed:  # of the inventory
        if not on_board:
            raise
        place = None
    if place is None and on_board:
        return RedirectResponse(next(iter(on_board.values())), status_code=303)
    also = dict.fromkeys(on_board, "true")
    listed = request.url_for("find_object").include_query_params(q=text, **also)
    return RedirectResponse(place or listed, status_code=303)


def _on_board(request: Request, web: WebContext, caller: Principal, text: str) -> dict[str, str]:
    """`jobs` and `batches` with this name -> the address of the only one, or of their list."""
    scope = scope_of(caller)
    jobs = [row.jid for row in web.board.jobs(scope, JobSearch(q=text), 2).rows]
    batches = [row.bid for row in web.board.batches(scope, BatchSearch(q=text), 2).rows]
    return {
        kind: f"/{kind}/{names[0]}"
        if len(names) == 1
        else str(request.url_for(kind).include_query_params(q=text))
        for kind, names in (("jobs", jobs), ("batches", batches))
        if names
    }


def _objects_found(web: WebContext, caller: Principal, text: str) -> str | None:
    """The address of the object of this name; empty if there is none, but others have the text; else None."""
    with suppress(Missing, UsageRefused):  # UsageRefused: more than one has the name
        return f"/objects/{quote(visible_object(web.site, caller, text).ark)}"
    return "" if find_objects(web.site, caller, FindingSearch(), 1, query=text).objects else None


MOST = 1000
"""Maximum number of jobs or batches in a preview; a larger group is acted on in parts."""

Ids = Annotated[tuple[Annotated[str, Field(pattern=r"^(jid|bid)[0-9]{10,20}$")], ...], Query(max_length=MOST)]
Every = Annotated[str | None, Query(max_length=2000)]


@router.get("/bulk")
@slow("slow_work", LONG)
def show_preview(  # noqa: PLR0913 - the fields of several forms
    request: Request,
    caller: OperatorCaller,
    run: Run,
    cause: str = "",
    verb: str = "resume",
    finding: Annotated[tuple[Finding, ...], Query(max_length=FINDINGS)] = (),
    id: Ids = (),
    every_job: Every = None,
    every_batch: Every = None,
) -> HTMLResponse:
    """What the verb would do: to the jobs of a cause, to what was ticked, or to every row of a filter."""
    web, event = context_of(request), _event(verb)
    if cause or every_job is not None:
        search = JobSearch(cause=cause) if cause else filter_of(JobSearch, dict(parse_qsl(every_job)))
        jobs = web.board.jobs(scope_of(caller), search, MOST)
        names, total = [row.jid for row in jobs.rows], jobs.total
    elif every_batch is not None:
        conditions = filter_of(BatchSearch, dict(parse_qsl(every_batch)))
        batches = web.board.batches(scope_of(caller), conditions, MOST)
        names, total = [row.bid for row in batches.rows], batches.total
    elif id:
        names = list(dict.fromkeys(id))
        total = len(names)
    else:
        raise UsageRefused("nothing is selected: tick at least one row of the list")
    plan = make_plan(web.site, caller, event, names, Resumption(findings=finding), run)
    acted = [one.id for one in plan.expected]
    return page(
        request,
        "bulk.html",
        verb=verb,
        findings=finding,
        needs_reason=bool(finding) or event in WITH_REASON,
        token=plan.token,
        done=plan.expected,
        refused=plan.refused,
        receipt=None,
        unplanned=total - len(names),
        spelled=acts.bulk(verb, acted, cause, finding) if cause or len(acted) <= SPELLED else None,
    )


SPELLED = 50
"""Maximum number of names in the spelling of a preview."""


@router.post("/bulk")
@slow("slow_work", LONG)
def act_on_all(
    request: Request,
    caller: OperatorCaller,
    run: Run,
    verb: Annotated[str, Form()],
    token: Annotated[str, Form()],
    reason: Annotated[str, Form()] = "",
) -> HTMLResponse:
    event, reason = _event(verb), reason.strip()
    if event in WITH_REASON and not reason:
        raise UsageRefused(f"{verb} needs a reason: give one, and make the preview again")
    plan = read_plan(caller, event, token)
    receipt = carry_out(site_of(request), caller, plan, reason=reason, run=run)
    return page(
        request,
        "bulk.html",
        verb=verb,
        findings=plan.findings,
        needs_reason=False,
        token="",
        done=receipt.done,
        refused=(*receipt.refused, *receipt.moved),
        receipt=receipt,
        unplanned=0,
        spelled=None,
    )


def _event(verb: str) -> Event:
    """The event of a verb for many; a batch is cancelled by the event that fails it."""
    events = {event.value: Event(event) for event in Verb} | {CANCEL: Event.FAIL}
    if verb not in events:
        raise UsageRefused(f"'{verb}' is not one of {', '.join(sorted(events))}")
    return events[verb]
