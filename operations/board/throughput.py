"""What was stored and what failed in each of the last hours, and how long a batch still takes.

The inventory knows what was stored, the record what failed: both for the whole fleet, whatever process asks.
What is not known is absent: hours before the deployment began, and everything that does not answer.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from operations.board.board import Board
from operations.board.values import Hour, Scope
from operations.site import Site
from pipeline.inventory.growth import StoredOfBatch, StoredVersions
from pipeline.outcome import ServiceDown
from pipeline.records import age, now
from pipeline.states import JOB, BatchState, JobState
from zkstate.care import deployment
from zkstate.connection.session import Session
from zkstate.fleet import outages

HOURS = 24
HOUR = timedelta(hours=1)

PERIOD = 60.0
"""Seconds between two readings of the inventory."""

LATE = 300.0
"""Seconds after which a reading says nothing about the present."""

ENOUGH = 5
"""Objects of a batch that have to be stored within an hour before its time left is known."""

SHORTEST = 60.0
"""Seconds that a batch has to be at work for that."""

QUIET = 900.0
"""Seconds without a stored object after which a batch has stopped, and its time left is not known."""

_ENDED = JOB.where(lambda facts: facts.ended)
_FOR_A_PERSON = frozenset({JobState.HELD, JobState.REVIEW})


@dataclass(frozen=True)
class Throughput:
    """One reading, for all who ask the process."""

    at: datetime
    began: datetime
    """When the deployment began."""
    hours: Mapping[datetime, tuple[StoredVersions, ...]]
    """Beginning of an hour -> what was stored in it; empty if the inventory does not answer."""
    batches: Mapping[str, StoredOfBatch]
    """BID -> what was stored of it within the last hour."""

    @property
    def late(self) -> bool:
        return age(self.at) > LATE

    @property
    def stored_as_of(self) -> datetime | None:
        """When the inventory said what was stored; None if what it said is not shown."""
        return self.at if self.hours and not self.late else None


def read(site: Site, before: Throughput | None) -> Throughput | None:
    """A new reading; None if the deployment has no id yet.

    Of the hours that `before` has, three are read again: the current one, the one before, and one of the
    others in turn, because a version may be entered long after it was stored.
    """
    moment, recorded = now(), deployment.read(site.session)
    if recorded is None:
        return None
    hours = _hours(moment)
    known = before.hours if before and not before.late else {}
    again = {*hours[-2:], hours[int(moment.timestamp() / PERIOD) % (HOURS - 2)]}
    try:
        inventory = site.archive()
        if inventory is None:
            return Throughput(moment, recorded.created, {}, {})
        stored = {
            hour: known[hour]
            if hour in known and hour not in again
            else inventory.stored_between(hour, hour + HOUR)
            for hour in hours
        }
        return Throughput(moment, recorded.created, stored, inventory.stored_of_batches(moment - HOUR))
    except ServiceDown:
        return Throughput(moment, recorded.created, {}, {})


def _hours(moment: datetime) -> list[datetime]:
    """The beginnings of the last HOURS, oldest first; the last one is the current hour."""
    current = moment.replace(minute=0, second=0, microsecond=0)
    return [current - number * HOUR for number in reversed(range(HOURS))]


def last_hours(reading: Throughput | None, board: Board, scope: Scope) -> tuple[Hour, ...]:
    """The last HOURS as this caller may see them, oldest first."""
    if reading is None:
        return ()
    hours = [hour for hour in _hours(now()) if hour + HOUR > reading.began]
    failed = board.failed_by_hour(scope, hours[0]) if hours else None
    known = {} if reading.late else reading.hours
    return tuple(_hour(hour, known.get(hour), failed, scope) for hour in hours)


def _hour(
    begins: datetime,
    stored: tuple[StoredVersions, ...] | None,
    failed: Mapping[datetime, int] | None,
    scope: Scope,
) -> Hour:
    shown = stored and [one for one in stored if scope.admits(one.collection, one.depositor)]
    return Hour(
        begins=begins,
        stored=None if shown is None else sum(one.number for one in shown),
        bytes=None if shown is None else sum(one.bytes for one in shown),
        failed=None if failed is None else failed.get(begins, 0),
    )


class _Batch(Protocol):
    @property
    def bid(self) -> str: ...
    @property
    def collection(self) -> str: ...
    @property
    def status(self) -> BatchState: ...
    @property
    def since(self) -> datetime: ...
    @property
    def total(self) -> int | None: ...
    @property
    def jobs(self) -> Mapping[JobState, int]: ...


def times_left(
    reading: Throughput | None, session: Session, stopped: Collection[str], batches: Iterable[_Batch]
) -> dict[str, float]:
    """BID -> seconds; see `seconds_left`. Empty while the queue is paused, or a shared service is down.

    `stopped`: the collections on hold, and the empty name for a pause.
    """
    if reading is None or reading.late or "" in stopped or not session.connected:
        return {}
    if any(known.outage.blocks() for known in outages.known(session).values()):
        return {}
    return {one.bid: left for one in batches if (left := seconds_left(reading, one, stopped)) is not None}


def seconds_left(reading: Throughput, batch: _Batch, stopped: Collection[str]) -> float | None:
    """The time until the last job of the batch has ended, at the rate of the last hour.

    None while too little is known (ENOUGH, SHORTEST), and while the batch waits or has stopped. The rate is
    that of stored objects; as many of the others will fail as until now. Bytes would say no more: the size of
    a job is known once it has started.
    """
    if batch.status is not BatchState.PROCESSING or batch.total is None:
        return None
    stored = reading.batches.get(batch.bid)
    seconds = min(HOUR.total_seconds(), (reading.at - batch.since).total_seconds())
    if stored is None or stored.number < ENOUGH or seconds < SHORTEST:
        return None
    if batch.collection in stopped or any(batch.jobs.get(state) for state in _FOR_A_PERSON):
        return None
    ended = sum(batch.jobs.get(state, 0) for state in _ENDED)
    completed, left = batch.jobs.get(JobState.COMPLETED, 0), batch.total - ended
    if not completed or left <= 0 or (reading.at - stored.last).total_seconds() > QUIET:
        return None
    return round(left * seconds / (stored.number * ended / completed), 1)
