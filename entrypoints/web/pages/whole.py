"""What the pages show of the whole fleet: its health, working storage, and collections at their limit.

These facts are expensive, so they are queried at most every few seconds, for all pages together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from fastapi import Request

from entrypoints.web.context import WebContext
from entrypoints.web.recent import Recent
from operations.fleet.fleet import Answers, Fleet, ask_broker, ask_workers
from operations.fleet.health import FleetHealth, Space, fleet_health, record_memory, space_now
from operations.reasons import Reason
from pipeline.records import age, now
from zkstate.fleet import holds, notes
from zkstate.queue import fairness, queue

LATE = 15.0
"""Seconds after which an answer is outdated: no page claims anything from an older one."""

BRIEF = 0.5
"""Seconds that the first answer about the fleet waits for Redis and the workers."""


@dataclass(frozen=True)
class Whole:
    """A snapshot of the fleet."""

    health: FleetHealth
    space: Space
    fleet: Fleet
    full: Mapping[str, int]
    """Collection -> the maximum of active jobs in its profile, which it has reached."""
    at: datetime
    """When the oldest answer was requested; ZooKeeper, Redis and the workers are queried separately."""
    asked: datetime | None
    """When the workers' last answer was requested; None if they never answered."""

    @property
    def current(self) -> bool:
        """False if any of it may be outdated."""
        return age(self.at) <= LATE

    @property
    def late(self) -> datetime | None:
        """When the workers were queried, if that is so long ago that the answer may be outdated."""
        return self.asked if self.asked and age(self.asked) > LATE else None


class WholeFleet:
    """The fleet as ZooKeeper, Redis and the workers describe it, for all pages of this process.

    They are queried separately: one that does not answer delays no other fact, and nothing is claimed about
    it.
    """

    def __init__(self, web: WebContext) -> None:
        self._web = web
        self._broker = Recent(lambda: ask_broker(web.site), "Redis")
        self._workers = Recent(lambda: (now(), ask_workers(web.settings)), "the workers")
        self._whole = Recent(self._ask, "the fleet")
        self._broker.subscribe(self._whole.renew)
        self._workers.subscribe(self._whole.renew)

    def get(self) -> Whole | None:
        """The snapshot; None if ZooKeeper does not answer."""
        return self._whole.get()

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` when something may have changed."""
        self._whole.subscribe(wake)

    def renew(self) -> None:
        """Query ZooKeeper now: a person has changed something."""
        self._whole.renew()

    def close(self) -> None:
        for recent in (self._broker, self._workers, self._whole):
            recent.close()

    def _ask(self) -> Whole:
        site, session, at = self._web.site, self._web.session, now()
        broker, workers = self._broker.get(BRIEF), self._workers.get(BRIEF)
        broker = broker if broker is not None and age(broker.at) <= LATE else None
        asked = workers[0] if workers else None
        known = workers if workers and age(workers[0]) <= LATE else None
        fleet = Fleet(site, Answers(broker, known[1] if known else None))
        counts = queue.counts(session)
        memory = record_memory(site)
        stored = notes.fixity(session)
        health = fleet_health(fleet, counts, holds.stops(session), stored, memory)
        space = space_now(site, health.waiting.get(Reason.WAITING_FOR_SPACE, 0))
        oldest = min([at, *([broker.at] if broker else []), *([known[0]] if known else [])])
        return Whole(health, space, fleet, self._full(), oldest, asked)

    def _full(self) -> dict[str, int]:
        quota = fairness.site_limits(self._web.settings).quota
        taken = fairness.at_work(self._web.session).collections
        limits = {name: quota(name) for name in taken}
        return {name: limit for name, limit in limits.items() if limit is not None and taken[name] >= limit}


def whole_of(request: Request) -> WholeFleet:
    return cast(WholeFleet, request.app.state.whole)
