"""Until when the whole fleet sends no request to a host, because the host requested a pause.

The host's node holds a number of seconds, counted from the moment at which the node was written. That
moment and the present are both taken from the server's clock.
"""

import threading
import time

from kazoo.exceptions import NoNodeError

from pipeline.records import Record
from zkstate import codec, counters, locks, paths
from zkstate.locks import ServerClock
from zkstate.session import Session

MAX_BACK_OFF = 3600.0
"""Maximum back-off in seconds, whatever the host requests; after that a request is sent again."""


class BackOff(Record):
    """`/locks/hosts/HOST`: seconds from the node's last change in which no request is sent to the host."""

    seconds: float = 0


def begin(session: Session, host: str, seconds: float) -> None:
    """Have the fleet send no request to the host for `seconds`, unless it waits as long already."""
    path = paths.host(host)
    counters.ensure_node(session, path)
    asked = min(seconds, MAX_BACK_OFF)
    with locks.single_flight(session, f"back-off-{host}") as clock:
        # another worker that writes just now was asked by the host at the same moment
        if clock is not None and seconds_left(session, host, clock) < asked:
            session.ask(session.zk.set_async, path, codec.encode(BackOff(seconds=asked)))


def seconds_left(
    session: Session, host: str, clock: ServerClock, changed: threading.Event | None = None
) -> float:
    """Seconds until the next request may be sent, 0 for now; `changed` is set when the node is written."""
    path = paths.host(host)
    watch = changed and (lambda _: changed.set())
    try:
        data, stat = session.ask(session.zk.get_async, path, watch=watch)
    except NoNodeError:
        return 0
    if not data:
        return 0
    back_off = codec.decode(BackOff, data, path)
    return max(0.0, float(stat.mtime - clock.now_ms()) / 1000 + back_off.seconds)


def seconds_left_by_own_clock(session: Session, host: str) -> float:
    """`seconds_left` by this machine's clock, which is good enough to be shown to a person."""
    return seconds_left(session, host, ServerClock(int(time.time() * 1000), time.monotonic()))
