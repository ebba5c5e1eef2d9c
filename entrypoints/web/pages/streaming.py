"""Pages that stay current: one stream for each open page, with a part of the page when something changed.

A part is rendered once for all clients that see the same, and written to them as the same bytes. A client
that does not take what is written is dropped: the browser connects again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response, StreamingResponse

from entrypoints.web.context import WebContext, context_of
from entrypoints.web.streams import HEADERS, HEARTBEAT, TooManyStreams
from operations.board.values import Change
from pipeline.errors import ArklineError
from pipeline.principal import Principal

UNSENT = 8
"""Parts that wait for a slow client before it is dropped."""

RENEWED = 5.0
"""Seconds without a change after which a page is rendered again: ages of services, workers, outages."""


@dataclass(frozen=True)
class View:
    """What is rendered once: clients with equal keys get the same bytes."""

    key: tuple[str, ...]
    render: Callable[[], str] = field(compare=False)
    concerns: Callable[[Change], bool] = field(compare=False)
    period: float = RENEWED
    """Seconds without a change after which it is rendered again."""


@dataclass(eq=False)
class _Audience:
    """The clients of one view."""

    view: View
    clients: set[asyncio.Queue[bytes | None]] = field(default_factory=set)
    sent: bytes = b""
    due: float = 0.0
    """When it is rendered again without a change, by the event loop's clock."""


class LivePages:
    """Renders the parts of open pages whenever the board changed; one for each process.

    It runs on the event loop of the web server, and renders in a thread.
    """

    def __init__(self, web: WebContext) -> None:
        self._web = web
        self._audiences: dict[tuple[str, ...], _Audience] = {}
        self._changed = asyncio.Event()
        self._seen = ""
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._changed.set)

        self._unsubscribe = self._web.board.subscribe(wake)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Render nothing more; the server has ended the streams."""
        if self._unsubscribe:
            self._unsubscribe()
        if self._task:
            self._task.cancel()

    async def stream(self, view: View, token: str) -> AsyncIterator[bytes]:
        """The parts of the view as server-sent events, from now on."""
        audience = self._audiences.setdefault(view.key, _Audience(view))
        client: asyncio.Queue[bytes | None] = asyncio.Queue(UNSENT)
        audience.clients.add(client)
        self._changed.set()  # so that its first part is due at once
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(_end, client)

        try:
            with self._web.streams.entered(wake, token):
                yield b"retry: 2000\n\n"
                while (part := await _next(client)) is not None:
                    yield part
        except TooManyStreams:
            return  # many were opened at the same moment
        finally:
            audience.clients.discard(client)
            if not audience.clients:
                self._audiences.pop(view.key, None)

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            news = await self._news()
            for audience in list(self._audiences.values()):
                if news is None or clock() >= audience.due or any(map(audience.view.concerns, news)):
                    await self._renew(audience)
                    audience.due = clock() + audience.view.period

    async def _news(self) -> tuple[Change, ...] | None:
        """The changes of the board, until a part is due; None if some changes are forgotten."""
        now = asyncio.get_running_loop().time()
        due = min((audience.due for audience in self._audiences.values()), default=now + RENEWED)
        try:
            await asyncio.wait_for(self._changed.wait(), max(0.0, due - now))
        except TimeoutError:
            return ()
        self._changed.clear()
        changes = self._web.board.changes_since(self._seen)
        self._seen = changes.last
        return None if changes.reset else changes.changes

    async def _renew(self, audience: _Audience) -> None:
        part = await run_in_threadpool(_event, audience.view)
        if not part or part == audience.sent:
            return
        audience.sent = part
        for client in list(audience.clients):
            try:
                client.put_nowait(part)
            except asyncio.QueueFull:
                audience.clients.discard(client)
                _end(client)


async def _next(client: asyncio.Queue[bytes | None]) -> bytes | None:
    """The next part, or a comment that keeps the connection open; None at the end of the stream."""
    try:
        return await asyncio.wait_for(client.get(), HEARTBEAT)
    except TimeoutError:
        return b": still here\n\n"


def _end(client: asyncio.Queue[bytes | None]) -> None:
    while client.full():
        client.get_nowait()
    client.put_nowait(None)


def _event(view: View) -> bytes:
    """The part as one event; nothing while a server that is needed for it does not answer."""
    try:
        html = view.render()
    except ArklineError:
        return b""
    swapped = f'<hx-partial hx-target="#live" hx-swap="outerMorph">{html}</hx-partial>'
    lines = "".join(f"data: {line}\n" for line in swapped.splitlines())
    return f"{lines}\n".encode()


def streaming(request: Request, caller: Principal, view: View) -> Response:
    pages: LivePages = request.app.state.live
    context_of(request).streams.check_room(caller.name)
    return StreamingResponse(pages.stream(view, caller.name), media_type="text/event-stream", headers=HEADERS)
