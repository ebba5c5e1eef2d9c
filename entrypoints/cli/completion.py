"""What the shell completes beside commands and options: profiles, types, queues and ids.

Rule: a completion never disturbs the prompt. What cannot be read at once is not offered, and nothing is said.
Help needs this module, so what is slow to load is imported where a completion uses it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator

from pipeline.states import JOB, JobState, Queue

TIMEOUT = 1.0
"""Seconds to wait for ZooKeeper."""

MOST = 50
"""Ids that are offered: the newest."""

_MANY = (JobState.PENDING, JobState.COMPLETED)
"""States of too many jobs for a choice."""


def profiles(incomplete: str) -> list[str]:
    return _beginning(incomplete, _profiles)


def types(incomplete: str) -> list[str]:
    """Of payloads."""
    return _beginning(incomplete, _types)


def queues(incomplete: str) -> list[str]:
    """The last one of a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{queue}" for queue in Queue if queue.startswith(last)]


def bids(incomplete: str) -> list[str]:
    return _beginning(incomplete, _bids)


def jids(incomplete: str) -> list[str]:
    """Of jobs that are neither pending nor completed."""
    return _beginning(incomplete, _jids)


def ids(incomplete: str) -> list[str]:
    if incomplete.startswith("bid"):
        return bids(incomplete)
    return jids(incomplete) if incomplete.startswith("j") else [*bids(incomplete), *jids(incomplete)]


def _beginning(incomplete: str, read: Callable[[], Iterable[str]]) -> list[str]:
    logging.disable(logging.CRITICAL)
    try:
        return [name for name in read() if name.startswith(incomplete)][:MOST]
    except Exception:  # noqa: BLE001 - whatever is wrong is said by the command itself
        return []
    finally:
        logging.disable(logging.NOTSET)


def _profiles() -> Iterable[str]:
    from pipeline.profiles.profile import Profiles
    from pipeline.settings import Settings

    return Profiles(Settings().profiles).names()


def _types() -> Iterable[str]:
    from pipeline.records import SubmissionType

    return [kind.value.replace("_", "-") for kind in SubmissionType]


def _bids() -> Iterator[str]:
    from pipeline.settings import Settings
    from zkstate.connection.session import connect
    from zkstate.queue import listings

    with connect(Settings(), TIMEOUT, create=False, answer_timeout=TIMEOUT) as session:
        yield from sorted(listings.all_batches(session), reverse=True)


def _jids() -> Iterator[str]:
    from pipeline.settings import Settings
    from zkstate.connection.session import connect
    from zkstate.queue import queue

    states = [state for state in JOB.where(lambda facts: facts.queued) if state not in _MANY]
    with connect(Settings(), TIMEOUT, create=False, answer_timeout=TIMEOUT) as session:
        queued = (jid for state in states for jid in queue.queued(session, state))
        yield from sorted(queued, reverse=True)
