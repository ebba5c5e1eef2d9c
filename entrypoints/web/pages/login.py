"""Logins at a page, also of programs, access to pages, and errors as pages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute

from entrypoints.web.authentication import (
    SAFE_METHODS,
    NotAuthenticated,
    check_same_origin,
    clear_login,
    count,
    counted,
    credential_of,
    end_login,
    principal_of,
    set_login,
)
from entrypoints.web.context import context_of, site_of
from entrypoints.web.limits import TooMany
from entrypoints.web.pages import acts
from entrypoints.web.pages.templating import is_local, page
from entrypoints.web.problems import retry_after, status_of
from entrypoints.web.routes.login import PAGE
from operations import device_login
from operations.tokens import InvalidToken, hash_of
from pipeline.errors import ArklineError, ServiceUnreachable
from pipeline.principal import Interface, Principal, Role

TITLES = {
    401: "Log in first",
    403: "This is not allowed",
    404: "This does not exist",
    409: "This is not possible now",
    412: "Somebody was faster",
    422: "This cannot be done as it was asked",
    429: "Too many requests",
    503: "A server does not answer",
}


AWAY = "The repository does not answer at the moment"
WAIT = (
    "What you deposited before is safe and continues by itself. Please try again in some minutes; if you "
    "have just deposited something, look into “My deposits” first. If this lasts, tell our staff."
)
"""Shown to depositors, who cannot start a server."""


NOT_DONE = "Your login had ended, and nothing was done with what you sent: log in, then send it again."


class PageRoute(APIRoute):
    """A route that shows errors as pages, and redirects to the login if one is needed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except NotAuthenticated:
                return to_login(request)
            except InvalidToken:
                answer = to_login(request)
                clear_login(request, answer)
                return answer
            except ArklineError as error:
                return error_page(request, error)

        return handle


def page_router() -> APIRouter:
    """A router for pages, which are not in the API's document."""
    return APIRouter(include_in_schema=False, route_class=PageRoute)


router = page_router()


PageCaller = Annotated[Principal, Depends(counted)]


def login_page(request: Request, next: str, problem: str = "", status: int = 200) -> HTMLResponse:
    elsewhere = context_of(request).login
    path = elsewhere.path if elsewhere else ""
    return page(request, "login.html", problem=problem, next=next, elsewhere=path, status=status)


@router.get("/login")
def show_login(request: Request, next: str = "/", refused: bool = False) -> HTMLResponse:
    """`refused`: what was sent last needs a login."""
    return login_page(request, next, problem=NOT_DONE if refused else "")


@router.post("/login")
def login(request: Request, token: Annotated[str, Form()], next: Annotated[str, Form()] = "/") -> Response:
    check_same_origin(request)
    try:
        caller = count(request, principal_of(request, token.strip(), Interface.WEB))
    except (InvalidToken, TooMany) as error:
        refused = login_page(request, next, problem=str(error), status=status_of(error))
        refused.headers.update(retry_after(error))
        return refused
    target = next if is_local(next) else "/"
    answer = RedirectResponse(target, status_code=303)
    set_login(request, answer, caller.name, hash_of(token.strip()))
    return answer


@router.post("/logout")
def logout(request: Request) -> Response:
    check_same_origin(request)
    end_login(request)
    answer = RedirectResponse("/login", status_code=303)
    clear_login(request, answer)
    return answer


@router.get(PAGE)
def show_device_login(request: Request, caller: PageCaller, code: str = "") -> HTMLResponse:
    return _device_page(request, caller, code)


@router.post(PAGE)
def answer_device_login(
    request: Request, caller: PageCaller, code: Annotated[str, Form()], answer: Annotated[str, Form()]
) -> HTMLResponse:
    return _device_page(request, caller, code, answer)


def _device_page(request: Request, caller: Principal, code: str, answer: str = "") -> HTMLResponse:
    """The login with this code, after the answer `yes` or `no` if there is one."""
    login, problem, status, site = None, "", 200, site_of(request)
    try:
        if code:
            context_of(request).login_codes.count(caller.name, "entered a code")
            _, login = device_login.find(site, code)
        if answer:
            allowed, credential = answer == "yes", credential_of(request)
            device_login.answer(site, caller, credential, code, allowed=allowed)
    except ArklineError as error:
        problem, status = str(error), status_of(error)
    return page(
        request,
        "device_login.html",
        code=code,
        login=login,
        problem=problem,
        answered="" if problem else answer,
        days=device_login.TOKEN_DAYS,
        status=status,
    )


def to_login(request: Request) -> Response:
    """Redirect to the login, which leads back to the page, or says that the form has to be sent again."""
    if request.method not in SAFE_METHODS:
        return RedirectResponse("/login?next=%2F&refused=true", status_code=303)
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/login?{urlencode({'next': request.url.path + query})}", status_code=303)


def error_page(request: Request, error: ArklineError) -> HTMLResponse:
    status = status_of(error)
    caller: Principal | None = getattr(request.state, "principal", None)
    for_staff = caller is None or caller.role is not Role.DEPOSITOR
    away = isinstance(error, ServiceUnreachable) and not for_staff
    answer = page(
        request,
        "error.html",
        status=status,
        title=AWAY if away else TITLES.get(status, "This failed"),
        message=WAIT if away else str(error),
        remedies=() if away else acts.of_remedies(error.remedies),
    )
    answer.headers.update(retry_after(error))
    return answer
