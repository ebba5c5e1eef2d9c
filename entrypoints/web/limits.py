"""Limits on requests, in the memory of this process.

They count requests per token, wrong tokens per address and requests in progress. Work of unknown length has
its own threads. Rule: work that queries a foreign host, or reads the whole record or fleet, runs there. The
threads for ordinary requests only do work with a known bound.
"""

import asyncio
import contextvars
import inspect
import math
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from operations.tokens import InvalidToken
from pipeline import codes
from pipeline.attempt import Attempt, CheckedAttempt
from pipeline.codes import Code
from pipeline.errors import ArklineError, ServiceUnreachable
from pipeline.outcome import AttemptOver, StepFailed
from tasks.logs import log

REQUESTS_PER_MINUTE = 1200
FILES_PER_MINUTE = 12_000
"""Requests that bring a file to an upload: a deposit may have tens of thousands of files, and their bytes
have a quota."""

WRONG_TOKENS_PER_MINUTE = 30
LOGIN_STARTS_PER_MINUTE = 20
LOGIN_POLLS_PER_MINUTE = 20
LOGIN_CODES_PER_MINUTE = 10
"""Starts of one address, questions with one device code, and codes that one person enters."""

MOST_IN_PROGRESS = 700
"""Maximum requests in progress, including streams and arriving bodies: below the number of connections of
a process that may open 1,024 files, and each holds up to 2 MiB of a body in memory."""

IN_PROGRESS_OF_TOKEN = 200
"""Maximum requests in progress of one token, so that no token locks out the others."""

BODIES = 256 << 20
BODIES_OF_ONE = 64 << 20
"""Maximum bytes of drafts in the memory of one process, all of them and those of one caller; a draft has at
most 32 MiB."""

RETRY = 2
"""Seconds after which a refused body may be sent again."""

MINUTE = 60.0
"""Seconds."""

FEW_KEYS = 1000
"""Keys of which a limit keeps the counts without looking which have ended."""

_IPV6_SITE = 64
"""Prefix length of the IPv6 network of one client, which can use all its addresses."""


LOCAL = "local_principal"
"""Key in the request's state for an in-process caller's principal, to whom no limit applies."""


def is_local(request: Request) -> bool:
    """Whether the caller is in this process."""
    return hasattr(request.state, LOCAL)


