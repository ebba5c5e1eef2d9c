"""Middleware: a request's body is refused before it is read whole, except where files are received."""

import re

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from entrypoints.web.authentication import authenticate
from entrypoints.web.problems import answer, http_problem, status_of
from pipeline.errors import ArklineError

LIMIT = 1 << 20
"""Bytes of a body: a deposit or a verb with all its fields is far below that."""

OF_STRANGERS = 1 << 14
"""Bytes of a body that are read before the token is looked at: a login is far below that."""

_RECEIVING = re.compile(r"/v1/uploads(/|$)|/poster/|/deposits$|/batches/[^/]+/again$")
"""Paths that receive files: their routes look at the token first, and count the bytes themselves."""


class BodyLimit:
    """Counts what arrives; what the client states can only refuse its request sooner."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            # Servers and proxies disagree where such a body ends (RFC 9112, 6.1).
            await _refused(scope, receive, send)
            return
        if _RECEIVING.match(scope["path"]):
            await self.app(scope, receive, send)
            return
        length = headers.get("content-length", "")
        stated = int(length) if length.isdecimal() and len(length) < 19 else 0
        arrived, known = 0, False

        async def receive_within_limit() -> Message:
            nonlocal arrived, known
            if max(arrived, stated) > LIMIT:
                raise HTTPException(
                    413, f"the body has more than {LIMIT:,} bytes; upload files by /v1/uploads"
                )
            if not known and max(arrived, stated) > OF_STRANGERS:
                await run_in_threadpool(_check_known, scope)
                known = True
            message = await receive()
            arrived += len(message.get("body", b""))
            return message

        await self.app(scope, receive_within_limit, send)


def _check_known(scope: Scope) -> None:
    """HTTPException, whose cause is the answer, unless the request has a valid token."""
    try:
        authenticate(Request(scope))
    except ArklineError as error:
        raise HTTPException(status_of(error)) from error


async def _refused(scope: Scope, receive: Receive, send: Send) -> None:
    """400, and the end of the connection."""
    request = Request(scope)
    detail = "the request has both Content-Length and Transfer-Encoding: send one of them"
    answered = answer(http_problem(request, 400, detail), {"Connection": "close"})
    await answered(scope, receive, send)
