"""Installs the pages in the web application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Response
from fastapi.staticfiles import StaticFiles

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


OF_PDF_FRAME = {
    "Content-Security-Policy": "sandbox allow-scripts; default-src 'none'; "
    "script-src 'self' 'wasm-unsafe-eval'; worker-src blob:; style-src 'self'; connect-src 'self'; "
    "img-src blob:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    # the frame has no origin, so that what it loads comes from another one
    "Access-Control-Allow-Origin": "*",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
"""The frame that shows a PDF has no session and no page around it, and reaches these files alone."""


class _Modules(StaticFiles):
    """Scripts that name each other without a version, so that browsers ask whether they are current."""

    def __init__(self, name: str, headers: Mapping[str, str]) -> None:
        super().__init__(directory=STATIC / name)
        self._headers = headers

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update({"Cache-Control": "no-cache", **self._headers})
        return response


def install(app: FastAPI, web: WebContext, flower: str = "") -> None:
    """Add the pages; `flower`: the address of Flower, for a link."""
    app.state.flower = flower
    app.state.whole = WholeFleet(web)
    deposit = {"Content-Security-Policy": WITH_WEBASSEMBLY}  # of its worker
    app.mount("/static/deposit", _Modules("deposit", deposit), name="deposit scripts")
    app.mount("/static/pdf", _Modules("pdf", OF_PDF_FRAME), name="pdf frame")
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    for module in PAGES:
        app.include_router(module.router)
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
