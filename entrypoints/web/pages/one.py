"""The pages of one job and of one batch: why it is there, what helps, and the report.

They read ZooKeeper themselves, because their buttons act on what they show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, Response

from entrypoints.render.explanation import paragraph
from entrypoints.web.context import WebContext, context_of, site_of
from entrypoints.web.limits import slow
from entrypoints.web.pages import acts, drawings
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.streaming import View, streaming
from entrypoints.web.pages.templating import page, render, rights
from entrypoints.web.pages.whole import WholeFleet, whole_of
from operations.board.values import EVERYTHING, JobSearch, scope_of
from operations.explanation import Explanation
from operations.fleet.fleet import Answers, Fleet
from operations.jobs.allowed_verbs import allowed_verbs
from operations.jobs.batch_view import BatchView, batch_view_of, report
from operations.jobs.job_view import job_view_of, steps_of
from operations.reasons import Reason
from operations.visibility import sees_fleet, visible_batch, visible_job
from operations.why.why import why_loaded
from pipeline.errors import Action
from pipeline.humanize import counted
from pipeline.inventory.archive import ArchivedBatch, ArchivedJob
from pipeline.notify import report_mail
from pipeline.principal import Principal, Role
from pipeline.records import Batch, Job, age
from pipeline.states import JOB, Event, FailureKind, JobState
from pipeline.working_storage.capacity import in_units
from zkstate.errors import Corrupt, Missing
from zkstate.record import jobs

_DONE = frozenset({Reason.COMPLETED, Reason.ARCHIVED})
_FAILED = frozenset(
    {Reason.FAILED_CONTENT, Reason.FAILED_SYSTEM, Reason.FAILED_TRANSIENT, Reason.JOBS_FAILED}
)


def explain(
    web: WebContext,
    whole: WholeFleet,
    caller: Principal,
    record: Job | Batch | ArchivedJob | ArchivedBatch,
) -> Explanation:
    """Why the job or the batch is where it is, without others' jobs; no page asks workers or Redis."""
    now = whole.get()
    fleet = now.fleet if now else Fleet(web.site, Answers(None, None))
    return why_loaded(fleet, caller, record)


def explained(facts: Explanation, version: int | None) -> dict[str, Any]:
    """The values of `explanation.html`; `version`: of the status of the explained job or batch."""
    alone = facts.model_copy(update={"remedies": ()})
    return {
        "paragraph": paragraph(alone),
        "remedies": () if facts.moves_itself else acts.of_remedies(facts.remedies, version),
        "afterwards": acts.of_remedies(facts.afterwards),
        "tone": _tone(facts),
    }


def _tone(facts: Explanation) -> str:
    if facts.reason in _DONE:
        return "good"
    if facts.reason in _FAILED:
        return "bad"
    return "" if facts.moves_itself else "warn"


NAMED = 5
"""Jobs that a page names."""

_OF_A_SHARE = frozenset({Reason.COLLECTION_AT_QUOTA, Reason.SHARE_TAKEN})


@dataclass(frozen=True)
class Holder:
    """A job that has a part of what another one waits for; `stop` None if it cannot be stopped now."""

    jid: str
    has: str
    state: JobState
    since: datetime
    stop: acts.Button | None


def holders(web: WebContext, caller: Principal, facts: Explanation) -> tuple[Holder, ...]:
    """The first NAMED of them; those that ended meanwhile are left out."""
    if caller.role is Role.DEPOSITOR:
        return ()
    waiting = facts.first or facts
    if waiting.reason in _OF_A_SHARE:
        shares = dict.fromkeys(_at_work(web, caller, waiting.profile), "a place")
    else:
        amount = in_units if waiting.reason is Reason.WAITING_FOR_SPACE else _connections
        shares = {name: amount(number) for name, number in waiting.users.items() if name.startswith("jid")}
    return tuple(_described(web, dict(list(shares.items())[:NAMED])))


