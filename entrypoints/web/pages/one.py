"""The pages of one job, one batch and one stored object.

The pages of a job and a batch say why it is where it is and what helps; they read ZooKeeper, because their
buttons act on what they show. The page of an object has its versions, files and proof of custody. A worker
repeats the proof on request, for any version and size, and the page follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from entrypoints.render.explanation import paragraph
from entrypoints.web.context import WebContext, context_of, site_of
from entrypoints.web.limits import slow
from entrypoints.web.pages import acts, drawings
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.streaming import View, streaming
from entrypoints.web.pages.templating import page, render, rights
from entrypoints.web.pages.whole import WholeFleet, whole_of
from operations.board.values import Change, JobSearch, scope_of
from operations.explanation import Explanation
from operations.fleet.fleet import Answers, Fleet
from operations.jobs.allowed_verbs import allowed_verbs
from operations.jobs.batch_view import BatchView, batch_view_of, report
from operations.jobs.deposited_objects import Known, page_of, read_objects
from operations.jobs.job_view import for_people, job_view_of, steps_of
from operations.objects.search import QUERY_LIMIT, SEARCHED, find_objects
from operations.reasons import Reason
from operations.visibility import sees_fleet, visible_batch, visible_job
from operations.why.why import why_loaded
from pipeline.checks import CODE_LIMIT, CheckVerdict
from pipeline.errors import Action
from pipeline.humanize import counted
from pipeline.inventory.archive import ArchivedBatch, ArchivedJob
from pipeline.inventory.search.by_findings import FindingSearch
from pipeline.notify import report_mail
from pipeline.principal import Principal, Role
from pipeline.records import Batch, Job, age
from pipeline.states import JOB, Event, FailureKind, JobState
from pipeline.working_storage.capacity import in_units
from tasks.broker import last_task
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
    """Why the job or batch is where it is, without other people's jobs; queries no workers and no Redis."""
    now = whole.get()
    fleet = now.fleet if now else Fleet(web.site, Answers(None, None))
    return why_loaded(fleet, caller, record)


def explained(facts: Explanation, version: int | None) -> dict[str, Any]:
    """The values of `explanation.html`; `version`: of the explained job's or batch's status."""
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
"""Maximum number of jobs listed on a page."""

_OF_A_SHARE = frozenset({Reason.COLLECTION_AT_QUOTA, Reason.SHARE_TAKEN})


@dataclass(frozen=True)
class Holder:
    """A job that uses part of what another job waits for; `stop` is None if it cannot be stopped now."""

    jid: str
    has: str
    state: JobState
    since: datetime
    stop: acts.Button | None


def holders(web: WebContext, caller: Principal, facts: Explanation) -> tuple[Holder, ...]:
    """The first NAMED holders, without those that have ended since."""
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
    return page(request, "job.html", **job_values(request, caller, jid))


def job_values(request: Request, caller: Principal, jid: str) -> dict[str, Any]:
    """The values of `job_live.html`."""
    web, whole, flower = context_of(request), whole_of(request), request.app.state.flower
    record = visible_job(web.site, caller, jid)
    view, steps = job_view_of(web.site, caller, record), steps_of(record)
    facts = explain(web, whole, caller, record)
    answer = explained(facts, view.version)
    usual = web.board.usual().get(view.state)
    task = last_task(record) if flower and isinstance(record, Job) else ""
    return {
        "job": view,
        "payload_url": view.payload_url,
        "again": view.bid if view.kind is FailureKind.CONTENT and view.state is JobState.FAILED else "",
        "usual": usual if usual is not None and age(view.since) > usual else None,
        "steps": for_people(steps),
        "ribbon": drawings.of_history(steps, JOB.facts[view.state].ended),
        "verbs": acts.without(acts.of_verbs(view.verbs, jid, view.version), answer["remedies"]),
        "holders": holders(web, caller, facts),
        "task_url": f"{flower.rstrip('/')}/task/{task}" if task else "",
        **answer,
    }


ROWS = 50
"""Objects of a page."""

DRAWN = 20
"""Maximum number of a batch's jobs drawn with their history; the list of its jobs has the rest."""

