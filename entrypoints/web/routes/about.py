"""What the server says of itself: links, the caller's rights, error codes, health and metrics.

The probes of `/health/` need neither a token nor a thread. The metrics need a token: a scrape from loopback
may come through a reverse proxy.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import version
from typing import Literal

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import Caller, FleetCaller
from entrypoints.web.context import context_of
from entrypoints.web.limits import slow
from entrypoints.web.metrics import CONTENT_TYPE, exposition
from pipeline.codes import CODES
from pipeline.principal import Interface, Role
from pipeline.records import Record

router = api_router("/v1", "about")


class WhoAmI(Record):
    name: str
    role: Role
    collections: frozenset[str] | None
    """None: all collections."""
    interface: Interface
    roles: tuple[Role, ...]
    """The caller's role and those that it includes."""
    expires: datetime | None = None
    """When the rights end; null if that is not known."""


class About(Record):
    version: str
    caller: WhoAmI
    links: dict[str, str]


DOCUMENT = "/openapi.json"
"""The path of the OpenAPI document."""


def links_of(routers: Iterable[APIRouter]) -> dict[str, str]:
    """The paths that can be read without a parameter in the path, by name.

    From the routes: to build the OpenAPI document takes a second, in which the process answers nobody.
    """
    routes = (route for served in routers for route in served.routes if isinstance(route, APIRoute))
    readable = (route.path for route in routes if route.include_in_schema and "GET" in (route.methods or ()))
    paths = sorted(path for path in readable if re.fullmatch("/v1/[^{]+", path))
    return {**{path.removeprefix("/v1/"): path for path in paths}, "openapi": DOCUMENT}


@router.get("", summary="Links, version, and the rights of the caller")
def about(request: Request, caller: Caller) -> About:
    return About(
        version=version("arkline"),
        caller=WhoAmI(
            name=caller.name,
            role=caller.role,
            collections=caller.collections,
            interface=caller.interface,
            expires=caller.expires,
            roles=tuple(role for role in Role if caller.role.includes(role)),
        ),
        links=request.app.state.links,
    )


class ErrorCode(Record):
    code: str
    status: int
    meaning: str


def all_codes() -> dict[str, ErrorCode]:
    return {
        code.name: ErrorCode(code=code.name, status=code.status, meaning=code.meaning)
        for code in CODES.values()
        if code.status
    }


@router.get("/errors", summary="Every code of a problem")
def list_codes() -> list[ErrorCode]:
    return list(all_codes().values())


@router.get("/errors/{code}", summary="One code of a problem")
def show_code(code: str) -> ErrorCode:
    try:
        return all_codes()[code]
    except KeyError as error:
        raise HTTPException(404, f"there is no error code {code}") from error


health_router = api_router("/health", "health")


class Live(Record):
    live: bool


class Ready(Record):
    ready: bool
    zookeeper: Literal["connected", "away"]


@health_router.get("/live", summary="Whether the process should run on", responses={503: {"model": Live}})
async def live(request: Request, response: Response) -> Live:
    """503 once only a restart helps: ZooKeeper has an older record than this process has read."""
    usable = context_of(request).session.usable
    response.status_code = 200 if usable else 503
    return Live(live=usable)


@health_router.get("/ready", summary="Whether requests can be served", responses={503: {"model": Ready}})
async def ready(request: Request, response: Response) -> Ready:
    connected = context_of(request).session.connected
    response.status_code = 200 if connected else 503
    return Ready(ready=connected, zookeeper="connected" if connected else "away")


metrics_router = api_router("", "fleet")


class Exposition(Response):
    media_type = CONTENT_TYPE


@metrics_router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Exposition,
    responses={200: {"content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}},
)
@slow("fleet_work")
def metrics(request: Request, caller: FleetCaller) -> Response:
    """For those who see every collection; not for depositors."""
    context = context_of(request)
    return Exposition(exposition(context.metrics) + context.requests.exposition())
