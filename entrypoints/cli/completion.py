"""Shell completion for values: profiles, types, queues and ids.

Rule: completion never disturbs the prompt. What cannot be read at once is not offered, and no error is shown.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable

from entrypoints.cli import api
from pipeline import records
from pipeline.states import JOB, JobState, Queue

TIMEOUT = 1.0
"""Seconds to wait for the site."""

MOST = 50
"""Maximum number of ids offered, newest first."""

_MANY = (JobState.PENDING, JobState.COMPLETED)
"""States with too many jobs to choose from."""


def profiles(incomplete: str) -> list[str]:
    return _beginning(incomplete, lambda: _named("/v1/profiles", "profiles", "name"))


def types(incomplete: str) -> list[str]:
    """Payload types."""
    return _beginning(incomplete, lambda: (kind.replace("_", "-") for kind in records.SubmissionType))


def queues(incomplete: str) -> list[str]:
    """Completes the last queue of a comma-separated list."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{queue}" for queue in Queue if queue.startswith(last)]


def bids(incomplete: str) -> list[str]:
    return _beginning(incomplete, lambda: _named(f"/v1/batches?limit={MOST}", "rows", "bid"))


def jids(incomplete: str) -> list[str]:
    """Ids of jobs that are neither pending nor completed."""
    return _beginning(incomplete, _jids)


def ids(incomplete: str) -> list[str]:
    if incomplete.startswith("bid"):
        return bids(incomplete)
    return jids(incomplete) if incomplete.startswith("j") else [*bids(incomplete), *jids(incomplete)]


def _beginning(incomplete: str, read: Callable[[], Iterable[str]]) -> list[str]:
    logging.disable(logging.CRITICAL)
    try:
        return [name for name in read() if name.startswith(incomplete)][:MOST]
    except Exception:  # noqa: BLE001 - the command itself reports any error
        return []
    finally:
        logging.disable(logging.NOTSET)


def _named(path: str, rows: str, name: str) -> list[str]:
    """Names from a list of the site in ARKLINE_URL only: calling it in this process would take seconds."""
    site = api.client()
    if site is None:
        return []
    return [row[name] for row in dataclasses.replace(site, timeout=TIMEOUT).get_json(path)[rows]]


def _jids() -> list[str]:
    states = [state for state in JOB.where(lambda facts: facts.queued) if state not in _MANY]
    offered = (
        jid for state in states for jid in _named(f"/v1/jobs?state={state}&limit={MOST}", "rows", "jid")
    )
    return sorted(offered, reverse=True)
