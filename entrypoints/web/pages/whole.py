"""What the pages show of the whole fleet: health, working storage, and the sources that asked to wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from fastapi import Request

from entrypoints.web.context import WebContext
from entrypoints.web.pages.recent import Recent
from operations.fleet import Fleet, ask_fleet
from operations.health import FleetHealth, fleet_health
from operations.hosts import HostView, waiting_hosts
from operations.overview import Space, space_now
from operations.record_memory import record_memory
from pipeline.errors import ServiceUnreachable
from pipeline.records import age
from zkstate import fixity, holds, queue

LATE = 15.0
"""Seconds after which a page says when the workers were asked."""


@dataclass(frozen=True)
class Whole:
    """One moment of the fleet."""

    health: FleetHealth
    space: Space
    fleet: Fleet
    hosts: tuple[HostView, ...]
    """The sources to which no request is sent now."""
    asked: datetime
    """When the workers were asked for what is known of them."""

    @property
    def late(self) -> datetime | None:
        """When the workers were asked, if that was so long ago that the answer may be outdated."""
        return self.asked if age(self.asked) > LATE else None


class WholeFleet:
    """Asked from ZooKeeper and from the workers, for all pages of this process together.

    The workers are asked apart from ZooKeeper: one that does not answer delays no other fact.
    """

    def __init__(self, web: WebContext) -> None:
        self._web = web
        self._answers = Recent(lambda: ask_fleet(web.session, web.settings), "the workers")
        self._whole = Recent(self._ask, "the fleet")
        self._answers.subscribe(self._whole.renew)

    def get(self) -> Whole | None:
        """None if ZooKeeper does not answer, or if the workers of a new process were not asked yet."""
        return self._whole.get()

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when something may have changed."""
        self._whole.subscribe(wake)

    def renew(self) -> None:
        """Ask ZooKeeper now: a person has changed something."""
        self._whole.renew()

    def close(self) -> None:
        for recent in (self._answers, self._whole):
            recent.close()

    def _ask(self) -> Whole:
        session, settings = self._web.session, self._web.settings
        answers = self._answers.get()
        if answers is None:
            raise ServiceUnreachable("the workers have not answered yet: try again in a few seconds")
        fleet = Fleet(session, settings, answers)
        counts = queue.counts(session)
        memory = record_memory(session, settings)
        pause, stored = holds.paused(session), fixity.status(session)
        health = fleet_health(session, fleet, counts, pause, stored, memory)
        space = space_now(session, settings, counts)
        return Whole(health, space, fleet, waiting_hosts(session), answers.at)


def whole_of(request: Request) -> WholeFleet:
    return cast(WholeFleet, request.app.state.whole)
