"""Server-sent events: the board, one batch, one job."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import StreamingResponse

from entrypoints.web.authentication import Caller, check_again
from entrypoints.web.context import context_of, site_of
from entrypoints.web.parameters import Bid, Jid
from entrypoints.web.streams import stream
from operations.board.values import Change
from operations.visibility import visible_batch, visible_job
from pipeline.principal import Principal

router = APIRouter(prefix="/v1", tags=["events"])

LastEventId = Annotated[
    str | None, Header(max_length=100, description="Continue after this event; browsers send it themselves.")
]
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "Events until the caller leaves."}
}
GENERAL = ("stops", "freshness")


def _stream(
    request: Request, caller: Principal, last: str | None, admits: Callable[[Change], bool] = lambda _: True
) -> StreamingResponse:
    context, check = context_of(request), partial(check_again, request, caller)
    return stream(context.streams, context.board, caller, check, last, admits)


@router.get(
    "/events",
    summary="Changes of what the caller may see",
    response_class=StreamingResponse,
    responses=EVENTS,
)
def events(request: Request, caller: Caller, last_event_id: LastEventId = None) -> StreamingResponse:
    """Events `job`, `batch`, `stops` and `freshness`; `reset`: read the lists again; `unauthorized`: the
    token, the login or its rights have ended, and the stream with them."""
    return _stream(request, caller, last_event_id)


@router.get(
    "/batches/{bid}/events",
    summary="Changes of one batch and its jobs",
    response_class=StreamingResponse,
    responses=EVENTS,
)
def events_of_batch(
    request: Request, caller: Caller, bid: Bid, last_event_id: LastEventId = None
) -> StreamingResponse:
    visible_batch(site_of(request), caller, bid)

    def admits(change: Change) -> bool:
        return change.kind in GENERAL or bid in (change.bid, change.subject)

    return _stream(request, caller, last_event_id, admits)


@router.get(
    "/jobs/{jid}/events",
    summary="Changes of one job",
    response_class=StreamingResponse,
    responses=EVENTS,
)
def events_of_job(
    request: Request, caller: Caller, jid: Jid, last_event_id: LastEventId = None
) -> StreamingResponse:
    visible_job(site_of(request), caller, jid)

    def admits(change: Change) -> bool:
        return change.kind in GENERAL or change.subject == jid

    return _stream(request, caller, last_event_id, admits)
