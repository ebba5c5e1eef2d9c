"""Source hosts: the fleet's back-off, open connections, and the limits of one attempt.

A pause begins when a host requests one or does not answer. A host that does not answer is probed by one
attempt whenever the pause is over; the pauses grow. The host's node holds a number of seconds, counted from
the time at which the node was written. That time and the current time are both taken from the server's
clock.

A connection is a place below the host's node.
"""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from urllib.parse import unquote

from kazoo.exceptions import BadVersionError, NoNodeError, NotEmptyError
from kazoo.protocol.states import ZnodeStat

from pipeline.attempt import Attempt
from pipeline.outcome import LONGEST_RETRY_AFTER, HostDown, HostGivenUp, RateLimited
from pipeline.profiles.profile import Profile, ProfileError
from pipeline.records import Record
from pipeline.sources.limits import HostLimiter
from zkstate import paths
from zkstate.connection import locks, remembered
from zkstate.connection.clock import ServerClock
from zkstate.connection.session import Session
from zkstate.errors import Corrupt
from zkstate.fleet import places
from zkstate.fleet.outages import LONGEST_PAUSE, pause_before
from zkstate.fleet.places import Place
from zkstate.record.node import Node, log_damage

SKEW = 5.0
"""Seconds by which a node may appear to be written in the future, as another server's clock is ahead."""

FORGOTTEN_AFTER = LONGEST_RETRY_AFTER + LONGEST_PAUSE + SKEW
"""Seconds after which every back-off is over."""

MOST_REMOVED = 2000
"""Maximum hosts whose nodes one run reads; the next run reads others once these are deleted."""


class BackOff(Record):
    """`/locks/hosts/HOST`: no request is sent to the host for `seconds` after the node's last change."""

    seconds: float = 0
    unanswered: int = 0
    """Consecutive probes and attempts without an answer; 0 if the host requested the pause."""
    since_ms: int = 0
    """When the first of these failed, by the server's clock."""
    cause: str = ""
    """Why the last of these failed, or what the host answered when it requested the pause."""


@dataclass(frozen=True)
class Pause:
    """A back-off as it was read."""

    left: float = 0
    """Seconds until the next request may be sent, 0 for now."""
    unanswered: int = 0
    version: int = 0
    """Version of the node."""
    silent: float = 0
    """Seconds since the first of the consecutive requests without an answer."""
    cause: str = ""
    since_ms: int = 0


def begin_pause(session: Session, host: str, seconds: float, cause: str = "") -> None:
    """Have the fleet send no request to the host for `seconds`, unless it already pauses as long."""
    path = paths.host(host)
    session.ensure_node(path)
    asked = min(seconds, LONGEST_RETRY_AFTER)
    with locks.single_flight(session, f"back-off-{host}") as clock:
        # another worker that is writing now got the same request from the host
        if clock is not None and read_pause(session, host, clock).left < asked:
            _node(host).publish(session, BackOff(seconds=asked, cause=cause))
            remembered.forget(session, path)


def take_probe(session: Session, host: str, pause: Pause, clock: ServerClock, *, is_due: bool = True) -> bool:
    """Start the pause before the next probe; False if another attempt takes this probe.

    `is_due`: if False, only the cause is noted.
    """
    back_off = BackOff(
        seconds=pause_before(pause.unanswered) if is_due else pause.left,
        unanswered=pause.unanswered + is_due,
        since_ms=pause.since_ms or clock.now_ms(),
        cause=pause.cause,
    )
    return _put(session, host, pause, back_off)


def _put(session: Session, host: str, pause: Pause, back_off: BackOff) -> bool:
    """False if the node changed since it was read."""
    try:
        return _node(host).replace(session, pause.version, back_off)
    finally:
        remembered.forget(session, paths.host(host))


def read_pause(session: Session, host: str, clock: ServerClock) -> Pause:
    stored = _node(host).find(session)
    return Pause() if stored is None else _pause(stored.content, stored.stat, lambda: clock)


def watched_pause(
    session: Session, host: str, clock: Callable[[], ServerClock]
) -> tuple[Pause, threading.Event]:
    """Like `read_pause`, cached until a write, which sets the event; reads `clock` only during a back-off."""
    node = _node(host)
    known = remembered.read(session, node.path, node.decode)
    if known.value is None or known.stat is None:
        return Pause(), known.changed
    return _pause(known.value, known.stat, clock), known.changed


