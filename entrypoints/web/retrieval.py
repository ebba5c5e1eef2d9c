"""Sends the bytes of stored objects: read and compared in threads of their own, a piece ahead of the client.

Rule: a client that reads slowly holds a place among the retrievals and nothing else: no thread, and no
connection to a database. A transfer whose bytes are damaged has no valid end: its stated length is not
reached.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from entrypoints.web.limits import Rights, TooMany
from pipeline import codes
from pipeline.errors import ArklineError
from pipeline.fixity import READ_CHUNK
from pipeline.outcome import DamagedObject
from tasks.logs import log

RETRIEVALS = 100
"""Maximum retrievals of one process at a time; each holds two pieces of READ_CHUNK."""

RETRIEVALS_OF_ONE = 10
"""Maximum retrievals of one caller at a time, so that one caller leaves room for others."""

READERS = 8
"""Threads that read storage for all retrievals; storage that hangs keeps these and no others."""

RETRY_SECONDS = 10


class Retrievals:
    """The retrievals in progress of one process."""

    def __init__(self, limit: int = RETRIEVALS, limit_of_one: int = RETRIEVALS_OF_ONE) -> None:
        self._limit = limit
        self._limit_of_one = limit_of_one
        self._of_caller: Counter[str] = Counter()  # used by the event loop alone
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="retrieval")

    @property
    def number(self) -> int:
        return self._of_caller.total()

    @contextmanager
    def entered(self, caller: str) -> Iterator[None]:
        """Count the caller's retrieval for the block; `retrievals-full`, `too-many-retrievals`."""
        if self._of_caller[caller] >= self._limit_of_one:
            raise TooMany(
                f"{caller} downloads {self._limit_of_one} files already: wait until one is complete",
                RETRY_SECONDS,
                code=codes.TOO_MANY_RETRIEVALS,
            )
        if self.number >= self._limit:
            raise ArklineError(
                f"the server sends {self._limit} files already: try again soon", code=codes.RETRIEVALS_FULL
            )
        self._of_caller[caller] += 1
        try:
            yield
        finally:
            self._of_caller[caller] -= 1


class _Source:
    """Reads pieces of about READ_CHUNK; one thread at a time, whichever it is."""

    def __init__(self, pieces: Iterator[bytes], rights: Rights, on_damage: Callable[[DamagedObject], None]):
        self._pieces = pieces
        self._rights = rights
        self._on_damage = on_damage
        self._guard = threading.Lock()

    def read(self) -> bytes:
        """The next piece; empty at the end."""
        with self._guard:
            self._rights.check()
            parts, size = [], 0
            try:
                for part in self._pieces:
                    parts.append(part)
                    size += len(part)
                    if size >= READ_CHUNK:
                        break
            except DamagedObject as damage:
                self._on_damage(damage)
                raise
            return b"".join(parts)

    def close(self) -> None:
        with self._guard:
            if (close := getattr(self._pieces, "close", None)) is not None:
                close()


class Retrieval(Response):
    """Bytes of storage as an answer. What fails before the first of them is answered as a problem."""

    def __init__(  # noqa: PLR0913 - an answer has these parts
        self,
        retrievals: Retrievals,
        caller: str,
        pieces: Iterator[bytes],
        headers: Mapping[str, str],
        status: int,
        *,
        on_begin: Callable[[], None],
        on_damage: Callable[[DamagedObject], None],
        check: Callable[[], object] | None,
    ) -> None:
        """`on_begin` is called before the first byte, in the event loop, `on_damage` in a reading thread.
        `check`: raises InvalidToken once the caller's rights have changed; None for a caller in this process.
        """
        super().__init__(None, status, headers)
        del self.headers["Content-Length"]
        self.headers.update(headers)
        self._retrievals = retrievals
        self._caller = caller
        self._on_begin = on_begin
        self._is_local = check is None
        self._source = _Source(pieces, Rights(check), on_damage)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop, readers = asyncio.get_running_loop(), self._retrievals.readers
        with self._retrievals.entered(self._caller):
            gone = asyncio.create_task(_disconnected(receive))
            following = loop.run_in_executor(readers, self._source.read)
            started = False
            try:
                while piece := await following:
                    if gone.done():
                        return
                    following = loop.run_in_executor(readers, self._source.read)
                    if not started:
                        await self._start(send)
                        started = True
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                if not started:
                    await self._start(send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            except ArklineError as error:
                if not started or self._is_local:
                    raise
                log().error("retrieval ended early", error=str(error))
            finally:
                gone.cancel()
                with suppress(RuntimeError):  # the process ends, and with it everything that is open
                    readers.submit(self._source.close)

    async def _start(self, send: Send) -> None:
        self._on_begin()
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
