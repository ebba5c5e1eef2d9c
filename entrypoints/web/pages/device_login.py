"""The page at which a person allows a program to log in, or refuses."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Request
from fastapi.responses import HTMLResponse

from entrypoints.web.authentication import credential_of
from entrypoints.web.context import context_of, site_of
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import page
from entrypoints.web.problems import status_of
from entrypoints.web.routes.login import PAGE
from operations import device_login
from pipeline.errors import ArklineError
from pipeline.principal import Principal

router = page_router()


@router.get(PAGE)
def show_device_login(request: Request, caller: PageCaller, code: str = "") -> HTMLResponse:
    return _page(request, caller, code)


@router.post(PAGE)
def answer_device_login(
    request: Request, caller: PageCaller, code: Annotated[str, Form()], answer: Annotated[str, Form()]
) -> HTMLResponse:
    return _page(request, caller, code, answer)


def _page(request: Request, caller: Principal, code: str, answer: str = "") -> HTMLResponse:
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
