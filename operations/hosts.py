"""The sources that the fleet knows at the moment: who is asked to wait, and how many connections are open."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from pipeline.records import Record
from zkstate import host_back_off, host_connections
from zkstate.host_back_off import Pause
from zkstate.session import Session

LISTED = 200
"""Hosts that a list names; a manifest may name thousands."""


class HostView(Record):
    host: str
    waits_until: datetime | None = None
    """No request is sent before: the host asked clients to slow down, or does not answer."""
    unanswered: int = 0
    """Requests in a row that got no answer."""
    connections: int = 0
    """Of the whole fleet."""


def known_hosts(session: Session) -> tuple[HostView, ...]:
    """Those that wait first, then by name; two reads for each host."""
    views = [_view(session, host, pause) for host, pause in _pauses(session)]
    return tuple(sorted(views, key=lambda view: (view.waits_until is None, view.host)))


def waiting_hosts(session: Session) -> tuple[HostView, ...]:
    """The hosts to which no request is sent now, by name; one read for each host, two if it waits."""
    waiting = (_view(session, host, pause) for host, pause in _pauses(session) if pause.left)
    return tuple(sorted(waiting, key=lambda view: view.host))


def _pauses(session: Session) -> Iterator[tuple[str, Pause]]:
    for host in islice(host_back_off.known(session), LISTED):
        yield host, host_back_off.pause_by_own_clock(session, host)


def _view(session: Session, host: str, pause: Pause) -> HostView:
    return HostView(
        host=host,
        waits_until=datetime.now(UTC) + timedelta(seconds=pause.left) if pause.left else None,
        unanswered=pause.unanswered,
        connections=len(host_connections.holders(session, host)),
    )
