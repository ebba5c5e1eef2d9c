"""The page of one job. It reads ZooKeeper itself, because its buttons act on what it shows."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from entrypoints.web.context import WebContext, context_of
from entrypoints.web.pages import acts, ribbon
from entrypoints.web.pages.explanations import explain, explained, holders
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import page
from entrypoints.web.pages.whole import WholeFleet, whole_of
from entrypoints.web.slow_work import slow
from operations.jobs.job_view import job_view_of, steps_of
from operations.visibility import visible_job
from pipeline.principal import Principal
from pipeline.records import age
from pipeline.states import JOB, FailureKind, JobState

router = page_router()


@router.get("/jobs/{jid}")
@slow("record_work")
def job(request: Request, caller: PageCaller, jid: str) -> HTMLResponse:
    web = context_of(request)
    return page(request, "job.html", caller=caller, **values(web, whole_of(request), caller, jid))


def values(web: WebContext, whole: WholeFleet, caller: Principal, jid: str) -> dict[str, Any]:
    """What `job_live.html` shows."""
    record = visible_job(web.site, caller, jid)
    view, steps = job_view_of(web.site, caller, record), steps_of(record)
    facts = explain(web, whole, caller, record)
    answer = explained(facts, view.version)
    usual = web.board.usual().get(view.state)
    return {
        "job": view,
        "payload_url": view.payload_url,
        "again": view.bid if view.kind is FailureKind.CONTENT and view.state is JobState.FAILED else "",
        "usual": usual if usual is not None and age(view.since) > usual else None,
        "steps": steps,
        "ribbon": ribbon.of_history(steps, JOB.facts[view.state].ended),
        "verbs": acts.without(acts.of_verbs(view.verbs, jid, view.version), answer["remedies"]),
        "holders": holders(web, caller, facts),
        **answer,
    }
