"""What the pages show of the whole fleet: health, working storage, and the sources that asked to wait."""

from __future__ import annotations

from dataclasses import dataclass

from entrypoints.web.context import WebContext
from entrypoints.web.pages.recent import Recent
from operations.fleet import Fleet
from operations.health import FleetHealth, fleet_health
from operations.hosts import HostView, waiting_hosts
from operations.overview import Space, space_now
from zkstate import fixity, holds, queue


@dataclass(frozen=True)
class Whole:
    """One moment of the fleet."""

    health: FleetHealth
    space: Space
    fleet: Fleet
    hosts: tuple[HostView, ...]
    """The sources to which no request is sent now."""


def open_whole(web: WebContext) -> Recent[Whole]:
    """Asked from ZooKeeper and from the workers, for all clients of this process together."""

    def ask() -> Whole:
        session, settings = web.session, web.settings
        counts = queue.counts(session)
        fleet = Fleet(session, settings)
        health = fleet_health(session, fleet, counts, holds.paused(session), fixity.status(session))
        return Whole(health, space_now(session, settings, counts), fleet, waiting_hosts(session))

    return Recent(ask)
