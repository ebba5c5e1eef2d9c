"""Who calls: a token in `Authorization: Bearer`, or in the cookie that the login of the pages sets.

The cookie holds the token itself: scripts cannot read it, other sites cannot send it, and a revoked token
ends every login with it. After a login at an OpenID provider it holds a signed value, which is no token. A
request that the cookie authenticates and that changes something must come from the site's own pages, which
the browser says in Fetch metadata.
"""

from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from entrypoints.web.context import context_of
from operations.oidc.values import PREFIX
from operations.tokens import InvalidToken
from pipeline.errors import ArklineError, ErrorKind
from pipeline.principal import Forbidden, Interface, Principal, Role

LOGIN_SECONDS = 12 * 3600
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_bearer = HTTPBearer(scheme_name="token", description="A token of `arkline token create`.", auto_error=False)


class NotAuthenticated(ArklineError):
    """The request has no token."""

    error_kind = ErrorKind.REFUSED


class CrossSiteRequest(ArklineError):
    """A request with the cookie that does not come from the site's own pages; nothing was changed."""

    error_kind = ErrorKind.REFUSED


def cookie_name(connection: HTTPConnection) -> str:
    """Over https the name has the prefix by which browsers refuse a cookie that another host sets."""
    return "__Host-arkline" if connection.url.scheme == "https" else "arkline"


def set_login(request: Request, response: Response, token: str) -> None:
    """Log in: the caller has checked the token, and `check_same_origin`."""
    response.set_cookie(
        cookie_name(request),
        token,
        max_age=LOGIN_SECONDS,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def clear_login(request: Request, response: Response) -> None:
    response.delete_cookie(
        cookie_name(request),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def check_same_origin(request: HTTPConnection) -> None:
    """CrossSiteRequest unless the browser says that the request comes from this site, or from no site."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site in ("same-origin", "none"):
            return
    else:
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc == request.headers.get("host"):
            return
    raise CrossSiteRequest(
        "the request was refused because it does not come from a page of this site: programs send the token "
        "in the header `Authorization: Bearer TOKEN`"
    )


def principal_of(request: Request, token: str, interface: Interface) -> Principal:
    """Whose the token is; InvalidToken, or TooManyWrongTokens of the client's address.

    A token that this process knows is accepted from every address: who sends wrong tokens from behind the
    same proxy keeps out nobody who is at work.
    """
    context = context_of(request)
    address = request.client.host if request.client else ""
    if not context.authenticator.knows(token):
        context.wrong_tokens.check(address)
    try:
        return context.authenticator.authenticate(token, interface)
    except InvalidToken:
        context.wrong_tokens.count(address)
        raise


def authenticate(request: Request) -> Principal:
    """The principal of the request; NotAuthenticated, CrossSiteRequest, or as `principal_of` says."""
    return _authenticated(request).model_copy(update={"request_id": request.state.request_id})


def _authenticated(request: Request) -> Principal:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme:
        if scheme.lower() != "bearer":
            raise NotAuthenticated("send the token in the header `Authorization: Bearer TOKEN`")
        return principal_of(request, value.strip(), Interface.API)
    token = request.cookies.get(cookie_name(request))
    if token is None:
        raise NotAuthenticated(
            "this needs a token: send it in the header `Authorization: Bearer TOKEN`; an operator makes one "
            "with `arkline token create`"
        )
    if request.method not in SAFE_METHODS:
        check_same_origin(request)
    if (oidc := context_of(request).oidc) is not None and token.startswith(PREFIX):
        return oidc.principal(token)
    return principal_of(request, token, Interface.WEB)


def needs(role: Role) -> Callable[..., Principal]:
    """A dependency: the principal of the request, which has at least this role."""

    def principal(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None
    ) -> Principal:
        caller = authenticate(request)
        context_of(request).rate_limit.count(caller.name)
        if not caller.role.includes(role):
            raise Forbidden(
                f"this needs the role {role}, and the token {caller.name} has the role {caller.role}"
            )
        request.state.principal = caller
        return caller

    principal.role = role  # type: ignore[attr-defined]
    return principal


Caller = Annotated[Principal, Depends(needs(Role.VIEWER))]
DepositorCaller = Annotated[Principal, Depends(needs(Role.DEPOSITOR))]
OperatorCaller = Annotated[Principal, Depends(needs(Role.OPERATOR))]
AdminCaller = Annotated[Principal, Depends(needs(Role.ADMIN))]
