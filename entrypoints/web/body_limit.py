"""Middleware: a request's body is refused before it is read whole, except where files are received."""

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LIMIT = 1 << 20
"""Bytes of a body: a deposit or a verb with all its fields is far below that."""

RECEIVING = ("/v1/uploads", "/poster/", "/deposits")
"""Paths that receive files and count their bytes themselves."""


class BodyLimit:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(RECEIVING):
            await self.app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "")
        arrived = int(length) if length.isdecimal() else 0

        async def receive_within_limit() -> Message:
            nonlocal arrived
            if arrived > LIMIT:
                raise HTTPException(
                    413, f"the body has more than {LIMIT:,} bytes; upload files by /v1/uploads"
                )
            message = await receive()
            if not length:
                arrived += len(message.get("body", b""))
            return message

        await self.app(scope, receive_within_limit, send)
