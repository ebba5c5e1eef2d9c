"""Until when the whole fleet sends no request to a host: the host requested a pause, or does not answer.

A host that does not answer is probed by one attempt whenever the pause is over; the pauses grow. The host's
node holds a number of seconds, counted from the moment at which the node was written. That
moment and the present are both taken from the server's clock.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import unquote

from kazoo.exceptions import BadVersionError, NoNodeError, NotEmptyError
from kazoo.protocol.states import ZnodeStat

from pipeline.outcome import LONGEST_RETRY_AFTER
from pipeline.records import Record
from zkstate import codec, locks, paths, remembered
from zkstate.errors import Corrupt
from zkstate.locks import ServerClock
from zkstate.outage import LONGEST_PAUSE, pause_before
from zkstate.reading import log_damage
from zkstate.session import Session

SKEW = 5.0
"""Seconds by which a node may seem to be written after the present, as another server's clock is ahead."""

FORGOTTEN_AFTER = LONGEST_RETRY_AFTER + LONGEST_PAUSE + SKEW
"""Seconds after which no back-off lasts."""

MOST_REMOVED = 2000
"""Hosts whose nodes one run reads; the next run reads others once these are gone."""


class BackOff(Record):
    """`/locks/hosts/HOST`: seconds from the node's last change in which no request is sent to the host."""

    seconds: float = 0
    unanswered: int = 0
    """Probes and attempts in a row that got no answer; 0 if the host requested the pause."""
    since_ms: int = 0
    """When the first of these got none, by the server's clock."""
    cause: str = ""
    """Why the last of these got none, or what the host answered when it requested the pause."""


@dataclass(frozen=True)
class Pause:
    """A back-off as it was read."""

    left: float = 0
    """Seconds until the next request may be sent, 0 for now."""
    unanswered: int = 0
    version: int = 0
    """Of the node."""
    silent: float = 0
    """Seconds since the first of the requests in a row that got no answer."""
    cause: str = ""
    since_ms: int = 0


def begin(session: Session, host: str, seconds: float, cause: str = "") -> None:
    """Have the fleet send no request to the host for `seconds`, unless it waits as long already."""
    path = paths.host(host)
    session.ensure_node(path)
    asked = min(seconds, LONGEST_RETRY_AFTER)
    with locks.single_flight(session, f"back-off-{host}") as clock:
        # another worker that writes just now was asked by the host at the same moment
        if clock is not None and seconds_left(session, host, clock) < asked:
            data = codec.encode(BackOff(seconds=asked, cause=cause))
            try:
                session.ask(session.zk.set_async, path, data)
            except NoNodeError:
                session.ensure_node(path, data)  # it was unused, and removed a moment ago
            remembered.forget(session, path)


def no_answer(session: Session, host: str, clock: ServerClock, cause: str) -> None:
    """The host did not answer: no request is sent to it until the next probe, unless that is so already."""
    session.ensure_node(paths.host(host))
    pause = read(session, host, lambda: clock)
    if pause.left <= 0 or pause.unanswered:
        take_probe(session, host, replace(pause, cause=cause), clock, is_due=pause.left <= 0)


def take_probe(session: Session, host: str, pause: Pause, clock: ServerClock, *, is_due: bool = True) -> bool:
    """Start the pause to the next probe; False if another attempt takes this probe.

    `is_due`: False notes the cause alone.
    """
    back_off = BackOff(
        seconds=pause_before(pause.unanswered) if is_due else pause.left,
        unanswered=pause.unanswered + is_due,
        since_ms=pause.since_ms or clock.now_ms(),
        cause=pause.cause,
    )
    return _put(session, host, pause, back_off)


def answered(session: Session, host: str, clock: ServerClock) -> None:
    """A probe got an answer: requests may be sent again."""
    pause = read(session, host, lambda: clock)
    if pause.unanswered:
        _put(session, host, pause, BackOff())


def _put(session: Session, host: str, pause: Pause, back_off: BackOff) -> bool:
    """False if the node changed since it was read."""
    try:
        session.ask(session.zk.set_async, paths.host(host), codec.encode(back_off), version=pause.version)
    except (BadVersionError, NoNodeError):
        return False
    finally:
        remembered.forget(session, paths.host(host))
    return True


def read(session: Session, host: str, clock: Callable[[], ServerClock]) -> Pause:
    """The pause of the host; `clock` is asked during a back-off."""
    path = paths.host(host)
    node = session.find(path)
    return Pause() if node is None else _pause(_decoded(path, node[0]), node[1], clock)


def read_watched(
    session: Session, host: str, clock: Callable[[], ServerClock]
) -> tuple[Pause, threading.Event]:
    """The same, remembered until the node is written, which sets the event."""
    path = paths.host(host)
    known = remembered.read(session, path, partial(_decoded, path))
    if known.value is None or known.stat is None:
        return Pause(), known.changed
    return _pause(known.value, known.stat, clock), known.changed


def _pause(back_off: BackOff, stat: ZnodeStat, clock: Callable[[], ServerClock]) -> Pause:
    """A back-off from the future was noted before the server's clock was set back. It is over: the host asks
    again if it needs more.
    """
    if not back_off.seconds:
        return Pause(0, back_off.unanswered, stat.version)
    ahead = float(stat.mtime - clock().now_ms()) / 1000
    left = max(0.0, ahead + back_off.seconds) if ahead <= SKEW else 0.0
    since = back_off.since_ms
    silent = max(0.0, (clock().now_ms() - since) / 1000) if since else 0.0
    return Pause(left, back_off.unanswered, stat.version, silent, back_off.cause, since)


def _decoded(path: str, data: bytes) -> BackOff:
    """No pause if the node cannot be read: if the host asks again, the node is replaced."""
    try:
        return codec.decode(BackOff, data, path) if data else BackOff()
    except Corrupt as damage:
        log_damage(damage)
        return BackOff()


def remove_unused(session: Session, clock: ServerClock) -> int:
    """Delete the nodes of hosts to which no connection is open and whose back-off is over; how many.

    Deleted at the version that was read, and ZooKeeper refuses it while a connection is open.
    """
    places = [f"{paths.HOSTS}/{name}" for name in session.children(paths.HOSTS)[:MOST_REMOVED]]
    removed = 0
    for path, stat in zip(places, session.exists_many(places), strict=True):
        if stat is None or stat.numChildren:
            continue
        if stat.dataLength and clock.now_ms() - clock.written_ms(stat) < FORGOTTEN_AFTER * 1000:
            continue
        with suppress(NoNodeError, NotEmptyError, BadVersionError):
            session.ask(session.zk.delete_async, path, version=stat.version)
            removed += 1
    return removed


def known(session: Session) -> list[str]:
    """The hosts that have a node: those with open connections or a back-off, now or a moment ago."""
    return sorted(map(unquote, session.children(paths.HOSTS)))


def seconds_left(session: Session, host: str, clock: ServerClock) -> float:
    return read(session, host, lambda: clock).left


def pause_by_own_clock(session: Session, host: str) -> Pause:
    """The pause by this machine's clock, which is good enough to be shown to a person."""
    return read(session, host, lambda: ServerClock(int(time.time() * 1000), time.monotonic()))
