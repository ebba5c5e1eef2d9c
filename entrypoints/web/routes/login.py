"""Logins of programs by a page, as RFC 8628 has them: start, ask for the token, end."""

from fastapi import Request, Response
from pydantic import Field

from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import Caller, credential_of
from entrypoints.web.context import context_of, site_of
from entrypoints.web.limits import client_of
from operations import device_login, tokens
from operations.device_login import DeviceCode, DeviceError, DeviceToken
from pipeline.inventory.tokens import TokenEntry
from pipeline.records import Record

router = api_router("/v1/login", "login")

PAGE = "/login/device"


class DeviceRequest(Record):
    host: str = Field(min_length=1, max_length=100, examples=["workstation"], description="Your machine.")


class TokenQuestion(Record):
    device_code: str = Field(min_length=1, max_length=100, repr=False, examples=["DEVICE_CODE"])


@router.post("/device", status_code=201, summary="Start a login that a person allows at a page")
def start(request: Request, response: Response, body: DeviceRequest) -> DeviceCode:
    """Show the person `verification_uri` and `user_code`, and ask for the token every `interval` seconds."""
    response.headers["Cache-Control"] = "no-store"
    context, address = context_of(request), _address(request)
    context.login_starts.count(address, "started a login")
    pages = (context.settings.public_url or str(request.base_url)).rstrip("/")
    return device_login.begin(context.site, body.host, address, f"{pages}{PAGE}")


@router.post("/token", summary="Ask for the token of a login")
def token(request: Request, response: Response, body: TokenQuestion) -> DeviceToken:
    """Until there is one, `error` is `authorization_pending`, or `slow_down`: then wait 5 seconds longer each
    time. An answer that was lost can be asked for again."""
    response.headers["Cache-Control"] = "no-store"
    context, address = context_of(request), request.client.host if request.client else ""
    if not context.login_polls.allows(tokens.hash_of(body.device_code)):
        return DeviceToken(error=DeviceError.SLOW_DOWN)
    context.wrong_tokens.check(address)
    answer = device_login.ask(context.site, body.device_code)
    if answer.error is DeviceError.EXPIRED:
        context.wrong_tokens.count(address)
    return answer


@router.post("/end", summary="Revoke the token of a login, with which this is sent")
def end(request: Request, caller: Caller) -> TokenEntry:
    """Tokens that an administrator created are refused."""
    return tokens.end_login_of(site_of(request).inventory(), credential_of(request), caller)


def _address(request: Request) -> str:
    return client_of(request.client.host if request.client else "")
