"""Pages that stay current: one stream per open page sends a part of the page when something changes.

A part is rendered once for all clients that see the same, and sent to them as the same bytes. A slow client
skips to the newest part.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from fastapi import Request
from fastapi.responses import Response

from entrypoints.web.authentication import check_again
from entrypoints.web.context import WebContext, context_of
from entrypoints.web.pages.whole import WholeFleet
from entrypoints.web.streams import HEARTBEAT, EventStream, Opening, woken
from operations.board.values import Change
from pipeline.errors import ArklineError
from pipeline.principal import Principal

RENEWED = 5.0
"""Seconds without a change after which a page is rendered again: for ages of services, workers, outages."""

RENDERERS = 4
"""Number of rendering threads, so that one waiting for ZooKeeper does not block the others."""

_log = logging.getLogger("arkline.web")


@dataclass(frozen=True)
class View:
    """What is rendered once: clients with equal keys get the same bytes."""

    key: tuple[str, ...]
    render: Callable[[], str] = field(compare=False)
    concerns: Callable[[Change], bool] = field(compare=False)
    period: float = RENEWED
    """Seconds without a change after which it is rendered again."""
    of_fleet: bool = False
    """Whether it shows the whole fleet, and is rendered again after the fleet has answered."""


@dataclass(eq=False)
class _Audience:
    """The clients of one view."""

    view: View
    clients: int = 0
    part: bytes = b""
    """The latest rendering."""
    number: int = 0
    """The number of the latest rendering."""
    rendered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the next rendering."""
    due: float = 0.0
    """When it is next rendered without a change, on the event loop's clock."""
    rendering: asyncio.Task[None] | None = None


class LivePages:
    """Renders the parts of open pages when the board changes; one instance per process.

    It runs on the web server's event loop, and renders in its own threads: a part that is slow, or fails to
    render, delays no other.
    """

    def __init__(self, web: WebContext) -> None:
        self._web = web
        self._audiences: dict[tuple[str, ...], _Audience] = {}
        self._changed = asyncio.Event()
        self._fleet_answered = False
        self._seen = ""
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._threads = ThreadPoolExecutor(RENDERERS, thread_name_prefix="render")

    async def start(self, whole: WholeFleet) -> None:
        loop = asyncio.get_running_loop()

        def fleet_answered() -> None:
            self._fleet_answered = True
            self._changed.set()

        def from_thread(wake: Callable[[], object]) -> None:
            with suppress(RuntimeError):  # the loop has ended: there is no client any more
                loop.call_soon_threadsafe(wake)

        self._unsubscribe = self._web.board.subscribe(partial(from_thread, self._changed.set))
        whole.subscribe(partial(from_thread, fleet_answered))
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop rendering; the server has ended the streams."""
        if self._unsubscribe:
            self._unsubscribe()
        if self._task:
            self._task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def opening(self, view: View) -> Opening:
        """The view's parts as server-sent events, from now on."""
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, self._wake)
        return Opening(wake, self._parts(view))

    def _wake(self) -> None:
        for audience in self._audiences.values():
            audience.rendered.set()

    async def _parts(self, view: View) -> AsyncGenerator[bytes]:
        audience = self._audiences.setdefault(view.key, _Audience(view))
        audience.clients += 1
        audience.due = 0.0  # the client's page may be older than the last part
        self._changed.set()
        sent, rendered_number = b"", audience.number
        try:
            yield b"retry: 2000\n\n"
            while not self._web.streams.closed:
                if audience.number == rendered_number and not await woken(audience.rendered, HEARTBEAT):
                    yield b": still here\n\n"
                    continue
                rendered_number = audience.number
                if audience.part != sent:
                    sent = audience.part
                    yield sent
        finally:
            audience.clients -= 1
            if not audience.clients:
                del self._audiences[view.key]

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            changes = await self._changes()
            fleet_answered, self._fleet_answered = self._fleet_answered, False
            for audience in self._audiences.values():
                view = audience.view
                concerned = changes is None or any(map(view.concerns, changes))
                if concerned or (view.of_fleet and fleet_answered):
                    audience.due = 0.0
                if audience.due <= clock() and audience.rendering is None:
                    audience.due = clock() + view.period
                    audience.rendering = asyncio.create_task(self._renew(audience))

    async def _changes(self) -> tuple[Change, ...] | None:
        """The board's changes, once there are some or a part is due; None if some were discarded."""
        now = asyncio.get_running_loop().time()
        idle = (audience.due for audience in self._audiences.values() if audience.rendering is None)
        try:
            await asyncio.wait_for(self._changed.wait(), max(0.0, min(idle, default=now + RENEWED) - now))
        except TimeoutError:
            return ()
        self._changed.clear()
        changes = self._web.board.changes_since(self._seen)
        self._seen = changes.last
        return None if changes.reset else changes.changes

    async def _renew(self, audience: _Audience) -> None:
        try:
            part = await asyncio.get_running_loop().run_in_executor(self._threads, _event, audience.view)
        finally:
            audience.rendering = None
            self._changed.set()  # it may be due again
        if part:
            audience.part, audience.number = part, audience.number + 1
            audience.rendered.set()
            audience.rendered = asyncio.Event()


def _event(view: View) -> bytes:
    """The part as one event; empty while a server that it needs does not answer.

    A fault in one part is logged and ends no stream: the part is rendered again after its period.
    """
    try:
        html = view.render()
    except ArklineError:
        return b""
    except Exception:  # noqa: BLE001 - logged: the stream goes on
        _log.exception("the part %s of a page cannot be rendered", "/".join(view.key[:2]))
        return b""
    swapped = f'<hx-partial hx-target="#live" hx-swap="outerMorph">{html}</hx-partial>'
    lines = "".join(f"data: {line}\n" for line in swapped.splitlines())
    return f"{lines}\n".encode()


def streaming(request: Request, caller: Principal, view: View) -> Response:
    pages: LivePages = request.app.state.live
    check = partial(check_again, request, caller)
    return EventStream(context_of(request).streams, caller.name, check, partial(pages.opening, view))
