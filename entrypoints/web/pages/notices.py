"""The result of an act, shown once at the top of the page that follows the redirect."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import RedirectResponse

from entrypoints.web.pages.kept import Kept

KEPT = 1000
"""Notices that are remembered; one that nobody fetched is forgotten."""


@dataclass(frozen=True)
class Notice:
    text: str
    tone: str = "good"


def notice_of(request: Request) -> Notice | None:
    notices: Kept[Notice] = request.app.state.notices
    return notices.take(request.query_params.get("notice", ""))


def redirect(request: Request, back: str, notice: Notice) -> RedirectResponse:
    """To a page of this site, with the notice; another site's address leads to the front page."""
    notices: Kept[Notice] = request.app.state.notices
    path = back.partition("?")[0].partition("#")[0]
    if not is_local(path):
        path = "/"
    return RedirectResponse(f"{path}?notice={notices.keep(notice)}", status_code=303)


def is_local(path: str) -> bool:
    """Browsers take `//host` and `/\\host` for another site."""
    return path.startswith("/") and not path.startswith(("//", "/\\"))
