"""Documentation that everybody may read: the depositors' guide, and the API."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path

from fastapi import Request
from fastapi.responses import HTMLResponse
from markdown_it import MarkdownIt
from markupsafe import Markup

from entrypoints.web.authentication import NotAuthenticated, counted
from entrypoints.web.limits import TooMany
from entrypoints.web.pages.login import page_router
from entrypoints.web.pages.templating import page
from operations.tokens import InvalidToken

router = page_router()

GUIDE = Path(__file__).parent.parent / "help" / "depositors.md"
"""A copy of docs/depositors.md, because the wheel does not include docs."""

SCROLLING = '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>'


@router.get("/help/deposit")
def help_deposit(request: Request) -> HTMLResponse:
    _know_caller(request)
    return page(request, "help.html", guide=guide())


@router.get("/docs")
def api(request: Request) -> HTMLResponse:
    """The API's document, with requests that are sent as the caller of the page."""
    _know_caller(request)
    return page(request, "docs.html")


def _know_caller(request: Request) -> None:
    """Find out who asks, for the menu of the page; everybody may read."""
    with suppress(NotAuthenticated, InvalidToken, TooMany):
        counted(request)


@cache
def guide() -> Markup:
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(GUIDE.read_text(encoding="utf-8"))
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchor(content.content))
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        for child in content.children or ():
            if child.type == "image":
                child.attrSet("src", f"/static/{child.attrGet('src')}")
    html = markdown.renderer.render(tokens, markdown.options, {})
    html = html.replace("<table>", SCROLLING).replace("</table>", "</table></div>")
    return Markup(html)  # noqa: S704 - markup in the guide is escaped: html is off


def anchor(heading: str) -> str:
    """A heading's anchor as in the repository's other documents: `#from-a-folder-of-files-to-an-ark`."""
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
