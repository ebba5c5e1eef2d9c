"""The application called in this process, without a socket: ASGI instead of HTTP.

`arkline` commands use it if no web process answers. Every request has the principal named by the caller; a
network request can never get it, because the server creates its scope.
"""

from __future__ import annotations

import asyncio
import io
import queue
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from anyio.from_thread import start_blocking_portal
from urllib3 import HTTPHeaderDict, HTTPResponse

from entrypoints.web.app import create_app
from entrypoints.web.context import WebContext
from entrypoints.web.limits import LOCAL
from operations.board.board import Board
from operations.run import UNWATCHED, Run
from operations.site import Site
from pipeline.principal import Principal
from pipeline.settings import Settings
from zkstate.connection.session import connect

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from starlette.types import ASGIApp, Message, Scope

FILL_TIMEOUT = 60.0
"""Seconds that the first query about many jobs waits for the record to be read."""

PARTS = 16
"""Maximum number of answer parts buffered for the reader."""

FULL_INTERVAL = 0.01
"""Seconds between two checks whether the reader has taken a part."""


@contextmanager
def in_process(settings: Settings, principal: Principal, timeout: float | None) -> Iterator[InProcess]:
    """The application with these settings, for the block.

    `timeout`: seconds to wait for ZooKeeper before Unreachable; None if ZooKeeper is not needed.
    """
    adapter = InProcess(principal)
    record = timeout is not None
    with connect(settings, timeout or 0.0, create=record, required=record) as session:
        board = Board.on_demand(session, FILL_TIMEOUT)
        context = WebContext(Site(settings, session, record), board, adapter.run)
        with start_blocking_portal() as portal:
            adapter.open(create_app(context, pages=False), portal)
            try:
                yield adapter
            finally:
                portal.call(portal.stop, True)
                context.events.close()
                board.close()


class InProcess:
    """Sends requests to the application instead of a host; `acting`: how the verb reports and stops."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal
        self.acting = UNWATCHED
        self.run = Run(
            lambda done, total: self.acting.on_progress(done, total), lambda: self.acting.should_stop()
        )

    def open(self, app: ASGIApp, portal: BlockingPortal) -> None:
        self._app, self._portal = app, portal

    def request(
        self,
        method: str,
        url: str,
        *,
        body: Iterable[bytes] | bytes | None,
        headers: Mapping[str, str],
        **_: Any,
    ) -> HTTPResponse:
        """Like `urllib3.PoolManager.request`: returns the answer once it has begun.

        An error that the application does not turn into an answer is raised here.
        """
        exchange = _Exchange(self._portal, body)
        scope = self._scope(method, urlsplit(url), headers)
        done: Future[Any] = self._portal.start_task_soon(self._app, scope, exchange.receive, exchange.send)
        done.add_done_callback(exchange.ended)
        start = exchange.next()
        return HTTPResponse(
            io.BufferedReader(exchange),
            HTTPHeaderDict(
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]
            ),
            start["status"],
            reason=HTTPStatus(start["status"]).phrase,
            preload_content=False,
        )

    def _scope(self, method: str, address: SplitResult, headers: Mapping[str, str]) -> Scope:
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": address.scheme,
            "path": unquote(address.path),
            "raw_path": address.path.encode(),
            "query_string": address.query.encode(),
            "root_path": "",
            "headers": [
                (b"host", address.netloc.encode()),
                *((name.lower().encode(), value.encode()) for name, value in headers.items()),
            ],
            "client": None,
            "server": (address.hostname, None),
            "state": {LOCAL: self._principal},
        }


class _Exchange(io.RawIOBase):
    """One request and its answer; the body is read as a file."""

    def __init__(self, portal: BlockingPortal, body: Iterable[bytes] | bytes | None) -> None:
        self._portal = portal
        self._body = iter((body,) if isinstance(body, bytes) else body or ())
        self._sent = False
        self._left = asyncio.Event()
        self._parts: queue.SimpleQueue[Message | BaseException | None] = queue.SimpleQueue()
        self._rest = memoryview(b"")  # of an answer of 100 MB, no part is copied for each part that is read
        self._ended = False

    async def receive(self) -> Message:
        if self._sent:
            await self._left.wait()
            return {"type": "http.disconnect"}
        part = await asyncio.to_thread(next, self._body, None)
        self._sent = part is None
        return {"type": "http.request", "body": part or b"", "more_body": not self._sent}

    async def send(self, message: Message) -> None:
        while self._parts.qsize() >= PARTS and not self._left.is_set():
            await asyncio.sleep(FULL_INTERVAL)
        self._parts.put(message)

    def ended(self, done: Future[Any]) -> None:
        self._parts.put(None if done.cancelled() else done.exception())

    def next(self) -> Any:
        """The application's next part, None at the end; re-raises the application's exception."""
        if self._ended:
            return None
        try:
            part = self._parts.get()
        except BaseException:  # Ctrl-C: the work ends as if the client had disconnected
            self.close()
            raise
        if isinstance(part, BaseException):
            self.close()
            raise part
        self._ended = part is None
        return part

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest and (message := self.next()) is not None:
            self._rest = memoryview(message.get("body", b""))
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Disconnect the client."""
        if not self.closed:
            self._portal.start_task_soon(self._left.set)
        super().close()
