"""Pages for login at an OpenID provider: to the provider and back.

The way back begins at another site, so the browser sends none of its SameSite=Strict cookies: the login's
state is in a Lax cookie, and a page of this site, not a redirect, leads to the requested page.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from entrypoints.web.authentication import set_login
from entrypoints.web.context import context_of
from entrypoints.web.pages.login import login_page, page_router
from entrypoints.web.pages.templating import is_local, page, template_in
from pipeline.settings import Settings, read_settings
from plugins.oidc.login import STARTED_SECONDS, Finished, OidcLogin
from plugins.oidc.provider import LoginRefused
from plugins.oidc.settings import OidcSettings

T = TypeVar("T")

COOKIE = "arkline-login"
PATH = "/login/oidc"
LOGGED_IN = template_in(Path(__file__).with_name("logged_in.html"))

router = page_router()


class ProviderLogin(OidcLogin):
    """The plugin's login, as the core sees it."""

    path = PATH
    router = router


def open_login(settings: Settings) -> ProviderLogin:
    del settings
    return ProviderLogin(read_settings(OidcSettings))


def _login(request: Request) -> OidcLogin:
    login = context_of(request).login
    assert isinstance(login, ProviderLogin)
    return login


def _redirect(request: Request) -> str:
    return str(request.url_for("finish_oidc_login"))


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


@router.get(PATH)
async def start_oidc_login(request: Request, next: str = "/") -> Response:
    context_of(request).wrong_tokens.check(_address(request))
    login, redirect, target = _login(request), _redirect(request), next if is_local(next) else "/"
    started = await _ask(request, lambda: login.start(redirect, target))
    answer = RedirectResponse(started.url, status_code=303)
    answer.set_cookie(
        COOKIE,
        started.sealed,
        max_age=STARTED_SECONDS,
        path=PATH,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return answer


@router.get(f"{PATH}/return")
async def finish_oidc_login(request: Request, state: str = "", code: str = "", error: str = "") -> Response:
    limit = context_of(request).wrong_tokens
    limit.check(_address(request))
    try:
        finished = await _ask(request, lambda: _finish(request, state, code, error))
    except LoginRefused as refusal:
        limit.count(_address(request))
        answer: Response = login_page(request, "/", problem=str(refusal), status=403)
    else:
        answer = page(request, LOGGED_IN, next=finished.next)
        set_login(request, answer, finished.name, finished.session)
    answer.delete_cookie(COOKIE, path=PATH)
    return answer


async def _ask(request: Request, work: Callable[[], T]) -> T:
    """Run work that queries the provider, which may be slow."""
    return await context_of(request).provider_work.run(request, _address(request), lambda _: work())


def _finish(request: Request, state: str, code: str, error: str) -> Finished:
    if error or not code:
        raise LoginRefused(f"the provider did not log you in: {error[:100] or 'its answer has no code'}")
    return _login(request).finish(request.cookies.get(COOKIE, ""), state, code, _redirect(request))
