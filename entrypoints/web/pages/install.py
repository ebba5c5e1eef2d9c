"""Installs the pages in the web application."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI, Response
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import Headers
from starlette.types import Scope

from entrypoints.web.context import WebContext
from entrypoints.web.middleware import CONTENT_SECURITY_POLICY
from entrypoints.web.pages import (
    acting,
    board,
    collections,
    deposits,
    documentation,
    fleet,
    lists,
    login,
    notifications,
    one,
    stored_object,
)
from entrypoints.web.pages.streaming import LivePages
from entrypoints.web.pages.templating import STATIC
from entrypoints.web.pages.whole import WholeFleet

WITH_WEBASSEMBLY = CONTENT_SECURITY_POLICY.replace(
    "script-src 'self'", "script-src 'self' 'wasm-unsafe-eval'"
)

PAGES = (
    board,
    lists,
    collections,
    one,
    stored_object,
    deposits,
    fleet,
    acting,
    notifications,
    documentation,
    login,
)


_HOST = re.compile(r"[\w.:\[\]-]+", re.ASCII)


def of_pdf_frame(host: str) -> dict[str, str]:
    """The headers of the frame that shows a PDF, which has no session and reaches these files alone.

    The frame has no origin. So its files come from another origin, and in Safari `'self'` matches none.
    """
    own = f"'self' http://{host} https://{host}" if _HOST.fullmatch(host) else "'self'"
    return {
        "Content-Security-Policy": f"sandbox allow-scripts; default-src 'none'; "
        f"script-src {own} 'wasm-unsafe-eval'; worker-src blob:; style-src {own}; connect-src {own}; "
        "img-src blob:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
        "Access-Control-Allow-Origin": "*",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }


class _Modules(StaticFiles):
    """Scripts that name each other without a version, so that browsers ask whether they are current."""

    def __init__(self, name: str, headers: Callable[[str], Mapping[str, str]]) -> None:
        """`headers`: returns the headers of an answer; its argument is the Host header of the request."""
        super().__init__(directory=STATIC / name)
        self._headers = headers

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        host = Headers(scope=scope).get("host", "")
        response.headers.update({"Cache-Control": "no-cache", **self._headers(host)})
        return response


def install(app: FastAPI, web: WebContext, flower: str = "") -> None:
    """Add the pages; `flower`: the address of Flower, for a link."""
    app.state.flower = flower
    app.state.whole = WholeFleet(web)
    deposit = {"Content-Security-Policy": WITH_WEBASSEMBLY}  # its worker computes digests
    app.mount("/static/deposit", _Modules("deposit", lambda _: deposit), name="deposit scripts")
    app.mount("/static/pdf", _Modules("pdf", of_pdf_frame), name="pdf frame")
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    for module in PAGES:
        app.router.routes.extend(module.router.routes)
    if web.login is not None:  # a mistake in its settings stops the start, not the first login
        app.include_router(web.login.router)


@asynccontextmanager
async def live_pages(app: FastAPI) -> AsyncIterator[None]:
    """Serve the streams of open pages while the application runs."""
    app.state.live = LivePages(app.state.context)
    await app.state.live.start(app.state.whole)
    try:
        yield
    finally:
        app.state.whole.close()
        await app.state.live.stop()
