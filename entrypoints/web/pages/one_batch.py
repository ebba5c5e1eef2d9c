"""The page of one batch, and its report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from entrypoints.web.context import WebContext, context_of, site_of
from entrypoints.web.pages import acts, ribbon
from entrypoints.web.pages.explanations import explain, explained, holders
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import page
from entrypoints.web.pages.whole import WholeFleet, whole_of
from entrypoints.web.slow_work import slow
from operations.board.values import EVERYTHING, JobSearch
from operations.jobs.allowed_verbs import allowed_verbs
from operations.jobs.batch_view import BatchView, batch_view_of
from operations.jobs.job_view import steps_of
from operations.jobs.reports import report
from operations.visibility import visible_batch
from pipeline.errors import Action
from pipeline.inventory.archive import ArchivedBatch
from pipeline.notify import report_mail
from pipeline.principal import Principal
from pipeline.records import Batch
from pipeline.states import JOB, FailureKind, JobState
from zkstate.errors import Corrupt, Missing
from zkstate.record import jobs

router = page_router()

DRAWN = 20
"""Jobs of a batch whose history is drawn; the list of its jobs has the others."""


@dataclass(frozen=True)
class DrawnJob:
    jid: str
    name: str
    state: JobState
    remark: str
    ribbon: ribbon.Ribbon


@router.get("/batches/{bid}")
@slow("record_work")
def batch(request: Request, caller: PageCaller, bid: str) -> HTMLResponse:
    web = context_of(request)
    return page(request, "batch.html", caller=caller, **values(web, whole_of(request), caller, bid))


@router.get("/batches/{bid}/report")
@slow("record_work")
def batch_report(request: Request, caller: PageCaller, bid: str) -> HTMLResponse:
    composed = report(site_of(request), caller, bid)
    return page(
        request,
        "report.html",
        caller=caller,
        report=composed,
        headline=report_mail.headline(composed),
        facts=report_mail.facts(composed),
        sections=tuple(report_mail.sections(composed)),
    )


@router.get("/batches/{bid}/report.csv")
@slow("record_work")
def batch_report_csv(request: Request, caller: PageCaller, bid: str) -> Response:
    disposition = {"Content-Disposition": f'attachment; filename="{bid}.csv"'}
    content = report_mail.as_csv(report(site_of(request), caller, bid))
    return Response(content, media_type="text/csv", headers=disposition)


def values(web: WebContext, whole: WholeFleet, caller: Principal, bid: str) -> dict[str, Any]:
    """What `batch_live.html` shows."""
    record = visible_batch(web.site, caller, bid)
    view = batch_view_of(web.site, record)
    facts = explain(web, whole, caller, record)
    answer = explained(facts, view.version)
    return {
        "batch": view,
        "name": facts.name,
        "ribbon": ribbon.of_counts(view.jobs),
        "rows": tuple(_drawn(web, view)),
        "verbs": acts.without(_verbs(record, view), answer["remedies"]),
        "again": bid if any(job.kind is FailureKind.CONTENT for job in view.failed_jobs) else "",
        "holders": holders(web, caller, facts),
        **answer,
    }


def _drawn(web: WebContext, view: BatchView) -> Iterator[DrawnJob]:
    """The first jobs with their histories; a job that leaves meanwhile is left out."""
    if view.archived:
        return
    for row in web.board.jobs(EVERYTHING, JobSearch(bid=view.bid), DRAWN).rows:
        try:
            job = jobs.load(web.session, row.jid)
        except (Missing, Corrupt):
            continue
        status, given = job.status, job.configuration
        drawn = ribbon.of_history(steps_of(job), JOB.facts[status.status].ended)
        yield DrawnJob(row.jid, given.name, status.status, status.remark, drawn)


def _verbs(record: Batch | ArchivedBatch, view: BatchView) -> tuple[acts.Button, ...]:
    if not isinstance(record, Batch):
        return ()
    buttons = acts.of_verbs(
        (verb for verb in allowed_verbs(record) if verb != "fail"), view.bid, view.version
    )
    if not view.ended:
        buttons += (acts.Button(acts.ACTS[Action.CANCEL], view.bid),)
    if view.jobs.get(JobState.FAILED):
        buttons += (acts.Button(acts.ACTS[Action.RESUME_BATCH], view.bid),)
    return buttons