After = Annotated[str, Query(pattern=r"^(jid[0-9]{10,20})?$", description="Objects of later jobs only.")]


@dataclass(frozen=True)
class DrawnJob:
    jid: str
    name: str
    state: JobState
    ribbon: drawings.Ribbon


@router.get("/batches/{bid}")
@slow("record_work")
def batch(request: Request, caller: PageCaller, bid: str, after: After = "") -> HTMLResponse:
    web = context_of(request)
    return page(request, "batch.html", **batch_values(web, whole_of(request), caller, bid, after))


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


def batch_values(
    web: WebContext, whole: WholeFleet, caller: Principal, bid: str, after: str = ""
) -> dict[str, Any]:
    """The values of `batch_live.html`, with the objects of the jobs after this one."""
    record = visible_batch(web.site, caller, bid)
    view = web.timed(batch_view_of(web.site, record))
    known = read_objects(web.site, record, ROWS, after)
    facts = explain(web, whole, caller, record)
    answer = explained(facts, view.version)
    return {
        "batch": view,
        "after": after,
        "objects": page_of(web.site, known, ROWS),
        "ribbon": drawings.of_counts(view.jobs),
        "rows": tuple(_drawn(known[:DRAWN])),
        "verbs": acts.without(_verbs(record, view), answer["remedies"]),
        "again": bid if any(job.kind is FailureKind.CONTENT for job in view.failed_jobs) else "",
        "holders": holders(web, caller, facts),
        **answer,
    }


def _drawn(known: Iterable[Known]) -> Iterator[DrawnJob]:
    """The jobs of the record with their histories."""
    for job in known:
        if isinstance(job, Job):
            state = job.status.status
            drawn = drawings.of_history(steps_of(job), JOB.facts[state].ended)
            yield DrawnJob(job.jid, job.configuration.name, state, drawn)


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
    web = context_of(request)
    await run_in_threadpool(visible_job, web.site, caller, jid)
    values = partial(job_values, request, caller, jid)
    return _followed(request, caller, "job_live.html", values, lambda change: change.subject == jid)


@router.get("/live/batches/{bid}")
async def live_batch(request: Request, caller: PageCaller, bid: str, after: After = "") -> Response:
    web = context_of(request)
    await run_in_threadpool(visible_batch, web.site, caller, bid)
    values = partial(batch_values, web, whole_of(request), caller, bid, after)

    def concerns(change: Change) -> bool:
        return bid in (change.subject, change.bid)

    return _followed(request, caller, "batch_live.html", values, concerns)


def _followed(
    request: Request,
    caller: Principal,
    template: str,
    values: Callable[[], dict[str, Any]],
    concerns: Callable[[Change], bool],
) -> Response:
    """The page's stream; callers with the same role and view of the fleet get the same bytes."""
    path = request.url.path.removeprefix("/live")
    shared = {**rights(caller), "here_url": path}

    def part() -> str:
        return render(template, **values(), **shared)

    view = View((path, request.url.query, str(caller.role), str(sees_fleet(caller))), part, concerns)
    return streaming(request, caller, view)


@router.get("/objects")
@slow("record_work")
def find_object(
    request: Request,
    caller: PageCaller,
    q: str = "",
    ark: str = "",
    after: Annotated[int, Query(ge=0, lt=10**18)] = 0,
) -> Response:
    """Objects by a text, and by what checks found in them; to the object of an ARK, if `ark` is given."""
    if ark:
        return RedirectResponse(f"/objects/{quote(ark.strip())}", status_code=303)
    query = request.query_params
    search = FindingSearch(
        code=query.get("code", "").strip()[:CODE_LIMIT] or None,
        verdict=next((one for one in CheckVerdict if one == query.get("verdict")), None),
        check=query.get("check", "").strip()[:CODE_LIMIT] or None,
        outdated=query.get("outdated") == "true",
    )
    text = q.strip()[:QUERY_LIMIT]
    return page(
        request,
        "objects.html",
        search=search,
        text=text,
        searched=SEARCHED,
        verdicts=tuple(CheckVerdict),
        conditions=search != FindingSearch(),
        page=find_objects(site_of(request), caller, search, ROWS, after, text),
    )
