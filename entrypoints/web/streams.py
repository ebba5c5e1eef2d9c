"""Server-sent events of the board's changes: each change is rendered once, for all streams.

A stream sends absolute values. A client that reconnects with `Last-Event-ID` gets what it missed or, if that
was discarded, the event `reset`, after which it reads its lists again.
"""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import lru_cache

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from operations.board.board import Board
from operations.board.values import Change, scope_of
from operations.tokens import InvalidToken
from pipeline import codes
from pipeline.errors import ArklineError
from pipeline.principal import Principal

STREAMS = 500
"""Maximum number of streams of one process."""

STREAMS_OF_TOKEN = 100
"""Maximum number of streams of one token, so that one caller leaves room for others."""

HEARTBEAT = 15.0
"""Seconds after which an idle stream sends a comment, so that proxies keep it open."""

FLUSH = 0.25
"""Minimum seconds between two writes to a stream."""

VALID_SECONDS = 5.0
"""Seconds after which a stream checks again, before it writes, that its caller still has its rights."""

CHECKS = 2
"""Threads that check rights for all streams, so that a slow inventory delays no request."""

CHECK_SECONDS = 1.0
"""Seconds that a stream waits for the check; after that it continues, and ends when the answer says so."""

RETRY_MS = 2000
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Streams:
    """The open streams of one process."""

    def __init__(self, limit: int = STREAMS, limit_of_token: int = STREAMS_OF_TOKEN) -> None:
        self._limit = limit
        self._limit_of_token = limit_of_token
        self._guard = threading.Lock()
        self._wakes: dict[Callable[[], object], str] = {}
        self.closed = False
        self.checks = ThreadPoolExecutor(CHECKS, thread_name_prefix="check")

    @property
    def number(self) -> int:
        return len(self._wakes)

    def close(self) -> None:
        """End every stream; called when the server stops."""
        with self._guard:
            self.closed = True
            wakes = tuple(self._wakes)
        self.checks.shutdown(wait=False, cancel_futures=True)
        for wake in wakes:
            wake()

    @contextmanager
    def entered(self, wake: Callable[[], object], token: str) -> Iterator[None]:
        """Count the token's stream while it is open; `too-many-streams` if there is no room."""
        with self._guard:
            own, refused = list(self._wakes.values()).count(token), ""
            if self.closed or self.number >= self._limit:
                refused = f"{self.number} streams are open, and {self._limit} are served at a time"
            elif own >= self._limit_of_token:
                refused = f"the token {token} has {own} streams open, as many as a token may have"
            if refused:
                raise ArklineError(refused, code=codes.TOO_MANY_STREAMS)
            self._wakes[wake] = token
        try:
            yield
        finally:
            with self._guard:
                self._wakes.pop(wake, None)


@dataclass(frozen=True)
class Opening:
    """What a stream sends, and `wake`, which makes it check whether the streams are closed."""

    wake: Callable[[], object]
    events: AsyncGenerator[bytes]


class EventStream(StreamingResponse):
    """Counted before its first byte: of many streams opened at once, those beyond the limit are refused
    rather than accepted and ended. Ends when the caller's token, login or rights end."""

    def __init__(
        self, streams: Streams, token: str, check: Callable[[], object], begin: Callable[[], Opening]
    ) -> None:
        """`check`: raises InvalidToken once the stream has to end."""
        super().__init__(iter(()), media_type="text/event-stream", headers=HEADERS)
        self._streams = streams
        self._token = token
        self._check = check
        self._begin = begin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        opening = self._begin()
        with self._streams.entered(opening.wake, self._token):
            self.body_iterator = self._while_valid(opening.events)
            await super().__call__(scope, receive, send)

    async def _while_valid(self, events: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
        """The events, and a final one once the caller has to authenticate again.

        An unreachable inventory ends no stream: nothing can be revoked in it.
        """
        loop = asyncio.get_running_loop()
        checked, check = loop.time(), None
        async with aclosing(events):
            async for part in events:
                if check is None and loop.time() - checked >= VALID_SECONDS:
                    check = loop.run_in_executor(self._streams.checks, self._check)
                    await asyncio.wait([check], timeout=CHECK_SECONDS)
                if check is not None and check.done():
                    if isinstance(error := check.exception(), InvalidToken):
                        yield f"event: unauthorized\ndata: {json.dumps({'detail': str(error)})}\n\n".encode()
                        return
                    checked, check = loop.time(), None
                yield part


def stream(
    streams: Streams,
    board: Board,
    caller: Principal,
    check: Callable[[], object],
    last_event_id: str | None,
    admits: Callable[[Change], bool],
) -> EventStream:
    """The changes that the caller may see and `admits` accepts, as they happen."""

    def begin() -> Opening:
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        return Opening(wake, events(wake, changed))

    async def events(wake: Callable[[], None], changed: asyncio.Event) -> AsyncGenerator[bytes]:
        scope, unsubscribe = scope_of(caller), board.subscribe(wake)
        try:
            news = board.changes_since(last_event_id, scope)
            # a client that is cut off here asks from this id on: what it missed is still to come
            at = news.last if news.reset or not last_event_id else last_event_id
            yield f"retry: {RETRY_MS}\nid: {at}\nevent: {'reset' if news.reset else 'open'}\n".encode()
            yield b"data: {}\n\n"
            while not streams.closed:
                for change in news.changes:
                    if admits(change):
                        yield rendered(change)
                await asyncio.sleep(FLUSH)
                if not await woken(changed, HEARTBEAT):
                    yield b": still here\n\n"
                changed.clear()
                news = board.changes_since(news.last, scope)
                if news.reset:
                    yield f"id: {news.last}\nevent: reset\ndata: {{}}\n\n".encode()
        finally:
            unsubscribe()

    return EventStream(streams, caller.name, check, begin)


async def woken(changed: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(changed.wait(), seconds)
    except TimeoutError:
        return False
    return True


@lru_cache(maxsize=4096)
def rendered(change: Change) -> bytes:
    """The change as an event, without the owner's identity."""
    body = change.model_dump_json(exclude={"id", "owner"})
    return f"id: {change.id}\nevent: {change.kind}\ndata: {body}\n\n".encode()
