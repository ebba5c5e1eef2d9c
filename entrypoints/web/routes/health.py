"""Whether this process works, for load balancers and supervisors; without a token, and without a thread."""

from typing import Literal

from fastapi import APIRouter, Request, Response

from entrypoints.web.context import context_of
from pipeline.records import Record

router = APIRouter(prefix="/health", tags=["health"])


class Live(Record):
    live: bool


class Ready(Record):
    ready: bool
    zookeeper: Literal["connected", "away"]


@router.get("/live", summary="Whether the process should run on", responses={503: {"model": Live}})
async def live(request: Request, response: Response) -> Live:
    """503 once only a restart helps: ZooKeeper has an older record than this process has read."""
    usable = context_of(request).session.usable
    response.status_code = 200 if usable else 503
    return Live(live=usable)


@router.get("/ready", summary="Whether requests can be served", responses={503: {"model": Ready}})
async def ready(request: Request, response: Response) -> Ready:
    connected = context_of(request).session.connected
    response.status_code = 200 if connected else 503
    return Ready(ready=connected, zookeeper="connected" if connected else "away")
