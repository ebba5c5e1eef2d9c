"""Applied to every request: host names, limits, security headers, a request id, a log line.

Requests for `/health/` are not limited: uvicorn's `limit_concurrency` also counts idle connections, and would
answer 503 to `/health/live`.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import structlog
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from entrypoints.web.authentication import authenticate
from entrypoints.web.context import WebContext
from entrypoints.web.problems import answer, http_problem, problem_of, status_of
from pipeline.errors import ArklineError
from tasks.logs import log

_PROBES = "/health/"
"""Exempt from the host check: a supervisor uses an IP address, and the answer has no link."""

LIMIT = 1 << 20
"""Maximum body in bytes: a deposit or a verb with all its fields is far smaller."""

OF_STRANGERS = 1 << 14
"""Maximum bytes of a body read before the token is checked: a login is far smaller."""

E = TypeVar("E", bound=Callable[..., Any])


def receives_files(endpoint: E) -> E:
    """Mark an endpoint whose route checks the token first and counts the bytes itself."""
    endpoint.receives_files = True  # type: ignore[attr-defined]
    return endpoint


def receiving(routers: Iterable[APIRouter]) -> tuple[Route, ...]:
    """The routes that receive files."""
    routes = (route for router in routers for route in router.routes if isinstance(route, Route))
    return tuple(route for route in routes if hasattr(route.endpoint, "receives_files"))


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
"""Paths whose answers are the same for everybody: caches may keep them, except errors."""

METHOD, PATH = 16, 300
"""Maximum characters of a request's method and path in the log."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_QUIET = (_PROBES, "/static/", "/metrics")


class Requests:
    """Wraps the whole application, so that answers to unexpected errors have the headers and the id, too."""

    def __init__(
        self,
        app: ASGIApp,
        context: WebContext | None,
        hosts: Iterable[str] = (),
        receiving: Sequence[Route] = (),
    ) -> None:
        """`hosts`: this server's names in lower case, without port; none: any name is accepted.

        Redirects and a login's return address are built from `Host`, which a client may choose.
        """
        self.app = app
        self._context = context
        self._hosts = frozenset(hosts)
        self._receiving = receiving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; its id is X-Request-ID if that header is sane, otherwise a new one."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        status, started, answered = 500, time.monotonic(), 0.0

        async def send_with_headers(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status, answered = message["status"], time.monotonic() - started
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if status >= 400 or not scope["path"].startswith(CACHED):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._admit(scope, receive, send_with_headers)
            finally:
                if self._context is not None:
                    self._context.requests.count(scope, status, answered)
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

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        counted = self._context.in_progress if self._context else None
        if scope["path"].startswith(_PROBES):
            counted = None
        elif self._hosts and _name_of(headers.get("host", "").lower()) not in self._hosts:
            problem = http_problem(Request(scope), 421, "this server has another name: see ARKLINE_WEB_HOSTS")
            await answer(problem)(scope, receive, send)
            return
        try:
            if counted:
                counted.enter()
        except ArklineError as error:
            await answer(problem_of(error, Request(scope)))(scope, receive, send)
            return
        try:
            refused = _of_two_lengths(scope, headers)
            if not any(route.matches(scope)[0] is Match.FULL for route in self._receiving):
                receive = _within_limit(scope, headers, receive)
            await (refused or self._served)(scope, receive, send)
        finally:
            if counted:
                counted.leave(scope["state"].get("counted_for"))

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HEAD of a path that has only GET is answered with the head of GET's answer (RFC 9110, 9.3.2)."""
        if scope["method"] != "HEAD" or _has_route(scope):
            await self.app(scope, receive, send)
            return
        as_get = {**scope, "method": "GET"}
        try:
            await self.app(as_get, receive, _head_alone(send))
        finally:
            if "route" in as_get:
                scope["route"] = as_get["route"]


def read_hosts(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list."""
    return tuple(name.strip().lower() for name in text.split(",") if name.strip())


def _name_of(host: str) -> str:
    """The host without its port."""
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _has_route(scope: Scope) -> bool:
    """Whether a route serves this method, too."""
    return any(route.matches(scope)[0] is Match.FULL for route in scope["app"].routes)


def _head_alone(send: Send) -> Send:
    """Send the head of an answer and end it there, also that of a stream, which has no end."""

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return send_head


def _of_two_lengths(scope: Scope, headers: Headers) -> Response | None:
    """400, closing the connection: servers and proxies disagree on where a body with both headers ends
    (RFC 9112, 6.1)."""
    if "content-length" not in headers or "transfer-encoding" not in headers:
        return None
    detail = "the request has both Content-Length and Transfer-Encoding: send one of them"
    return answer(http_problem(Request(scope), 400, detail), {"Connection": "close"})


def _within_limit(scope: Scope, headers: Headers, receive: Receive) -> Receive:
    """Limit the bytes that arrive; the client's stated length only serves to refuse a request earlier."""
    length = headers.get("content-length", "")
    stated = int(length) if length.isdecimal() and len(length) < 19 else 0
    arrived, known = 0, False

    async def receive_within_limit() -> Message:
        nonlocal arrived, known
        if max(arrived, stated) > LIMIT:
            raise HTTPException(413, f"the body has more than {LIMIT:,} bytes; upload files by /v1/uploads")
        if not known and max(arrived, stated) > OF_STRANGERS:
            await run_in_threadpool(_check_known, scope)
            known = True
        message = await receive()
        arrived += len(message.get("body", b""))
        return message

    return receive_within_limit


def _check_known(scope: Scope) -> None:
    """Raise HTTPException, with the answer as its cause, unless the request has a valid token."""
    try:
        authenticate(Request(scope))
    except ArklineError as error:
        raise HTTPException(status_of(error)) from error
