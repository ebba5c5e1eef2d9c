"""Middleware: security headers, and a request id in every answer and every line of the log."""

import re
import time
import uuid

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from entrypoints.web.request_metrics import RequestMetrics
from tasks.logs import log

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
_QUIET = ("/health/", "/static/", "/metrics")


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
