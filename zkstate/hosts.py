"""One attempt's connections to the hosts of content, within the limits that the whole fleet observes."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property

from pipeline.attempt import Attempt
from pipeline.outcome import HostDown, HostGivenUp, RateLimited
from zkstate import host_back_off, host_connections
from zkstate.host_back_off import Pause
from zkstate.host_connections import Connection
from zkstate.session import Session

HOST_WAIT = 2.0
"""Seconds that a worker waits for a host; then the job is handed back, and the worker takes another one. That
is long enough for the change from one small file to the next. With a longer wait, the jobs of one busy host
would occupy every process."""

RETRY_AFTER = 5.0
"""Seconds after which a job that got no connection asks for one again."""

LEASE = 5.0
"""Seconds after which a connection is released between two files, so that other jobs get one."""


class FleetHostLimiter:
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
        """`give_up_after`: a host is given up after so many seconds without any answer from it."""
        self._session = session
        self._owner = owner
        """The job or batch; `why` shows who uses the connections."""
        self._limit_of = limit
        self._max_wait = max_wait
        self._give_up_after = give_up_after
        self._idle: defaultdict[str, list[Connection]] = defaultdict(list)
        self._clear: dict[str, threading.Event] = {}
        """Hosts without back-off when they were last read; the event is set once their node is written."""
        self._opened: dict[str, Connection] = {}
        """The connection that was opened last to each host; it shows the server's clock."""
        self._probing: set[str] = set()
        """Hosts that did not answer, and that this attempt probes."""
        self._mutex = threading.Lock()
        self._probe_mutex = threading.Lock()

    @contextmanager
    def connection(self, host: str, attempt: Attempt) -> Iterator[None]:
        """Within this block one request may be sent to the host.

        RateLimited if that takes too long; HostDown if the host did not answer a moment ago, HostGivenUp if
        it has not for long.
        """
        connection = self._reuse(host) or self._open(host, attempt)
        try:
            self._wait_out_back_off(host, connection, attempt)
            yield
        finally:
            self._return(host, connection)

    def redirected(self, start: str, host: str, attempt: Attempt) -> None:
        """Wait for the pause of a host to which a request is redirected; read again only after a change."""
        self._opened.setdefault(host, self._opened[start])
        self._wait_out_back_off(host, self._opened[start], attempt)

    def back_off(self, host: str, seconds: float, cause: str = "") -> None:
        host_back_off.begin(self._session, host, seconds, cause)

    def no_answer(self, host: str, cause: str) -> None:
        self._probing.discard(host)
        host_back_off.no_answer(self._session, host, self._opened[host].clock, cause)

    def answered(self, host: str) -> None:
        if host in self._probing:
            self._probing.discard(host)
            host_back_off.answered(self._session, host, self._opened[host].clock)

    def close(self) -> None:
        with self._mutex:
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
        for connection in idle:
            host_connections.release(connection)

    @cached_property
    def _limit(self) -> int:
        """Read when the first request is sent."""
        return self._limit_of() or host_connections.UNLIMITED

    def _reuse(self, host: str) -> Connection | None:
        with self._mutex:
            connections = self._idle[host]
            return connections.pop() if connections else None

    def _open(self, host: str, attempt: Attempt) -> Connection:
        deadline = time.monotonic() + self._max_wait
        while True:
            attempt.check()
            changed = threading.Event()
            connection = host_connections.acquire(self._session, host, self._limit, self._owner, changed)
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

    def _return(self, host: str, connection: Connection) -> None:
        if time.monotonic() - connection.opened > LEASE:
            _ = connection.clock  # read while its node is there: a back-off may have to be noted yet
            host_connections.release(connection)
            return
        with self._mutex:
            self._idle[host].append(connection)

    def _wait_out_back_off(self, host: str, own: Connection, attempt: Attempt) -> None:
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
        """What a host that did not answer a moment ago means for this attempt."""
        cause = pause.cause or "it did not answer"
        if pause.silent >= self._give_up_after:
            minutes = round(pause.silent / 60)
            return HostGivenUp(f"{cause}; {host} has answered no request for {minutes:,} minutes")
        return HostDown(
            f"{cause}, when {host} was asked last; it is asked again in {pause.left:.0f} seconds",
            pause.left,
            host,
        )

    def _read_pause(self, host: str, own: Connection) -> tuple[Pause, threading.Event]:
        """The pause of the host; once it is over, an attempt probes a host that did not answer."""
        with self._probe_mutex:
            pause, changed = host_back_off.read_watched(self._session, host, lambda: own.clock)
            if pause.left <= 0 and pause.unanswered and host not in self._probing:
                if not host_back_off.take_probe(self._session, host, pause, own.clock):
                    return host_back_off.read_watched(self._session, host, lambda: own.clock)
                self._probing.add(host)
            return pause, changed