def _pause(back_off: BackOff, stat: ZnodeStat, clock: Callable[[], ServerClock]) -> Pause:
    """The pause of a back-off.

    A back-off from the future was noted before the server's clock was set back. It counts as over: the host
    requests another one if necessary.
    """
    if not back_off.seconds:
        return Pause(0, back_off.unanswered, stat.version)
    ahead = float(stat.mtime - clock().now_ms()) / 1000
    left = max(0.0, ahead + back_off.seconds) if ahead <= SKEW else 0.0
    since = back_off.since_ms
    silent = max(0.0, (clock().now_ms() - since) / 1000) if since else 0.0
    return Pause(left, back_off.unanswered, stat.version, silent, back_off.cause, since)


def _node(host: str) -> Node[BackOff]:
    return Node(paths.host(host), BackOff, _no_pause)


def _no_pause(damage: Corrupt) -> BackOff:
    """No back-off: the unreadable node is replaced if the host requests another one."""
    log_damage(damage)
    return BackOff()


def remove_unused(session: Session, clock: ServerClock) -> int:
    """Delete the nodes of hosts without open connection whose back-off is over; returns their number.

    A node is deleted at the version that was read, which ZooKeeper refuses while a connection is open.
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


def known_pauses(session: Session) -> list[str]:
    """The hosts that have a node: those with open connections or a back-off, now or recently."""
    return sorted(map(unquote, session.children(paths.HOSTS)))


def pause_by_own_clock(session: Session, host: str) -> Pause:
    """The pause by this machine's clock, which is precise enough for display."""
    return read_pause(session, host, ServerClock(int(time.time() * 1000), time.monotonic()))


UNLIMITED = 1 << 20
"""The limit of connections where none is set; back-off is observed all the same."""


def acquire_connection(
    session: Session, host: str, limit: int, owner: str, changed: threading.Event
) -> Place | None:
    """One of `limit` connections; None if all are in use: then `changed` is set once one is released."""
    return places.acquire(session, paths.host(host), limit, owner, changed)


def connection_holders(session: Session, host: str) -> tuple[str, ...]:
    """The job or batch that uses each connection to a host; '' for an unnamed one."""
    path = paths.host(host)
    nodes = session.get_many([f"{path}/{number}" for number in session.children(path)])
    return tuple(node[0].decode(errors="replace").partition(" ")[2] for node in nodes if node)


HOST_WAIT = 2.0
"""Seconds that a worker waits for a host; then the job is handed back, and the worker takes another one. That
is long enough to bridge the gap between two small files. With a longer wait, the jobs of one busy host would
occupy every process."""

RETRY_AFTER = 5.0
"""Seconds after which a job that got no connection is retried."""

LEASE = 5.0
"""Seconds after which a connection is released between two files, so that other jobs get one."""


def host_limit(default: int, profile: Callable[[], Profile]) -> int:
    """The fleet's limit of connections to one host, for a job of this profile."""
    try:
        own = profile().limits.host_connections
    except ProfileError:
        return default  # the step that needs the profile meets the same fault, and reports it
    return default if own is None else own


