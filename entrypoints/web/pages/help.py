"""The guide for depositors as a page of the site. It needs no token, because the login page links to it."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

from fastapi import Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from entrypoints.web.authentication import NotAuthenticated, counted
from entrypoints.web.pages.login import page_router
from entrypoints.web.pages.templating import page
from entrypoints.web.rate_limit import TooMany
from operations.tokens import InvalidToken
from pipeline.principal import Principal

router = page_router()

GUIDE = Path(__file__).parent.parent / "help" / "depositors.md"
"""A copy of docs/depositors.md, which is not in the wheel."""

SCROLLING = '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>'


@router.get("/help/deposit")
def help_deposit(request: Request) -> HTMLResponse:
    return page(request, "help.html", caller=_caller_or_nobody(request), guide=guide())


def _caller_or_nobody(request: Request) -> Principal | None:
    """Only for the menu of the page."""
    try:
        return counted(request)
    except (NotAuthenticated, InvalidToken, TooMany):
        return None


@cache
def guide() -> Markup:
    from markdown_it import MarkdownIt

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
    """As in the repository's other documents: `#from-a-folder-of-files-to-an-ark`."""
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
