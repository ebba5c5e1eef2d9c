"""Middleware: requests in progress are limited, of all and of one token; those for `/health/` are spared.

uvicorn's `limit_concurrency` counts idle connections too, and answers 503 to `/health/live` as to everything.
"""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from entrypoints.web.problems import answer, problem_of
from entrypoints.web.rate_limit import InProgress, TooManyAtOnce


class RequestsInProgress:
    def __init__(self, app: ASGIApp, in_progress: InProgress) -> None:
        self.app = app
        self._in_progress = in_progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/health/"):
            await self.app(scope, receive, send)
            return
        try:
            self._in_progress.enter()
        except TooManyAtOnce as error:
            await answer(problem_of(error, Request(scope)))(scope, receive, send)
            return
        try:
            await self.app(scope, receive, send)
        finally:
            self._in_progress.leave(scope["state"].get("counted_for"))
