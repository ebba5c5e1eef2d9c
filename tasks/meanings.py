"""What an exception means for the work that it ends."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

from kombu.exceptions import OperationalError

from pipeline.errors import UsageRefused
from pipeline.outcome import AttemptOver, Later, ServiceDown, StepFailed, Stopping
from tasks.logs import log
from zkstate.errors import (
    Ambiguous,
    Busy,
    Corrupt,
    Missing,
    ServerLimit,
    Stale,
    TooBig,
    Unreachable,
    Unwritable,
)


class Meaning(Enum):
    """The meaning of an exception for the work that it ends."""

    SUPERSEDED = "another attempt or an operator was first: the ticket is void"
    DISCONNECTED = "ZooKeeper's answer is missing: drop the session; the sweep continues"
    NO_BROKER = "Redis does not answer: nothing is sent; the sweep continues"
    STOPPING = "the worker stops: hand the record back"
    LATER = "something has to be waited for: hand the record back, and count no try"
    SERVICE_DOWN = "a shared service is at fault: hand the record back, and count no try"
    FAULT = "the work failed: try again later if the fault is transient, else fail"
    DAMAGED = "a znode is unreadable: hand the record back, with the longest delay"
    UNEXPECTED = "a mistake in the code: drop the session; the sweep tries again, less and less often"


MEANINGS: Mapping[type[BaseException], Meaning] = {
    Stale: Meaning.SUPERSEDED,
    Busy: Meaning.SUPERSEDED,
    Missing: Meaning.SUPERSEDED,
    AttemptOver: Meaning.SUPERSEDED,
    Unreachable: Meaning.DISCONNECTED,
    Ambiguous: Meaning.DISCONNECTED,
    OperationalError: Meaning.NO_BROKER,
    Stopping: Meaning.STOPPING,
    SystemExit: Meaning.STOPPING,
    KeyboardInterrupt: Meaning.STOPPING,
    Later: Meaning.LATER,
    ServiceDown: Meaning.SERVICE_DOWN,
    StepFailed: Meaning.FAULT,
    UsageRefused: Meaning.FAULT,
    TooBig: Meaning.FAULT,
    ServerLimit: Meaning.FAULT,
    Unwritable: Meaning.FAULT,
    Corrupt: Meaning.DAMAGED,
}


def meaning_of(error: BaseException) -> Meaning:
    """The meaning of the most specific class in MEANINGS."""
    kinds = type(error).__mro__
    return next((MEANINGS[kind] for kind in kinds if kind in MEANINGS), Meaning.UNEXPECTED)


def is_mistake(error: Exception) -> bool:
    """A mistake in the code, or a damaged znode."""
    return meaning_of(error) in (Meaning.UNEXPECTED, Meaning.DAMAGED)


@contextmanager
def mistakes_as(
    unexpected: Callable[[str], StepFailed], damaged: Callable[[str], StepFailed]
) -> Iterator[None]:
    """Raise `unexpected`, or `damaged` for a znode, with a message, in place of a mistake."""
    try:
        yield
    except Exception as error:
        if not is_mistake(error):
            raise
        log().exception("work failed unexpectedly")
        if isinstance(error, Corrupt):
            raise damaged(str(error)) from error
        raise unexpected(f"unexpected {type(error).__name__}: {error}") from error
