"""Consideration for the hosts that content comes from: a place in a line, and peace when they ask for it."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from pipeline.attempt import Attempt


class HostLimiter(Protocol):
    def connection(self, host: str, attempt: Attempt) -> AbstractContextManager[None]:
        """One connection to `host`, for the block; waits for it a while, then raises NotYet."""

    def back_off(self, host: str, seconds: float) -> None:
        """The host asked to be left alone for so long: nobody in the fleet asks it again before."""


class NoLimit:
    """Of a process that knows of no other: it has every host for itself."""

    def connection(self, host: str, attempt: Attempt) -> AbstractContextManager[None]:
        del host, attempt
        return nullcontext()

    def back_off(self, host: str, seconds: float) -> None:
        """The fetcher that was asked to wait does so."""
