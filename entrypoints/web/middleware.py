"""Middleware: allowed names of the server, limits on bodies and requests, security headers, request ids.

Requests for `/health/` are not limited: uvicorn's `limit_concurrency` counts idle connections too, and
would answer 503 to `/health/live`.
"""

import re
import time
import uuid
from collections.abc import Iterable

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from entrypoints.web.authentication import authenticate
from entrypoints.web.limits import InProgress
from entrypoints.web.metrics import RequestMetrics
from entrypoints.web.problems import answer, http_problem, problem_of, status_of
from pipeline.errors import ArklineError
from tasks.logs import log

_PROBES = "/health/"
"""A supervisor asks by an address, and its answer has no link."""


class AllowedHosts:
    """Redirects and the address to which a login returns are made of `Host`, which a client may choose."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        """`hosts`: names in lower case, without a port; none: every name is believed."""
        self.app = app
        self.hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.hosts and not scope["path"].startswith(_PROBES):
            given = Headers(scope=scope).get("host", "").lower()
            name = given if given.endswith("]") else given.rpartition(":")[0] or given
            if name not in self.hosts:
                refusal = "this server has another name: see ARKLINE_WEB_HOSTS"
                await answer(http_problem(Request(scope), 421, refusal))(scope, receive, send)
                return
        await self.app(scope, receive, send)


def read_hosts(text: str) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(name.strip().lower() for name in text.split(",") if name.strip())


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


class RequestsInProgress:
    def __init__(self, app: ASGIApp, in_progress: InProgress) -> None:
        self.app = app
        self._in_progress = in_progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_PROBES):
            await self.app(scope, receive, send)
            return
        try:
            self._in_progress.enter()
        except ArklineError as error:
            await answer(problem_of(error, Request(scope)))(scope, receive, send)
            return
        try:
            await self.app(scope, receive, send)
        finally:
            self._in_progress.leave(scope["state"].get("counted_for"))


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
CACHED = ("/static/",)
"""Paths whose answers are the same for everybody: a cache may keep them, except for errors."""

METHOD, PATH = 16, 300
"""Characters of a request's method and path in the log."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_QUIET = (_PROBES, "/static/", "/metrics")


class SecurityHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if message["status"] >= 400 or not scope["path"].startswith(CACHED):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self.app(scope, receive, send_with_headers)


class RequestIds:
    """A request's id is that of its X-Request-ID, if the header is sane, or a new one."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics | None = None) -> None:
        self.app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        status, started, answered = 500, time.monotonic(), 0.0

        async def send_with_id(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status, answered = message["status"], time.monotonic() - started
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, send_with_id)
            finally:
                if self._metrics is not None:
                    self._metrics.count(scope, status, answered)
                if not scope["path"].startswith(_QUIET):
                    principal = state.get("principal")
                    log().info(
                        "request",
                        method=scope["method"][:METHOD],
                        path=scope["path"][:PATH],
                        status=status,
                        seconds=round(time.monotonic() - started, 4),
                        principal=principal.name if principal else "",
                    )