class FleetHostLimiter(HostLimiter):
    """Lends connections to the threads of one attempt. A connection is reused for its lease; `close`
    releases all of them.
    """

    def __init__(
        self,
        session: Session,
        limit: Callable[[], int],
        owner: str = "",
        max_wait: float = HOST_WAIT,
        give_up_after: float = math.inf,
    ) -> None:
        """`give_up_after`: seconds without any answer after which a host is given up."""
        self._session = session
        self._owner = owner
        """The job or batch; `why` shows who uses the connections."""
        self._limit_of = limit
        self._max_wait = max_wait
        self._give_up_after = give_up_after
        self._idle: defaultdict[str, list[Place]] = defaultdict(list)
        self._clear: dict[str, threading.Event] = {}
        """Hosts without back-off when they were last read; the event is set once their node is written."""
        self._opened: dict[str, Place] = {}
        """Host -> the connection that was opened last; its node gives the server's clock."""
        self._probing: set[str] = set()
        """Hosts that did not answer, and that this attempt probes."""
        self._mutex = threading.Lock()
        self._probe_mutex = threading.Lock()

    @contextmanager
    def connection(self, host: str, attempt: Attempt) -> Iterator[None]:
        """Hold a connection, with which the block may send one request to the host.

        RateLimited if the wait is too long; HostDown if the host did not answer recently, HostGivenUp if
        it has not answered for `give_up_after`.
        """
        connection = self._reuse(host) or self._open(host, attempt)
        try:
            self._wait_out_back_off(host, connection, attempt)
            yield
        finally:
            self._return(host, connection)

    def redirected(self, start: str, host: str, attempt: Attempt) -> None:
        """Wait out the pause of a host to which a request is redirected; cached until it changes."""
        self._opened.setdefault(host, self._opened[start])
        self._wait_out_back_off(host, self._opened[start], attempt)

    def back_off(self, host: str, seconds: float, cause: str = "") -> None:
        begin_pause(self._session, host, seconds, cause)

    def no_answer(self, host: str, cause: str) -> None:
        """Pause requests to the host until the next probe, unless they are paused already."""
        self._probing.discard(host)
        self._session.ensure_node(paths.host(host))
        clock = self._opened[host].clock
        pause = read_pause(self._session, host, clock)
        if pause.left <= 0 or pause.unanswered:
            take_probe(self._session, host, replace(pause, cause=cause), clock, is_due=pause.left <= 0)

    def answered(self, host: str) -> None:
        """End the pause of the host if this was a probe."""
        if host in self._probing:
            self._probing.discard(host)
            pause = read_pause(self._session, host, self._opened[host].clock)
            if pause.unanswered:
                _put(self._session, host, pause, BackOff())

    def close(self) -> None:
        with self._mutex:
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
        for connection in idle:
            connection.release()

    @cached_property
    def _limit(self) -> int:
        """The limit, read when the first request is sent."""
        return self._limit_of() or UNLIMITED

    def _reuse(self, host: str) -> Place | None:
        with self._mutex:
            connections = self._idle[host]
            return connections.pop() if connections else None

    def _open(self, host: str, attempt: Attempt) -> Place:
        deadline = time.monotonic() + self._max_wait
        while True:
            attempt.check()
            changed = threading.Event()
            connection = acquire_connection(self._session, host, self._limit, self._owner, changed)
            if connection is not None:
                self._opened[host] = connection
                return connection
            if time.monotonic() > deadline:
                raise RateLimited(
                    f"all {self._limit} connections that the fleet may have open to {host} are in use "
                    "(ARKLINE_HOST_LIMIT, or limits.host_connections in the profile)",
                    RETRY_AFTER,
                    host,
                )
            changed.wait(0.5)

    def _return(self, host: str, connection: Place) -> None:
        if time.monotonic() - connection.opened > LEASE:
            _ = connection.clock  # read while its node exists: a back-off may still have to be noted
            connection.release()
            return
        with self._mutex:
            self._idle[host].append(connection)

    def _wait_out_back_off(self, host: str, own: Place, attempt: Attempt) -> None:
        written = self._clear.get(host)
        if written is not None and not written.is_set():
            return
        deadline = time.monotonic() + self._max_wait
        while True:
            pause, changed = self._read_pause(host, own)
            if pause.left <= 0 or host in self._probing:
                self._clear[host] = changed
                return
            if pause.unanswered:
                raise self._down(host, pause)
            if time.monotonic() + pause.left > deadline:
                raise RateLimited(
                    f"{host} requested a pause: no request is sent to it for {pause.left:.0f} more seconds",
                    pause.left,
                    host,
                )
            attempt.check()
            changed.wait(min(pause.left, 0.2))

    def _down(self, host: str, pause: Pause) -> HostDown | HostGivenUp:
        """The error for a host that did not answer recently."""
        cause = pause.cause or "it did not answer"
        if pause.silent >= self._give_up_after:
            minutes = round(pause.silent / 60)
            return HostGivenUp(f"{cause}; {host} has answered no request for {minutes:,} minutes", host)
        return HostDown(
            f"{cause}, when {host} was asked last; it is asked again in {pause.left:.0f} seconds",
            pause.left,
            host,
        )

    def _read_pause(self, host: str, own: Place) -> tuple[Pause, threading.Event]:
        """The pause of the host; once it is over, an attempt probes a host that did not answer."""
        with self._probe_mutex:
            pause, changed = watched_pause(self._session, host, lambda: own.clock)
            if pause.left <= 0 and pause.unanswered and host not in self._probing:
                if not take_probe(self._session, host, pause, own.clock):
                    return watched_pause(self._session, host, lambda: own.clock)
                self._probing.add(host)
            return pause, changed
