"""One batch: its state, why it is where it is, its history and its report."""

from enum import StrEnum
from typing import Annotated

from fastapi import Query, Request, Response

from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import Caller
from entrypoints.web.context import context_of, site_of
from entrypoints.web.limits import slow
from entrypoints.web.parameters import LIMIT, Bid, Cursor, Limit, decode_cursor, linked, respond
from operations.board.values import JobPage, JobSearch, scope_of
from operations.explanation import Explanation
from operations.jobs import batch_view, job_view
from operations.jobs.batch_view import BatchView
from operations.jobs.deposited_objects import ObjectPage, objects_of
from operations.verbs import holds
from operations.verbs.holds import BatchHistory
from operations.visibility import visible_batch
from operations.why.why import why
from pipeline.notify import report_mail
from pipeline.notify.batch_report import BatchReport

router = api_router("/v1/batches/{bid}", "batches")


class ReportForm(StrEnum):
    JSON = "json"
    HTML = "html"
    CSV = "csv"
    TEXT = "text"
    SENT = "sent"
    """The reports of an archived batch as mailed."""


@router.get("", summary="One batch", response_model=BatchView, responses={304: {"description": "Unchanged."}})
@slow("record_work")
def show_batch(request: Request, caller: Caller, bid: Bid) -> Response:
    view = context_of(request).timed(batch_view.batch_view(site_of(request), caller, bid))
    return respond(request, view, view.version)


@router.get("/jobs", summary="The jobs of the batch, in their order")
def jobs_of_batch(
    request: Request,
    response: Response,
    caller: Caller,
    bid: Bid,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> JobPage:
    """Of a batch in ZooKeeper; the report has the objects of an archived batch."""
    context = context_of(request)
    visible_batch(context.site, caller, bid)
    search = JobSearch(bid=bid)
    page = job_view.rows(
        context.session, context.board, scope_of(caller), search, limit, decode_cursor(cursor)
    )
    return linked(request, response, page)


@router.get("/objects", summary="The objects of the batch: title, ARK, and what became of each")
@slow("record_work")
def objects_of_batch(
    request: Request,
    response: Response,
    caller: Caller,
    bid: Bid,
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> ObjectPage:
    """Of a batch in ZooKeeper or in the archive."""
    site = site_of(request)
    batch = visible_batch(site, caller, bid)
    return linked(request, response, objects_of(site, batch, limit, decode_cursor(cursor)))


@router.get("/why", summary="Why the batch is where it is")
@slow("fleet_work")
def why_batch(request: Request, caller: Caller, bid: Bid) -> Explanation:
    return why(site_of(request), caller, bid)


@router.get("/history", summary="The moves of the batch, and who renewed its profile")
def history(request: Request, caller: Caller, bid: Bid) -> BatchHistory:
    """Of a batch in ZooKeeper."""
    return holds.batch_history(site_of(request), caller, bid)


@router.get(
    "/report",
    summary="The report: each object with its ARK, or why it failed and what to do",
    response_model=BatchReport,
    responses={200: {"content": {"text/html": {}, "text/csv": {}, "text/plain": {}}}},
)
@slow("record_work")
def report(
    request: Request,
    caller: Caller,
    bid: Bid,
    form: Annotated[ReportForm | None, Query(description="Instead of the header `Accept`.")] = None,
) -> Response:
    site, asked = site_of(request), form or _accepted(request)
    if asked is ReportForm.SENT:
        sent = "\n".join(batch_view.sent_texts(site, caller, bid))
        return Response(sent, media_type="text/plain; charset=utf-8")
    view = batch_view.report(site, caller, bid)
    match asked:
        case ReportForm.TEXT:
            return Response(report_mail.as_text(view), media_type="text/plain; charset=utf-8")
        case ReportForm.HTML:
            return Response(report_mail.as_html(view), media_type="text/html; charset=utf-8")
        case ReportForm.CSV:
            name = f'attachment; filename="{bid}.csv"'
            return Response(
                report_mail.as_csv(view),
                media_type="text/csv; charset=utf-8",
                headers={"Content-Disposition": name},
            )
        case ReportForm.JSON:
            return Response(view.model_dump_json(), media_type="application/json")


def _accepted(request: Request) -> ReportForm:
    accept = request.headers.get("accept", "")
    for form, media_type in ((ReportForm.CSV, "text/csv"), (ReportForm.HTML, "text/html")):
        if media_type in accept:
            return form
    return ReportForm.JSON
