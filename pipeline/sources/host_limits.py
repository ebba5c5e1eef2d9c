"""Limits per source host and port: the number of connections, and pauses that the host requested."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from pipeline.attempt import Attempt


class HostLimiter(Protocol):
    """`host`: host and port, as urls.place_of writes them."""

    def connection(self, host: str, attempt: Attempt) -> AbstractContextManager[None]:
        """One connection to `host`, for the block; waits for it a while, then raises RateLimited.

        HostDown if the host did not answer a moment ago, HostGivenUp if it has not for long.
        """

    def redirected(self, start: str, host: str, attempt: Attempt) -> None:
        """A request to `start`, which has a connection, is redirected to `host`: wait as for a connection."""

    def back_off(self, host: str, seconds: float, cause: str = "") -> None:
        """The host sent Retry-After: no worker sends it a request for so many seconds.

        `cause`: what it answered, without a URL.
        """

    def no_answer(self, host: str, cause: str) -> None:
        """The host was not reached, or sent nothing in time: one worker probes it, and the others wait."""

    def answered(self, host: str) -> None:
        """The host answered a request."""


class NoLimit:
    """No limits, for a process that shares its sources with no other process."""

    def connection(self, host: str, attempt: Attempt) -> AbstractContextManager[None]:
        del host, attempt
        return nullcontext()

    def redirected(self, start: str, host: str, attempt: Attempt) -> None: ...

    def back_off(self, host: str, seconds: float, cause: str = "") -> None:
        """The fetcher itself waits before its next try."""

    def no_answer(self, host: str, cause: str) -> None: ...

    def answered(self, host: str) -> None: ...


NO_LIMIT: HostLimiter = NoLimit()
