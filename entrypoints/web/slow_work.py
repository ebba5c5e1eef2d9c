"""Work of unknown length: in threads of its own, one for each caller, ended after some seconds.

Rule: what asks a foreign host, or reads the whole record or fleet, runs here. The threads that answer
ordinary requests do only what has a known end.
"""

import asyncio
import contextvars
import inspect
import math
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from entrypoints.web.rate_limit import TooMany, is_local
from operations.tokens import InvalidToken
from pipeline.attempt import Attempt, CheckedAttempt
from pipeline.errors import ArklineError, ErrorKind, ServiceUnreachable
from pipeline.outcome import AttemptOver

T = TypeVar("T")
Route = Callable[..., Awaitable[Any]]

THREADS = 4
"""Requests of this kind that one process answers at a time."""

SECONDS = 20.0
"""Seconds from the request to its answer; proxies and people wait for 30 and more."""

LONG = 300.0
"""Seconds of what reads the whole record, or acts on many jobs: `arkline` beside the stack has no limit."""

CLIENT_CHECK = 0.5
"""Seconds between two looks whether the client is still there."""

VALID_SECONDS = 5.0
"""After this time the work asks again whether its caller still has the same rights."""

PLACE_CHECK = 0.1
"""Seconds between two looks for a place."""


class AlreadyWorking(TooMany):
    """The caller has sent a second request of this kind before the first was answered."""


class NoThreadFree(ArklineError):
    """As many requests of this kind are answered as the process has threads for; a later one may succeed."""

    error_kind = ErrorKind.UNREACHABLE


class TookTooLong(ArklineError):
    """The work was not done in time, and was ended."""

    error_kind = ErrorKind.UNREACHABLE


class _Rights:
    """Those of the caller of one request, while its work lasts."""

    def __init__(self, check: Callable[[], object] | None) -> None:
        self._check = check
        self._checked = time.monotonic()
        self.lost: InvalidToken | None = None

    def check(self) -> None:
        """AttemptOver once they have changed. Nothing changes in an inventory that does not answer."""
        if self.lost is None and self._check and time.monotonic() - self._checked >= VALID_SECONDS:
            self._checked = time.monotonic()
            try:
                self._check()
            except InvalidToken as error:
                self.lost = error
            except ServiceUnreachable:
                return
        if self.lost is not None:
            raise AttemptOver(str(self.lost)) from self.lost

    def answer(self, error: BaseException) -> BaseException:
        """The answer to a caller who has lost them; the error may say what was done."""
        if self.lost is None or not isinstance(error, ArklineError):
            return error
        return self.lost if isinstance(error, AttemptOver) else InvalidToken(f"{self.lost}; {error}")


class SlowWork:
    """The work of one process. `of_one`: requests of one caller at a time; `wait`: seconds that a request
    waits for a place before it is refused, without a thread."""

    def __init__(
        self, threads: int = THREADS, seconds: float = SECONDS, of_one: int = 1, wait: float = 0.0
    ) -> None:
        self._threads = threads
        self._seconds = seconds
        self._of_one = of_one
        self._wait = wait
        self._guard = threading.Lock()
        self._running: dict[str, list[float]] = {}
        """The deadlines of a caller's work, by the monotonic clock."""

    @property
    def running(self) -> int:
        """Requests whose work has not ended."""
        return sum(map(len, self._running.values()))

    async def run(
        self, request: Request, caller: str, work: Callable[[Attempt], T], seconds: float | None = None
    ) -> T:
        """What `work` returns; AlreadyWorking, NoThreadFree, TookTooLong.

        The attempt is over once the time is, the client has left, or the caller's rights have changed: then
        InvalidToken, if `work` has nothing to tell of what it did. A thread that does not notice keeps its
        place until it ends.
        """
        within = math.inf if is_local(request) else self._seconds if seconds is None else seconds
        end = await self._place(request, caller, within)
        over = threading.Event()
        rights = _Rights(getattr(request.state, "check_again", None))
        done: Future[T] = Future()
        done.set_running_or_notify_cancel()

        def check() -> None:
            if over.is_set():
                raise AttemptOver("nobody waits for this answer any more")
            rights.check()

        def perform() -> None:
            try:
                result = work(CheckedAttempt(check))
            except BaseException as error:  # noqa: BLE001 - raised where the request waits
                self._leave(caller, end)
                done.set_exception(rights.answer(error))
            else:
                self._leave(caller, end)
                done.set_result(result)

        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(perform,), name="slow work", daemon=True).start()
        answer = asyncio.wrap_future(done)
        answer.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            while not answer.done() and (left := end - time.monotonic()) > 0:
                await asyncio.wait({answer}, timeout=min(CLIENT_CHECK, left))
                if not answer.done() and await request.is_disconnected():
                    break
            if not answer.done():
                raise TookTooLong(
                    f"the request was not answered within {within:.0f} seconds: the hosts that it asks are "
                    "slow, or there is much to read; try again later, or with less"
                )
            return answer.result()
        finally:
            over.set()

    async def _place(self, request: Request, caller: str, within: float) -> float:
        """When the work has to end that has a place now; AlreadyWorking, NoThreadFree."""
        latest = time.monotonic() + self._wait
        while True:
            end = time.monotonic() + within
            try:
                self._enter(caller, end)
            except (AlreadyWorking, NoThreadFree):
                if time.monotonic() >= latest or await request.is_disconnected():
                    raise
                await asyncio.sleep(PLACE_CHECK)
            else:
                return end

    def _enter(self, caller: str, end: float) -> None:
        with self._guard:
            own = self._running.get(caller, [])
            if len(own) >= self._of_one:
                raise AlreadyWorking(
                    f"another request of {caller} that takes long has not ended: wait for its answer",
                    max(1, math.ceil(min(min(own) - time.monotonic(), self._wait or math.inf))),
                )
            if self.running >= self._threads:
                raise NoThreadFree(
                    f"the server answers {self._threads} requests that take long at a time: try again soon"
                )
            self._running.setdefault(caller, []).append(end)

    def _leave(self, caller: str, end: float) -> None:
        with self._guard:
            self._running[caller].remove(end)
            if not self._running[caller]:
                del self._running[caller]


def slow(pool: str, seconds: float | None = None) -> Callable[[Callable[..., Any]], Route]:
    """A route whose function runs as slow work, in the pool of this name in the context of the process.

    The function may take the `attempt`. A value that it returns is written there too: how long it is, is not
    known.
    """

    def declare(function: Callable[..., Any]) -> Route:
        declared = inspect.signature(function, eval_str=True)
        given = [one for one in declared.parameters.values() if one.name != "attempt"]
        attended = len(given) < len(declared.parameters)

        async def route(**values: Any) -> Any:
            request, caller = values["request"], values["caller"]

            def perform(attempt: Attempt) -> Any:
                result = function(**values, attempt=attempt) if attended else function(**values)
                if isinstance(result, BaseModel) and "response" not in values:
                    return Response(result.model_dump_json(by_alias=True), media_type="application/json")
                return result

            work: SlowWork = getattr(request.app.state.context, pool)
            return await work.run(request, caller.name, perform, route.seconds)  # type: ignore[attr-defined]

        route.__name__, route.__doc__, route.__module__ = (
            function.__name__,
            function.__doc__,
            function.__module__,
        )
        route.__signature__ = declared.replace(parameters=given)  # type: ignore[attr-defined]
        route.pool, route.seconds = pool, seconds  # type: ignore[attr-defined]
        return route

    return declare
