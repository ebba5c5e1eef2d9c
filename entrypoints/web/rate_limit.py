"""Limits on requests, in the memory of this process: of all, of a token, of wrong tokens from one address."""

import math
import threading
import time
from collections import Counter
from ipaddress import IPv6Address, ip_address, ip_network

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from starlette.requests import Request

from pipeline.errors import ArklineError, ErrorKind
from tasks.logs import log

REQUESTS_PER_MINUTE = 1200
WRONG_TOKENS_PER_MINUTE = 30
MOST_IN_PROGRESS = 700
"""Requests in progress, streams and bodies that arrive included: fewer than connections where a process may
open 1,024 files, and each has up to 2 MiB of a body in memory."""

IN_PROGRESS_OF_TOKEN = 200
"""Those of one token, so that no token keeps out the others."""

_IPV6_SITE = 64
"""Bits of an IPv6 address that name a network of one client, which has all addresses in it."""


LOCAL = "local_principal"
"""Who calls the application in its own process, in the state of a request: no limit holds there."""


def is_local(request: Request) -> bool:
    """Whether the caller is in this process."""
    return hasattr(request.state, LOCAL)


class TooMany(ArklineError):
    """A limit of requests or logins; `retry_after`: seconds until the next one is accepted."""

    error_kind = ErrorKind.REFUSED

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooManyRequests(TooMany):
    """The token has sent more requests than the limit; `Retry-After` says when to continue."""


class TooManyAtOnce(ArklineError):
    """The server has as many requests in progress as it may have; a later one may succeed."""

    error_kind = ErrorKind.UNREACHABLE


class TooManyWrongTokens(TooMany):
    """The address has sent more wrong tokens than the limit; `Retry-After` says when to try again."""


class _Window:
    """A number of events in a minute, for every key."""

    def __init__(self, per_minute: int) -> None:
        self._item = RateLimitItemPerMinute(per_minute)
        self._limiter = FixedWindowRateLimiter(MemoryStorage())

    @property
    def limit(self) -> int:
        return self._item.amount

    def count(self, key: str) -> bool:
        """False if this event exceeds the limit."""
        return self._limiter.hit(self._item, key)

    def has_room(self, key: str) -> bool:
        return self._limiter.test(self._item, key)

    def seconds_left(self, key: str) -> int:
        """Until the key may continue."""
        end = self._limiter.get_window_stats(self._item, key).reset_time
        return max(1, math.ceil(end - time.time()))


class RateLimit:
    """Requests of a token."""

    def __init__(self, per_minute: int = REQUESTS_PER_MINUTE) -> None:
        self._window = _Window(per_minute)

    def count(self, token_name: str) -> None:
        """TooManyRequests if this request exceeds the limit."""
        if not self._window.count(token_name):
            raise TooManyRequests(
                f"the token {token_name} has sent more than {self._window.limit} requests in a minute: wait",
                self._window.seconds_left(token_name),
            )


class InProgress:
    """Of one process. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._all = 0
        self._of_token: Counter[str] = Counter()

    def enter(self) -> None:
        """TooManyAtOnce if this request is one too many."""
        with self._guard:
            if self._all >= MOST_IN_PROGRESS:
                raise TooManyAtOnce(f"the server has {MOST_IN_PROGRESS} requests in progress: try again soon")
            self._all += 1

    def count(self, request: Request, token_name: str) -> None:
        """Note whose the request is, once; TooManyRequests if the token has too many."""
        if getattr(request.state, "counted_for", None) is not None:
            return
        with self._guard:
            if self._of_token[token_name] >= IN_PROGRESS_OF_TOKEN:
                raise TooManyRequests(
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


class WrongTokens:
    """Wrong tokens from one client address."""

    def __init__(self, per_minute: int = WRONG_TOKENS_PER_MINUTE) -> None:
        self._window = _Window(per_minute)

    def check(self, address: str) -> None:
        """TooManyWrongTokens if the address has reached the limit."""
        client = client_of(address)
        if not self._window.has_room(client):
            raise TooManyWrongTokens(
                f"{client} has sent {self._window.limit} wrong tokens in a minute: wait, then send the right "
                "one",
                self._window.seconds_left(client),
            )

    def count(self, address: str) -> None:
        """Count a wrong token, and log where it came from."""
        client = client_of(address)
        self._window.count(client)
        log().warning("wrong token", client=client)


def client_of(address: str) -> str:
    """The address; of IPv6 its network, because one client has all addresses of it."""
    try:
        known = ip_address(address)
    except ValueError:
        return address or "unknown"
    if not isinstance(known, IPv6Address):
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ip_network((int(known), _IPV6_SITE), strict=False))
