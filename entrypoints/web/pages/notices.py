"""The result of an act, shown once at the top of the page that follows the redirect.

The browser keeps the notice in between, so that any web process can answer the redirect.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Literal

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from pydantic import TypeAdapter

SECONDS = 60
"""A notice that no page has shown by then is forgotten."""

TEXT_BYTES = 2500
"""Browsers keep four kilobytes of an encoded text."""


@dataclass(frozen=True)
class Notice:
    text: str
    tone: Literal["good", "bad", "warn"] = "good"


_NOTICE = TypeAdapter(Notice)


def notice_of(request: Request) -> Notice | None:
    """The notice that this browser was given; None without one, and for what is none."""
    try:
        return _NOTICE.validate_json(urlsafe_b64decode(request.cookies.get(_cookie(request), "").encode()))
    except ValueError:
        return None


def forget(request: Request, response: Response) -> None:
    """After the page with the notice."""
    if _cookie(request) in request.cookies:
        response.delete_cookie(_cookie(request), secure=request.url.scheme == "https")


def redirect(request: Request, back: str, notice: Notice) -> RedirectResponse:
    """To a page of this site, with the notice; another site's address leads to the front page."""
    path = back.partition("?")[0].partition("#")[0]
    response = RedirectResponse(path if is_local(path) else "/", status_code=303)
    text = notice.text.encode()[:TEXT_BYTES].decode(errors="ignore")
    response.set_cookie(
        _cookie(request),
        urlsafe_b64encode(_NOTICE.dump_json(Notice(text, notice.tone))).decode(),
        max_age=SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


def _cookie(request: Request) -> str:
    """Over https the name has the prefix by which browsers refuse a cookie that another host sets."""
    return "__Host-notice" if request.url.scheme == "https" else "notice"


def is_local(path: str) -> bool:
    """Browsers take `//host` and `/\\host` for another site, and drop tabs and line ends before that."""
    return path.isprintable() and path.startswith("/") and not path.startswith("//") and "\\" not in path
