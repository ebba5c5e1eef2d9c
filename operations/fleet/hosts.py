"""The sources that the fleet currently knows: which asked for a pause, and how many connections are open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

from operations import visibility
from pipeline.records import Record
from zkstate.fleet import hosts

if TYPE_CHECKING:
    from operations.site import Site
    from pipeline.principal import Principal
    from zkstate.connection.session import Session
    from zkstate.fleet.hosts import Pause

LISTED = 200
"""Maximum number of hosts in a list; a manifest may name thousands."""


class HostView(Record):
    host: str
    waits_until: datetime | None = None
    """No request is sent before: the host asked clients to slow down, or does not answer."""
    unanswered: int = 0
    """Requests in a row that got no answer."""
    cause: str = ""
    """What the host answered when it asked clients to wait, or why it does not answer; empty if not known."""
    jobs: int | None = None
    """Jobs and batches that wait for the end of the pause; None where they were not counted."""
    connections: int = 0
    """Of the whole fleet."""


def known_hosts(site: Site, principal: Principal) -> tuple[HostView, ...]:
    """The known hosts, waiting ones first, then by name; two reads per host."""
    visibility.require_fleet(principal, "see the sources")
    views = [_view(site.session, host, pause) for host, pause in _pauses(site.session)]
    return tuple(sorted(views, key=lambda view: (view.waits_until is None, view.host)))


def waiting_hosts(session: Session, jobs: Mapping[str, int] | None = None) -> tuple[HostView, ...]:
    """The hosts to which no request is sent now, by name; one read per host, two if it waits.

    `jobs`: the number of jobs and batches that wait for each host; these hosts are always read.
    """
    views = [_view(session, host, pause) for host, pause in _pauses(session, jobs or ()) if pause.left]
    if jobs is not None:
        views = [view.model_copy(update={"jobs": jobs.get(view.host, 0)}) for view in views]
    return tuple(sorted(views, key=lambda view: view.host))


def _pauses(session: Session, first: Iterable[str] = ()) -> Iterator[tuple[str, Pause]]:
    known = dict.fromkeys((*filter(None, first), *hosts.known_pauses(session)))
    for host in islice(known, LISTED):
        yield host, hosts.pause_by_own_clock(session, host)


def _view(session: Session, host: str, pause: Pause) -> HostView:
    return HostView(
        host=host,
        waits_until=datetime.now(UTC) + timedelta(seconds=pause.left) if pause.left else None,
        unanswered=pause.unanswered,
        cause=pause.cause if pause.left else "",
        connections=len(hosts.connection_holders(session, host)),
    )
