"""The web application: routers, middleware and error handling."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_fields_from_routes
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from entrypoints.web import problems
from entrypoints.web.context import WebContext
from entrypoints.web.document import with_examples, with_links, with_problems
from entrypoints.web.meanings import with_meanings
from entrypoints.web.middleware import Requests, read_hosts, receiving
from entrypoints.web.routes import (
    about,
    batches,
    board,
    deposits,
    drafts,
    fleet,
    jobs,
    login,
    notifications,
    objects,
    retrieval,
    tokens,
    verbs,
)
from pipeline import plugins

ROUTERS: tuple[APIRouter, ...] = (
    about.health_router,
    about.router,
    board.router,
    board.events_router,
    deposits.router,
    drafts.router,
    batches.router,
    jobs.router,
    verbs.router,
    verbs.callbacks_router,
    retrieval.router,
    objects.router,
    fleet.router,
    fleet.maintenance_router,
    notifications.router,
    tokens.router,
    login.router,
    about.metrics_router,
)
"""The routers of the core API."""

API_VERSION = "1"
"""The version of the API, not of arkline."""

DESCRIPTION = """\
The REST API of arkline: deposit, follow, and operate the ingest queue.

Send a token in `Authorization: Bearer TOKEN`. Errors are `application/problem+json` (RFC 9457) with a stable
`code`. A token that sends too many requests, and an address that sends too many wrong tokens, is answered 429
with `Retry-After`. Lists have an opaque cursor and a `Link` header with `rel="next"`.
"""


def routers() -> tuple[APIRouter, ...]:
    """The routers of the API, including those that plugins add to the group `arkline.routes`."""
    return (*ROUTERS, *plugins.load_all(plugins.ROUTES))


class Api(FastAPI):
    """An application whose OpenAPI document has problems, links, examples, and meanings of fields."""

    def build_middleware_stack(self) -> ASGIApp:
        """Wrap the whole stack: the framework answers unexpected errors outside `add_middleware`."""
        state = self.state
        return Requests(super().build_middleware_stack(), state.context, state.hosts, state.receiving)

    @cached_property
    def document(self) -> dict[str, Any]:
        kinds = [field.field_info.annotation for field in get_fields_from_routes(self.routes)]
        return with_meanings(with_examples(with_links(with_problems(super().openapi()))), kinds)

    @cached_property
    def written(self) -> bytes:
        return to_json(self.document)

    def openapi(self) -> dict[str, Any]:
        return self.document


def _document_route(app: Api) -> Callable[[Request], Awaitable[Response]]:
    """The document: to build it takes a second, in which the event loop would answer nobody."""
    guard = asyncio.Lock()  # who waits for it takes no thread

    async def document(_: Request) -> Response:
        async with guard:
            written = await run_in_threadpool(lambda: app.written)
        return Response(written, media_type="application/json")

    return document


def create_app(
    context: WebContext | None, flower: str = "", hosts: str = "", *, pages: bool = True
) -> FastAPI:
    """The application of one process; without a context, only for its document; without pages, only the API.

    `flower`: the address of Flower, for the link on the pages. `hosts`: this server's names, comma-separated;
    empty: a request may name any host.
    """
    lifespan = None
    if context is not None and pages:
        from entrypoints.web.pages import install  # imported here: API-only commands skip the pages

        lifespan = install.live_pages
    app = Api(
        title="arkline",
        version=API_VERSION,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        lifespan=lifespan,
        responses=problems.RESPONSES,
    )
    app.state.context, app.state.hosts = context, read_hosts(hosts)
    app.add_route(about.DOCUMENT, _document_route(app), include_in_schema=False)
    problems.install(app)
    served = routers()
    app.state.links = about.links_of(served)
    for router in served:
        if router in ROUTERS:
            app.router.routes.extend(router.routes)  # to include a router describes its routes once more
        else:
            app.include_router(router)
    if context is not None and pages:
        install.install(app, context, flower)
        served += tuple(module.router for module in install.PAGES)
    app.state.receiving = receiving(served)
    return app