class TooMany(ArklineError):
    """A limit on requests or logins was reached; `retry_after`: seconds until the next one is accepted."""

    code = codes.TOO_MANY_REQUESTS

    def __init__(self, message: str, retry_after: int, *, code: Code | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after


class _Window:
    """Limits events per key and minute. Thread-safe.

    By the monotonic clock: a wall clock that is set back by an hour would lock out for an hour whoever sends
    some requests a minute.
    """

    def __init__(self, per_minute: int) -> None:
        self._most = per_minute
        self._guard = threading.Lock()
        self._counts: dict[str, tuple[int, float]] = {}
        """Key -> events in its minute, and when that ends."""
        self._look_at = FEW_KEYS
        """The number of keys at which those whose minute has ended are dropped."""

    def _wait(self, key: str, *, counts: bool = True) -> int:
        """Seconds until the key may continue; 0 if there is room for an event; `counts` uses it up."""
        with self._guard:
            present = time.monotonic()
            number, end = self._counts.get(key, (0, 0.0))
            if end <= present:
                number, end = 0, present + MINUTE
            if number >= self._most:
                return math.ceil(end - present)
            if counts:
                self._counts[key] = number + 1, end
            if len(self._counts) > self._look_at:
                self._counts = {name: one for name, one in self._counts.items() if one[1] > present}
                self._look_at = max(FEW_KEYS, 2 * len(self._counts))
            return 0


class RateLimit(_Window):
    """Limits the requests of a token; `what`: their name in messages, in the plural."""

    def __init__(self, per_minute: int, what: str = "requests") -> None:
        super().__init__(per_minute)
        self._what = what

    def count(self, token_name: str) -> None:
        """`too-many-requests` if this request exceeds the limit."""
        if wait := self._wait(token_name):
            raise TooMany(
                f"the token {token_name} has sent more than {self._most:,} {self._what} in a minute: wait",
                wait,
            )


class Attempts(_Window):
    """Limits what somebody may try, per address or name."""

    def allows(self, key: str) -> bool:
        return not self._wait(key)

    def count(self, key: str, what: str) -> None:
        """`too-many-requests` if this attempt exceeds the limit."""
        if wait := self._wait(key):
            raise TooMany(f"{key} has {what} more than {self._most} times in a minute: wait", wait)


class InProgress:
    """Limits the requests in progress of one process. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._all = 0
        self._of_token: Counter[str] = Counter()

    def enter(self) -> None:
        """Count a request; `too-many-at-once` if the limit is reached."""
        with self._guard:
            if self._all >= MOST_IN_PROGRESS:
                raise ArklineError(
                    f"the server has {MOST_IN_PROGRESS} requests in progress: try again soon",
                    code=codes.TOO_MANY_AT_ONCE,
                )
            self._all += 1

    def count(self, request: Request, token_name: str) -> None:
        """Count the request for its token, once; `too-many-requests` if the token has too many."""
        if getattr(request.state, "counted_for", None) is not None:
            return
        with self._guard:
            if self._of_token[token_name] >= IN_PROGRESS_OF_TOKEN:
                raise TooMany(
                    f"the token {token_name} has {IN_PROGRESS_OF_TOKEN} requests in progress: wait",
                    1,
                )
            self._of_token[token_name] += 1
        request.state.counted_for = token_name

    def leave(self, token_name: str | None) -> None:
        with self._guard:
            self._all -= 1
            if token_name is not None:
                self._of_token[token_name] -= 1
                if not self._of_token[token_name]:
                    del self._of_token[token_name]


class HeldBodies:
    """Limits the bytes of bodies that one process holds in memory. Used by the event loop alone."""

    def __init__(self, most: int = BODIES, of_one: int = BODIES_OF_ONE) -> None:
        self._most = most
        self._of_one = of_one
        self._held: Counter[str] = Counter()

    @contextmanager
    def holding(self, caller: str) -> Iterator[Callable[[int], None]]:
        """Yields the function that counts bytes as they arrive; the block's end releases them."""
        own = 0

        def hold(size: int) -> None:
            nonlocal own
            if self._held[caller] + size > self._of_one:
                raise TooMany(f"{caller} sends other large bodies: wait until they have arrived", RETRY)
            if self._held.total() + size > self._most:
                raise ArklineError(
                    "the server receives many large bodies: try again soon", code=codes.TOO_MANY_AT_ONCE
                )
            own += size
            self._held[caller] += size

        try:
            yield hold
        finally:
            self._held[caller] -= own
            if not self._held[caller]:
                del self._held[caller]


class WrongTokens(_Window):
    """Limits wrong tokens per client address."""

    def check(self, address: str) -> None:
        """`too-many-wrong-tokens` if the address has reached the limit."""
        client = client_of(address)
        if wait := self._wait(client, counts=False):
            raise TooMany(
                f"{client} has sent {self._most} wrong tokens in a minute: wait, then send the right one",
                wait,
                code=codes.TOO_MANY_WRONG_TOKENS,
            )

    def count(self, address: str) -> None:
        """Count a wrong token, and log where it came from."""
        client = client_of(address)
        self._wait(client)
        log().warning("wrong token", client=client)


def client_of(address: str) -> str:
    """The address; for IPv6 its network, because one client can use all its addresses."""
    try:
        known = ip_address(address)
    except ValueError:
        return address or "unknown"
    if not isinstance(known, IPv6Address):
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ip_network((int(known), _IPV6_SITE), strict=False))


T = TypeVar("T")
Route = Callable[..., Awaitable[Any]]

THREADS = 4
"""Default number of such requests that one process handles at a time."""

SECONDS = 20.0
"""Seconds from a request to its answer; proxies and people wait 30 and more."""

LONG = 300.0
"""Seconds for reading the whole record or acting on many jobs; unlimited for `arkline` beside the stack."""

CLIENT_CHECK = 0.5
"""Seconds between two checks whether the client is still connected."""

VALID_SECONDS = 5.0
"""Seconds after which the work checks again that its caller still has the same rights."""

PLACE_CHECK = 0.1
"""Seconds between two attempts to get a place."""


NO_ANSWER = (ServiceUnreachable, StepFailed)
"""What a check of rights raises while the provider or the inventory does not answer."""


class Rights:
    """The rights of one request's caller, while its work lasts."""

    def __init__(self, check: Callable[[], object] | None) -> None:
        self._check = check
        self._checked = time.monotonic()
        self.lost: InvalidToken | None = None

    def check(self) -> None:
        """AttemptOver once they have changed. While the inventory does not answer, they cannot have."""
        if self.lost is None and self._check and time.monotonic() - self._checked >= VALID_SECONDS:
            self._checked = time.monotonic()
            try:
                self._check()
            except InvalidToken as error:
                self.lost = error
            except NO_ANSWER:
                return
        if self.lost is not None:
            raise AttemptOver(str(self.lost)) from self.lost

    def answer(self, error: BaseException) -> BaseException:
        """The answer for a caller who lost the rights; the error may say what was done."""
        if self.lost is None or not isinstance(error, ArklineError):
            return error
        return self.lost if isinstance(error, AttemptOver) else InvalidToken(f"{self.lost}; {error}")


