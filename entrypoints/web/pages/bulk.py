"""A verb for all jobs of a failure's cause: a preview, then exactly what was previewed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Request
from fastapi.responses import HTMLResponse

from entrypoints.web.authentication import OperatorCaller
from entrypoints.web.context import context_of
from entrypoints.web.pages.login import page_router
from entrypoints.web.pages.spelling import WITH_REASON
from entrypoints.web.pages.templating import page
from entrypoints.web.slow_work import LONG, slow
from operations.board.values import JobSearch, scope_of
from operations.verbs.bulk import carry_out, make_plan, read_plan
from pipeline.attempt import Attempt
from pipeline.errors import UsageRefused
from pipeline.states import Event

router = page_router()

MOST = 1000
"""Jobs of one preview; a larger group is resumed in parts."""

VERBS = {Event.RESUME, Event.DELETE, Event.FAIL, Event.RELEASE}


@router.get("/bulk")
@slow("slow_work", LONG)
def show_preview(
    request: Request, caller: OperatorCaller, attempt: Attempt, cause: str, verb: str = "resume"
) -> HTMLResponse:
    web = context_of(request)
    rows = web.board.jobs(scope_of(caller), JobSearch(cause=cause), MOST).rows
    names = [row.jid for row in rows]
    plan = make_plan(web.site, caller, _event(verb), names, run=web.run_of(attempt))
    return page(
        request,
        "bulk.html",
        caller=caller,
        verb=verb,
        cause=cause,
        needs_reason=_event(verb) in WITH_REASON,
        token=plan.token,
        done=plan.expected,
        refused=plan.refused,
        receipt=None,
    )


@router.post("/bulk")
@slow("slow_work", LONG)
def act_on_all(
    request: Request,
    caller: OperatorCaller,
    attempt: Attempt,
    verb: Annotated[str, Form()],
    token: Annotated[str, Form()],
    reason: Annotated[str, Form()] = "",
) -> HTMLResponse:
    web = context_of(request)
    if _event(verb) in WITH_REASON and not reason.strip():
        raise UsageRefused(f"{verb} cannot be undone: give a reason, and make the preview again")
    plan = read_plan(caller, _event(verb), token)
    receipt = carry_out(web.site, caller, plan, reason=reason, run=web.run_of(attempt))
    return page(
        request,
        "bulk.html",
        caller=caller,
        verb=verb,
        needs_reason=_event(verb) in WITH_REASON,
        token="",
        done=receipt.done,
        refused=(*receipt.refused, *receipt.moved),
        receipt=receipt,
    )


def _event(verb: str) -> Event:
    if verb not in VERBS:
        raise UsageRefused(f"'{verb}' is not one of {', '.join(sorted(VERBS))}")
    return Event(verb)
