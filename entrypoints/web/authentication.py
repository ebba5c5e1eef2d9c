"""Authentication: a token in `Authorization: Bearer`, or the cookie set by the login of the pages.

The cookie holds a random text, not a token, that the inventory knows until logout: scripts cannot read it,
other sites cannot send it, and revoking a token ends every login made with it. A cookie-authenticated request
that changes something must come from the site's own pages, according to the browser's Fetch metadata.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from entrypoints.web.context import context_of
from entrypoints.web.limits import LOCAL
from entrypoints.web.parameters import Collection
from operations.tokens import LOGIN_SECONDS, InvalidToken, hash_of
from operations.visibility import require_fleet
from pipeline import codes
from pipeline.errors import ArklineError
from pipeline.principal import Forbidden, Interface, Principal, Role

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_bearer = HTTPBearer(
    scheme_name="token",
    description="A token created by `arkline token create NAME --role ROLE`, run beside the stack.",
    auto_error=False,
)


class NotAuthenticated(ArklineError):
    code = codes.NOT_AUTHENTICATED


def cookie_name(connection: HTTPConnection) -> str:
    """The cookie's name; over https it has the prefix that stops other hosts from setting the cookie."""
    return "__Host-arkline" if connection.url.scheme == "https" else "arkline"


def set_login(request: Request, response: Response, name: str, credential: str) -> None:
    """Log in; the caller has checked the credential and called `check_same_origin`."""
    response.set_cookie(
        cookie_name(request),
        context_of(request).logins.begin(name, credential),
        max_age=LOGIN_SECONDS,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def end_login(request: Request) -> None:
    """Log out: any copy of the cookie becomes worthless."""
    if login := request.cookies.get(cookie_name(request)):
        context_of(request).logins.end(login)


def clear_login(request: Request, response: Response) -> None:
    """Delete the login cookie in the browser."""
    response.delete_cookie(
        cookie_name(request),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def check_same_origin(request: HTTPConnection) -> None:
    """`cross-site-request` unless the browser says that the request comes from this site, or from no site."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site in ("same-origin", "none"):
            return
    else:
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc == request.headers.get("host"):
            return
    raise ArklineError(
        "the request was refused because it does not come from a page of this site: programs send the token "
        "in the header `Authorization: Bearer TOKEN`",
        code=codes.CROSS_SITE_REQUEST,
    )


def principal_of(request: Request, token: str, interface: Interface) -> Principal:
    """The token's principal; InvalidToken, or `too-many-wrong-tokens` for the client's address."""
    known = context_of(request).authenticator
    return _found(request, known.knows(token), partial(known.authenticate, token, interface))


def _found(request: Request, known: bool, find: Callable[[], Principal]) -> Principal:
    """Accept a token or login that this process knows from any address, so that wrong tokens sent from
    behind the same proxy lock out nobody who is working."""
    context = context_of(request)
    address = request.client.host if request.client else ""
    if not known:
        context.wrong_tokens.check(address)
    try:
        principal = find()
    except InvalidToken:
        context.wrong_tokens.count(address)
        raise
    request.state.find_again = find
    return principal.model_copy(update={"request_id": request.state.request_id})


def credential_of(request: Request) -> str:
    """The basis of an authenticated caller's rights: the token's hash, or what the login has."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme:
        return hash_of(token.strip())
    return context_of(request).logins.entry(request.cookies.get(cookie_name(request), "")).credential


def check_again(request: Request, caller: Principal) -> None:
    """InvalidToken if the rights of this long request's caller have changed.

    For streams, and for the end of a body that may take hours to arrive.
    """
    now: Principal = request.state.find_again()
    if (now.name, now.role, now.collections) != (caller.name, caller.role, caller.collections):
        raise InvalidToken(f"the rights of {caller.name} have changed: send the request again")


def authenticate(request: Request) -> Principal:
    """The principal of the request; NotAuthenticated, `cross-site-request`, or as `principal_of`."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme:
        if scheme.lower() != "bearer":
            raise NotAuthenticated("send the token in the header `Authorization: Bearer TOKEN`")
        return principal_of(request, value.strip(), Interface.API)
    login = request.cookies.get(cookie_name(request))
    if login is None:
        raise NotAuthenticated(
            "this needs a token: send it in the header `Authorization: Bearer TOKEN`; an administrator "
            "creates one beside the stack: `arkline token create NAME --role ROLE`"
        )
    if request.method not in SAFE_METHODS:
        check_same_origin(request)
    logins = context_of(request).logins
    return _found(request, logins.knows(login), partial(logins.principal, login))


def counted(request: Request) -> Principal:
    """The principal of the request; `too-many-requests` if it exceeds the rate limit."""
    local: Principal | None = getattr(request.state, LOCAL, None)
    if local is None:
        return count(request, authenticate(request))
    request.state.find_again = lambda: local
    return local


def count(request: Request, caller: Principal) -> Principal:
    context = context_of(request)
    (context.rate_limit_of_files if _brings_a_file(request) else context.rate_limit).count(caller.name)
    context.in_progress.count(request, caller.name)
    request.state.principal = caller
    request.state.check_again = partial(check_again, request, caller)
    return caller


def _brings_a_file(request: Request) -> bool:
    return request.method in ("PUT", "PATCH") and request.url.path.startswith("/v1/uploads/")


def needs(role: Role) -> Callable[..., Principal]:
    """A dependency: the principal of the request, with at least this role."""

    def principal(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None
    ) -> Principal:
        caller = counted(request)
        if not caller.role.includes(role):
            raise Forbidden(
                f"this needs the role {role}, and the token {caller.name} has the role {caller.role}"
            )
        return caller

    principal.role = role  # type: ignore[attr-defined]
    return principal


Caller = Annotated[Principal, Depends(needs(Role.VIEWER))]
DepositorCaller = Annotated[Principal, Depends(needs(Role.DEPOSITOR))]
OperatorCaller = Annotated[Principal, Depends(needs(Role.OPERATOR))]
AdminCaller = Annotated[Principal, Depends(needs(Role.ADMIN))]


def _of_fleet(caller: Caller) -> Principal:
    require_fleet(caller, "see the whole fleet")
    return caller


def _operating_fleet(caller: OperatorCaller) -> Principal:
    require_fleet(caller, "operate the whole fleet")
    return caller


def _operating_collection(caller: OperatorCaller, name: Collection) -> Principal:
    caller.require(Role.OPERATOR, f"operate collection {name}", name)
    return caller


FleetCaller = Annotated[Principal, Depends(_of_fleet)]
FleetOperator = Annotated[Principal, Depends(_operating_fleet)]
CollectionOperator = Annotated[Principal, Depends(_operating_collection)]
"""An operator of the collection `name` in the path."""
