"""Callbacks: those that are owed, a delivery now, and a test of a collection's receiver."""

from fastapi import APIRouter, Request, Response

from entrypoints.web.authentication import Caller, OperatorCaller
from entrypoints.web.context import site_of
from entrypoints.web.parameters import (
    LIMIT,
    NO_REASON,
    Collection,
    Cursor,
    Given,
    Jid,
    Limit,
    decode_cursor,
    linked,
)
from entrypoints.web.slow_work import slow
from operations.verbs import callbacks
from operations.verbs.callbacks import CallbackAnswer, OwedPage
from pipeline.principal import Role
from zkstate.errors import Missing

router = APIRouter(prefix="/v1", tags=["callbacks"])


@router.get("/callbacks", summary="The callbacks of failed jobs that were not delivered yet")
def list_callbacks(
    request: Request, response: Response, caller: Caller, limit: Limit = LIMIT, cursor: Cursor = None
) -> OwedPage:
    """A page may have fewer rows than `limit`: `next` says whether there are more."""
    page = callbacks.owed_page(site_of(request), caller, limit, decode_cursor(cursor))
    return linked(request, response, page)


@router.post("/callbacks/{jid}/deliver", summary="Deliver the callback of the job now")
@slow("slow_work")
def deliver(request: Request, caller: OperatorCaller, jid: Jid, body: Given = NO_REASON) -> CallbackAnswer:
    """One request to the receiver, whose answer is in `message`.

    Also of a job whose callback was delivered or given up; not of a job that left ZooKeeper.
    """
    return callbacks.deliver(site_of(request), caller, jid, reason=body.reason)


@router.post("/collections/{name}/test-callback", summary="Send a test callback to the collection's receiver")
@slow("slow_work")
def send_test(request: Request, caller: OperatorCaller, name: Collection) -> CallbackAnswer:
    """Signed as every callback is; its `jobStatus` is `TEST`. The receiver's answer is in `message`."""
    site = site_of(request)
    caller.require(Role.OPERATOR, f"send a test callback of {name}", name)
    if name not in site.profiles.names():
        raise Missing(f"there is no collection {name}")
    return callbacks.send_test(site, caller, name)