class SlowWork:
    """A pool for slow work. `of_one`: concurrent requests of one caller; `wait`: seconds that a request
    waits for a place, without a thread, before it is refused."""

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
        """Number of requests whose work has not ended."""
        return sum(map(len, self._running.values()))

    async def run(
        self, request: Request, caller: str, work: Callable[[Attempt], T], seconds: float | None = None
    ) -> T:
        """Run `work` and return its result; `already-working`, `no-thread-free`, `took-too-long`.

        The attempt is over on timeout, when the client disconnects, or when the caller's rights change: then
        InvalidToken, unless `work` reports what it did. A thread that does not notice keeps its place until
        it ends.
        """
        within = math.inf if is_local(request) else self._seconds if seconds is None else seconds
        end = await self._place(request, caller, within)
        over = threading.Event()
        rights = Rights(getattr(request.state, "check_again", None))
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
        try:
            threading.Thread(target=context.run, args=(perform,), name="slow work", daemon=True).start()
        except RuntimeError as error:
            self._leave(caller, end)
            raise ArklineError(
                "the system gives the server no further thread: try again soon", code=codes.NO_THREAD_FREE
            ) from error
        answer = asyncio.wrap_future(done)
        answer.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            while not answer.done() and (left := end - time.monotonic()) > 0:
                await asyncio.wait({answer}, timeout=min(CLIENT_CHECK, left))
                if not answer.done() and await request.is_disconnected():
                    break
            if not answer.done():
                raise ArklineError(
                    f"the request was not answered within {within:.0f} seconds: the hosts that it asks are "
                    "slow, or there is much to read; try again later, or with less",
                    code=codes.TOOK_TOO_LONG,
                )
            return answer.result()
        finally:
            over.set()

    async def _place(self, request: Request, caller: str, within: float) -> float:
        """Wait for a place; returns the deadline of the work. `already-working`, `no-thread-free`."""
        latest = time.monotonic() + self._wait
        while True:
            end = time.monotonic() + within
            try:
                self._enter(caller, end)
            except ArklineError:
                if time.monotonic() >= latest or await request.is_disconnected():
                    raise
                await asyncio.sleep(PLACE_CHECK)
            else:
                return end

    def _enter(self, caller: str, end: float) -> None:
        with self._guard:
            own = self._running.get(caller, [])
            if len(own) >= self._of_one:
                raise TooMany(
                    f"another request of {caller} that takes long has not ended: wait for its answer",
                    max(1, math.ceil(min(min(own) - time.monotonic(), self._wait or math.inf))),
                    code=codes.ALREADY_WORKING,
                )
            if self.running >= self._threads:
                raise ArklineError(
                    f"the server answers {self._threads} requests that take long at a time: try again soon",
                    code=codes.NO_THREAD_FREE,
                )
            self._running.setdefault(caller, []).append(end)

    def _leave(self, caller: str, end: float) -> None:
        with self._guard:
            self._running[caller].remove(end)
            if not self._running[caller]:
                del self._running[caller]


def slow(pool: str, seconds: float | None = None) -> Callable[[Callable[..., Any]], Route]:
    """A route whose function runs as slow work, in the pool of this name in the process's context.

    The function may take the `attempt`, or the `run` that ends with it. Its return value is also serialized
    there, because it may be of any length. A check of the caller's rights that needs no work should be a
    dependency: dependencies run before a place is taken.
    """

    def declare(function: Callable[..., Any]) -> Route:
        declared = inspect.signature(function, eval_str=True)
        given = [one for one in declared.parameters.values() if one.name not in ("attempt", "run")]
        of_attempt = declared.parameters.keys() - {one.name for one in given}

        def perform(values: dict[str, Any], attempt: Attempt) -> Any:
            context = values["request"].app.state.context
            known = {"attempt": attempt, "run": context.run_of(attempt)}
            return function(**values, **{name: known[name] for name in of_attempt})

        async def route(**values: Any) -> Any:
            request, caller = values["request"], values["caller"]

            def work(attempt: Attempt) -> Any:
                result = perform(values, attempt)
                if isinstance(result, BaseModel) and "response" not in values:
                    return Response(result.model_dump_json(by_alias=True), media_type="application/json")
                return result

            threads: SlowWork = getattr(request.app.state.context, pool)
            return await threads.run(request, caller.name, work, route.seconds)  # type: ignore[attr-defined]

        route.__name__, route.__doc__, route.__module__ = (
            function.__name__,
            function.__doc__,
            function.__module__,
        )
        route.__signature__ = declared.replace(parameters=given)  # type: ignore[attr-defined]
        route.pool, route.seconds, route.perform = pool, seconds, perform  # type: ignore[attr-defined]
        return route

    return declare
