"""What an exception means for the work that it ends; when failed work is retried, and when no longer.

| fault | next try | last try |
|---|---|---|
| of the job, transient | `ARKLINE_BACKOFF` s, doubled each time, to BACKOFF_LIMIT | `ARKLINE_MAX_TRIES` |
| of a shared service | when the service works again: `tasks.outages` | none; an own fault counts as a try |
| of a source host | as the host asks | `hosts_given_up_after` |
| a lost worker | after `zkstate.queue.recovery.GRACE`, doubled with each loss | `ARKLINE_MAX_REDISPATCHES` |
| a damaged znode | after BACKOFF_LIMIT | none |
| of the content | none | the first |
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache

from kombu.exceptions import OperationalError

from pipeline import causes
from pipeline.errors import UsageRefused
from pipeline.outcome import AttemptOver, Later, ServiceDown, StepFailed, Stopping
from pipeline.records import Batch, Job, now
from pipeline.settings import Settings
from tasks.logs import log
from tasks.worker_context import WorkerContext
from zkstate.errors import (
    Ambiguous,
    Busy,
    Corrupt,
    Missing,
    Stale,
    TooBig,
    Unreachable,
    Unwritable,
)

BACKOFF_LIMIT = 1800.0
"""Maximum seconds between two tries."""

OWN_AFTER = 1
"""Faults of a shared service, met by one record, after which a further one counts as a try of that record if
the service worked for others meanwhile: the service rejects this record, whatever its status code says."""

OWN_AFTER_MOUNTED = 5
"""The same for a fault of a file system, which one host after another may meet."""


def delay_before_retry(failure: StepFailed, tries: int, settings: Settings) -> float | None:
    """Seconds until the next try, if `tries` tries failed before this one; None if there is no next try.

    At least the time that the other service asked for. ZooKeeper's clock measures the delay.
    """
    if not failure.is_tried_again or tries + 1 >= settings.max_tries:
        return None
    delay: float = min(settings.backoff * 2**tries, BACKOFF_LIMIT)
    return max(delay, failure.retry_after or 0)


def hosts_given_up_after(record: Job | Batch, settings: Settings) -> float:
    """Seconds after which the record gives up a host that answers nobody: the duration of all its own tries.

    Infinite until the record has been in its state that long: before, faults met by others do not count.
    """
    lasting = _duration_of_tries(settings.max_tries, settings.backoff)
    waited = (now() - record.status.since).total_seconds()
    return lasting if waited >= lasting else math.inf


@cache  # computed at the start of every state
def _duration_of_tries(tries: int, backoff: float) -> float:
    return sum((min(backoff * 2**number, BACKOFF_LIMIT) for number in range(tries - 1)), 0.0)


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
    Unwritable: Meaning.FAULT,
    Corrupt: Meaning.DAMAGED,
}


def meaning_of(error: BaseException) -> Meaning:
    """The meaning of the most specific class in MEANINGS."""
    kinds = type(error).__mro__
    return next((MEANINGS[kind] for kind in kinds if kind in MEANINGS), Meaning.UNEXPECTED)


def is_mistake(error: Exception) -> bool:
    """Whether the error is a mistake in the code, or a damaged znode."""
    return meaning_of(error) in (Meaning.UNEXPECTED, Meaning.DAMAGED)


@contextmanager
def mistakes_as(
    unexpected: Callable[[str], StepFailed], damaged: Callable[[str], StepFailed]
) -> Iterator[None]:
    """Raise `unexpected` for a mistake in the code, or `damaged` for a damaged znode, with a message."""
    try:
        yield
    except Exception as error:
        if not is_mistake(error):
            raise
        log().exception("work failed unexpectedly")
        if isinstance(error, Corrupt):
            raise damaged(str(error)).because(causes.RECORD_DAMAGED()) from error
        failure = unexpected(f"unexpected {type(error).__name__}: {error}")
        raise failure.because(causes.MISTAKE(error=type(error).__name__)) from error


@dataclass
class GivenUp:
    """Why a block of work was given up, for the caller; empty and None if it was not."""

    reason: str = ""
    meaning: Meaning | None = None


@contextmanager
def giving_up(context: WorkerContext, *, locks: bool = True, **facts: object) -> Iterator[GivenUp]:
    """Log the exception that ends this block, with `facts`; drop the session if the session is in doubt.

    `locks`: False if the block takes no lock and the session is used afterwards.
    """
    given_up = GivenUp()
    try:
        yield given_up
    except Exception as error:  # noqa: BLE001 - logged, and said to the caller
        given_up.reason, given_up.meaning = str(error), meaning_of(error)
        match given_up.meaning:
            case Meaning.SUPERSEDED:
                log().info("superseded", reason=str(error), **facts)
            case Meaning.DISCONNECTED:
                log().warning(
                    "attempt abandoned; the sweep redispatches the record", error=str(error), **facts
                )
                context.drop_session()
            case Meaning.NO_BROKER:
                log().warning(
                    "Redis does not answer; the sweep dispatches the record", error=str(error), **facts
                )
            case Meaning.SERVICE_DOWN if isinstance(error, ServiceDown):
                context.stores().log_once(error)
                context.drop_session()
            case Meaning.DAMAGED:
                log().error("record unreadable", error=str(error), **facts)
            case Meaning.STOPPING:
                log().info("stopped", reason=str(error), **facts)
            case _:
                log().exception("failed unexpectedly", **facts)
                if locks:
                    context.drop_session()
