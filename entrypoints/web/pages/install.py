"""Installs the pages in the web application."""

from __future__ import annotations

from collections.abc import AsyncIterator
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
    device_login,
    documentation,
    fleet,
    lists,
    login,
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
    documentation,
    device_login,
    login,
)


class _DepositScripts(StaticFiles):
    """The modules of the deposit page, and its worker, whose own policy allows WebAssembly.

    They name each other without a version, so that browsers have to ask whether they are current.
    """

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Content-Security-Policy"] = WITH_WEBASSEMBLY
        return response


def install(app: FastAPI, web: WebContext, flower: str = "") -> None:
    """Add the pages; `flower`: the address of Flower, for a link."""
    app.state.flower = flower
    app.state.whole = WholeFleet(web)
    app.mount("/static/deposit", _DepositScripts(directory=STATIC / "deposit"), name="deposit scripts")
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