def _at_work(web: WebContext, caller: Principal, collection: str) -> Iterator[str]:
    for state in JOB.working():
        if state is not JobState.PENDING:
            search = JobSearch(state=state, collection=collection)
            yield from (row.jid for row in web.board.jobs(scope_of(caller), search, NAMED).rows)


def _connections(number: int) -> str:
    return counted(number, "connection")


def _described(web: WebContext, shares: dict[str, str]) -> Iterator[Holder]:
    for jid, has in shares.items():
        try:
            job = jobs.load(web.session, jid)
        except (Missing, Corrupt):
            continue
        stop = acts.Button(acts.ACTS[Event.FAIL], jid, job.version)
        can_stop = Event.FAIL in allowed_verbs(job)
        yield Holder(jid, has, job.status.status, job.status.since, stop if can_stop else None)


router = page_router()


@router.get("/jobs/{jid}")
@slow("record_work")
def job(request: Request, caller: PageCaller, jid: str) -> HTMLResponse:
    web = context_of(request)
    return page(request, "job.html", **job_values(web, whole_of(request), caller, jid))


def job_values(web: WebContext, whole: WholeFleet, caller: Principal, jid: str) -> dict[str, Any]:
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
        "ribbon": drawings.of_history(steps, JOB.facts[view.state].ended),
        "verbs": acts.without(acts.of_verbs(view.verbs, jid, view.version), answer["remedies"]),
        "holders": holders(web, caller, facts),
        **answer,
    }


DRAWN = 20
"""Jobs of a batch whose history is drawn; the list of its jobs has the others."""


@dataclass(frozen=True)
class DrawnJob:
    jid: str
    name: str
    state: JobState
    remark: str
    ribbon: drawings.Ribbon


@router.get("/batches/{bid}")
@slow("record_work")
def batch(request: Request, caller: PageCaller, bid: str) -> HTMLResponse:
    web = context_of(request)
    return page(request, "batch.html", **batch_values(web, whole_of(request), caller, bid))


@router.get("/batches/{bid}/report")
@slow("record_work")
def batch_report(request: Request, caller: PageCaller, bid: str) -> HTMLResponse:
    composed = report(site_of(request), caller, bid)
    return page(
        request,
        "report.html",
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


def batch_values(web: WebContext, whole: WholeFleet, caller: Principal, bid: str) -> dict[str, Any]:
    """What `batch_live.html` shows."""
    record = visible_batch(web.site, caller, bid)
    view = batch_view_of(web.site, record)
    facts = explain(web, whole, caller, record)
    answer = explained(facts, view.version)
    return {
        "batch": view,
        "name": facts.name,
        "ribbon": drawings.of_counts(view.jobs),
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
        drawn = drawings.of_history(steps_of(job), JOB.facts[status.status].ended)
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


@router.get("/live/jobs/{jid}")
async def live_job(request: Request, caller: PageCaller, jid: str) -> Response:
    web, whole = context_of(request), whole_of(request)
    await run_in_threadpool(visible_job, web.site, caller, jid)

    def part() -> str:
        return render(
            "job_live.html",
            **job_values(web, whole, caller, jid),
            **_of(caller, f"/jobs/{jid}"),
        )

    return streaming(
        request,
        caller,
        View(
            ("job", jid, str(caller.role), str(sees_fleet(caller))),
            part,
            lambda change: change.subject == jid,
        ),
    )


@router.get("/live/batches/{bid}")
async def live_batch(request: Request, caller: PageCaller, bid: str) -> Response:
    web, whole = context_of(request), whole_of(request)
    await run_in_threadpool(visible_batch, web.site, caller, bid)

    def part() -> str:
        return render(
            "batch_live.html",
            **batch_values(web, whole, caller, bid),
            **_of(caller, f"/batches/{bid}"),
        )

    view = View(
        ("batch", bid, str(caller.role), str(sees_fleet(caller))),
        part,
        lambda change: bid in (change.subject, change.bid),
    )
    return streaming(request, caller, view)


def _of(caller: Principal, path: str) -> dict[str, object]:
    return {**rights(caller), "here_url": path}
