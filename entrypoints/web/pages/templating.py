"""Rendering of pages: templates, their filters, and values common to all pages.

The result of an act is a notice at the top of the page that follows the redirect. The browser keeps the
notice in between, so that any web process can serve that page.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, select_autoescape
from markupsafe import Markup, escape
from pydantic import TypeAdapter

from entrypoints.render.fleet_status import given_back, kept_waiting, standstill
from entrypoints.web.pages import acts
from operations.board.values import Stop
from pipeline.humanize import age, brief, by_whom, counted, duration, kept_back, left
from pipeline.principal import Principal, Role
from pipeline.working_storage.capacity import in_units
from zkstate.fleet.holds import Hold

STATIC = Path(__file__).parent.parent / "static"
VERSION = version("arkline")


@dataclass(frozen=True)
class Link:
    path: str
    label: str
    role: Role = Role.VIEWER


NAVIGATION = (
    Link("/", "Board"),
    Link("/batches", "Batches"),
    Link("/jobs", "Jobs"),
    Link("/failures", "Failures"),
    Link("/stops", "Stops"),
    Link("/space", "Space"),
    Link("/fleet", "Fleet"),
    Link("/objects", "Objects"),
)
DEPOSITOR_NAVIGATION = (
    Link("/deposits", "My deposits"),
    Link("/deposits/new", "New deposit"),
)
COLLECTIONS = Link("/collections", "Collections")
"""In the navigation of depositors; for others the row is full, and the board has the link."""


def _by_whom(stamp: Stop | Hold) -> str:
    return by_whom(stamp.by, stamp.reason, stamp.at)


def _kept_back(stop: Stop) -> str:
    return kept_back(stop.jobs, stop.sized, stop.bytes, stop.batches)


def _brief_age(moment: datetime) -> str:
    return brief(age(moment))


def _spent(moment: datetime) -> str:
    """`12 minutes`, the time since this moment."""
    return duration(age(moment))


def _quoted(path: str) -> str:
    """A path of this site with its query, as a URL that every browser reads the same way."""
    return quote(path, safe="/?&=%+:@,;!$*~.-_#")


def _short_digest(digest: str) -> str:
    """`sha-512:0123456789ab…`: enough to compare by eye; the API and PREMIS have the full digest."""
    algorithm, separator, value = digest.rpartition(":")
    return f"{algorithm}{separator}{value[:12]}…"


def _with_value(query: Mapping[str, str], name: str, value: str) -> str:
    """The query string with one value replaced, so that each page of a list has a URL."""
    return urlencode({**query, name: value})


_IN_UTC = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d)(:\d\d)? UTC")


def _timed(sentence: str) -> Markup:
    """The sentence, whose moments in UTC board.js shows by the reader's clock."""

    def local(moment: re.Match[str]) -> str:
        kind, at = "moment" if moment[3] else "minute", f"{moment[1]}T{moment[2]}{moment[3] or ':00'}Z"
        return f'<time datetime="{at}" title="{moment[0]}" data-local="{kind}">{moment[0]}</time>'

    return Markup(_IN_UTC.sub(local, escape(sentence)))  # noqa: S704 - escaped


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent.parent / "templates"),
    autoescape=select_autoescape(default=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(
    brief_age=_brief_age,
    bulk_preview=acts.bulk_preview,
    by_whom=_by_whom,
    counted=counted,
    deposit=acts.deposit,
    deposit_again=acts.deposit_again,
    duration=duration,
    given_back=given_back,
    kept_back=_kept_back,
    kept_waiting=kept_waiting,
    left=left,
    standstill=standstill,
    proof=acts.proof,
    quoted=_quoted,
    recheck=acts.recheck,
    short_digest=_short_digest,
    spent=_spent,
    ticked=acts.ticked,
    timed=_timed,
    units=in_units,
    with_value=_with_value,
)


def template_in(file: Path) -> Template:
    """A plugin's template, which may extend those of the core."""
    return _ENVIRONMENT.from_string(file.read_text())


def render(template: str | Template, **values: Any) -> Markup:
    """A part of a page, already escaped."""
    return Markup(_ENVIRONMENT.get_template(template).render(**values))  # noqa: S704 - autoescape is on


def navigation_of(caller: Principal) -> tuple[Link, ...]:
    if caller.role is Role.DEPOSITOR:
        return (*DEPOSITOR_NAVIGATION, COLLECTIONS, Link("/notifications", "Notifications"))
    deposits = DEPOSITOR_NAVIGATION if caller.role.includes(Role.DEPOSITOR) else ()
    return (*NAVIGATION, *deposits)


def rights(caller: Principal | None) -> dict[str, bool]:
    """The rights that decide on buttons: viewers see them, with the role they lack; depositors do not."""
    return {
        "may_act": caller is not None and caller.role.includes(Role.OPERATOR),
        "may_deposit": caller is not None and caller.role.includes(Role.DEPOSITOR),
        "shows_acts": caller is not None and caller.role is not Role.DEPOSITOR,
    }


def page(request: Request, template: str | Template, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A whole page, for the caller of the request or for an anonymous one."""
    caller: Principal | None = getattr(request.state, "principal", None)
    html = render(
        template,
        caller=caller,
        navigation=navigation_of(caller) if caller else (),
        here=request.url.path,
        here_url=request.url.path,
        query=dict(request.query_params),
        notice=notice_of(request),
        version=VERSION,
        flower=request.app.state.flower,
        **rights(caller),
        **values,
    )
    response = HTMLResponse(html, status_code=status)
    forget(request, response)
    return response


SECONDS = 60
"""Seconds after which a notice that no page has shown is discarded."""

TEXT_BYTES = 2500
"""Maximum bytes of a notice's text: browsers keep four kilobytes, encoded."""


@dataclass(frozen=True)
class Notice:
    text: str
    tone: Literal["good", "bad", "warn"] = "good"


_NOTICE = TypeAdapter(Notice)


def notice_of(request: Request) -> Notice | None:
    """The notice in this browser's cookie; None if there is none, or it is invalid."""
    try:
        return _NOTICE.validate_json(urlsafe_b64decode(request.cookies.get(_cookie(request), "").encode()))
    except ValueError:
        return None


def forget(request: Request, response: Response) -> None:
    """Delete the notice's cookie once the page shows the notice."""
    if _cookie(request) in request.cookies:
        response.delete_cookie(_cookie(request), secure=request.url.scheme == "https")


def redirect(request: Request, back: str, notice: Notice) -> RedirectResponse:
    """Redirect to a page of this site, with the notice; another site's address leads to the front page."""
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
    """The cookie's name; over https it has the prefix that stops other hosts from setting the cookie."""
    return "__Host-notice" if request.url.scheme == "https" else "notice"


def is_local(path: str) -> bool:
    """Browsers take `//host` and `/\\host` for another site, and drop tabs and line ends before that."""
    return path.isprintable() and path.startswith("/") and not path.startswith("//") and "\\" not in path
