"""Lists and counts of what the caller may see, and server-sent events of their changes."""

from enum import StrEnum
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Header, Query, Request, Response
from starlette.responses import StreamingResponse

from entrypoints.render import collection_figures
from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import Caller, check_again
from entrypoints.web.context import context_of, site_of
from entrypoints.web.limits import slow
from entrypoints.web.parameters import (
    LIMIT,
    Bid,
    Collection,
    Cursor,
    Jid,
    Limit,
    batch_search,
    decode_cursor,
    job_search,
    linked,
)
from entrypoints.web.streams import stream
from operations.board.board import collection_counts
from operations.board.throughput import last_hours
from operations.board.values import (
    BatchPage,
    BatchSearch,
    BoardView,
    Change,
    CollectionCounts,
    FailureGroup,
    JobPage,
    JobSearch,
    Stops,
    scope_of,
)
from operations.collection_report import CollectionReport, collection_report
from operations.jobs import job_view
from operations.known import require_names
from operations.visibility import visible_batch, visible_job
from pipeline.principal import Principal

STALE = "Arkline-Stale"
"""As of when an answer from memory is true; absent while it is current."""


def stated(request: Request, response: Response) -> None:
    """Say in a header of the answer that the board is stale: not every answer has a field for it."""
    if (freshness := context_of(request).board.freshness()).stale:
        response.headers[STALE] = freshness.as_of.isoformat()


router = api_router("/v1", "lists", Depends(stated))


@router.get("/board", summary="Counts and oldest job by state, what is stopped, and the last 24 hours")
def board(request: Request, caller: Caller) -> BoardView:
    context, scope = context_of(request), scope_of(caller)
    board, reading = context.board, context.throughput()
    return BoardView(
        freshness=board.freshness(),
        jobs=board.counts(scope),
        oldest=board.oldest(scope),
        stops=board.stops(scope),
        hours=last_hours(reading, board, scope),
        stored_as_of=reading.stored_as_of if reading else None,
    )


@router.get("/jobs", summary="Jobs")
def list_jobs(
    request: Request,
    response: Response,
    caller: Caller,
    search: Annotated[JobSearch, Depends(job_search)],
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> JobPage:
    """Jobs of a batch come in their order, jobs of a state in the queue's order, others newest first."""
    context = context_of(request)
    page = job_view.rows(
        context.session, context.board, scope_of(caller), search, limit, decode_cursor(cursor)
    )
    require_names(context.site, caller, context.board, search, page)
    return linked(request, response, page)


@router.get("/batches", summary="Batches, newest first")
def list_batches(
    request: Request,
    response: Response,
    caller: Caller,
    search: Annotated[BatchSearch, Depends(batch_search)],
    limit: Limit = LIMIT,
    cursor: Cursor = None,
) -> BatchPage:
    context = context_of(request)
    page = context.board.batches(scope_of(caller), search, limit, decode_cursor(cursor))
    return linked(request, response, context.with_time_left(page))


@router.get("/failures", summary="Failures by cause, the most frequent first")
def failures(request: Request, caller: Caller) -> tuple[FailureGroup, ...]:
    """The 500 most frequent causes. `owner` says who has to act: the depositor, the operator, or nobody
    before a retry."""
    return context_of(request).board.failures(scope_of(caller))


@router.get("/collections", summary="Collections with their jobs and batches")
def collections(request: Request, caller: Caller) -> tuple[CollectionCounts, ...]:
    return context_of(request).board.collections(scope_of(caller))


@router.get("/collections/{name}", summary="One collection with its jobs and batches")
def collection(request: Request, caller: Caller, name: Collection) -> CollectionCounts:
    """The collection's entry of the list; no job, no batch: empty counts. 404 if you have no right to it."""
    context = context_of(request)
    return collection_counts(context.board, context.site.profiles, caller, name)


class CollectionForm(StrEnum):
    JSON = "json"
    CSV = "csv"


@router.get(
    "/collections/{name}/report",
    summary="What the collection stores, its growth, quota, failures, deposits and fixity",
    response_model=CollectionReport,
    responses={200: {"content": {"text/csv": {}}}},
)
@slow("record_work")
def report_of_collection(
    request: Request,
    caller: Caller,
    name: Collection,
    form: Annotated[CollectionForm | None, Query(description="Instead of the header `Accept`.")] = None,
) -> Response:
    """Counts are of the whole collection; failures and deposits are those that you may see. What you may not
    see is null. 404 if you have no right to the collection."""
    context = context_of(request)
    report = collection_report(context.site, context.board, caller, name)
    as_csv = form is CollectionForm.CSV or (form is None and "text/csv" in request.headers.get("accept", ""))
    if not as_csv:
        return Response(report.model_dump_json(), media_type="application/json")
    return Response(
        collection_figures.as_csv(report),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}.csv"},
    )


@router.get("/stops", summary="The pause of the queue and the holds of collections")
def stops(request: Request, caller: Caller) -> Stops:
    return context_of(request).board.stops(scope_of(caller))


events_router = api_router("/v1", "events")

LastEventId = Annotated[
    str | None, Header(max_length=100, description="Continue after this event; browsers send it themselves.")
]
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "Events until the caller leaves."}
}
GENERAL = ("stops", "freshness")
_streamed = partial(events_router.get, response_class=StreamingResponse, responses=EVENTS)


def _stream(request: Request, caller: Principal, last: str | None, subject: str = "") -> StreamingResponse:
    """A stream of all changes; or those of a subject (a job, or a batch with its jobs) and GENERAL ones."""
    context, check = context_of(request), partial(check_again, request, caller)

    def admits(change: Change) -> bool:
        return not subject or change.kind in GENERAL or subject in (change.bid, change.subject)

    return stream(context.streams, context.board, caller, check, last, admits)


@_streamed("/events", summary="Changes of what the caller may see")
def events(request: Request, caller: Caller, last_event_id: LastEventId = None) -> StreamingResponse:
    """Events `job`, `batch`, `stops` and `freshness`; `reset`: read the lists again; `unauthorized`: the
    token, the login or its rights have ended, and the stream with them."""
    return _stream(request, caller, last_event_id)


@_streamed("/batches/{bid}/events", summary="Changes of one batch and its jobs")
def events_of_batch(
    request: Request, caller: Caller, bid: Bid, last_event_id: LastEventId = None
) -> StreamingResponse:
    visible_batch(site_of(request), caller, bid)
    return _stream(request, caller, last_event_id, bid)


@_streamed("/jobs/{jid}/events", summary="Changes of one job")
def events_of_job(
    request: Request, caller: Caller, jid: Jid, last_event_id: LastEventId = None
) -> StreamingResponse:
    visible_job(site_of(request), caller, jid)
    return _stream(request, caller, last_event_id, jid)
