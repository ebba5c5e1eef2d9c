"""How many connections the whole fleet has open to one host, and until when a host is left alone.

A connection is an ephemeral node below the host's: the server refuses a second one of the same number,
so that no crowd of waiting workers can have more than there are. A host's peace is a number of seconds in
its node, from the moment that the node was written; both moments are the server's.
"""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from kazoo.exceptions import NoNodeError

from pipeline.attempt import Attempt
from pipeline.outcome import RateLimited
from pipeline.records import Record
from zkstate import codec, counters, locks, paths
from zkstate.errors import Unreachable
from zkstate.locks import ServerClock
from zkstate.session import Session

PATIENCE = 20.0
"""Seconds that a worker waits for a host; then the job is handed back, and another takes the worker."""

AGAIN = 5.0
"""Seconds after which a job that was handed back for want of a connection asks again."""

LEASE = 5.0
"""Seconds after which a connection is given back between two files, so that other jobs get theirs."""

MAX_BACK_OFF = 3600.0
"""Seconds that a host is left alone at most, whatever it asks for; then it may ask again."""

ANY_NUMBER = 1 << 20
"""Connections where there is no limit: only peace is kept then."""


class BackOff(Record):
    """`/locks/hosts/HOST`: seconds from the node's last change in which nobody asks the host."""

    seconds: float = 0


@dataclass(frozen=True)
class _Place:
    path: str
    mark: str
    since: float
    clock: ServerClock


class FleetHostLimiter:
    """One attempt's dealings with hosts; its threads share it, and `close` gives everything back."""

    def __init__(
        self, session: Session, limit: Callable[[], int], who: str = "", patience: float = PATIENCE
    ) -> None:
        self._session = session
        self._who = who
        """The job or the batch, for people who ask who has the connections."""
        self._limit_of = limit
        self._patience = patience
        self._free: defaultdict[str, list[_Place]] = defaultdict(list)
        self._clear: dict[str, threading.Event] = {}
        """Hosts that wanted no peace when they were looked at; set once somebody has written there since."""
        self._mutex = threading.Lock()

    @contextmanager
    def connection(self, host: str, attempt: Attempt) -> Iterator[None]:
        place = self._again(host) or self._wait_for_place(host, attempt)
        try:
            self._await_back_off(host, place, attempt)
            yield
        finally:
            if time.monotonic() - place.since > LEASE:
                locks.drop(self._session, place.path, place.mark)
            else:
                with self._mutex:
                    self._free[host].append(place)

    def back_off(self, host: str, seconds: float) -> None:
        path = paths.host(host)
        counters.ensure_node(self._session, path)
        asked = min(seconds, MAX_BACK_OFF)
        with locks.single_flight(self._session, f"peace-{host}") as clock:
            # whoever is at it already was asked at the same moment
            if clock is not None and _back_off_left(self._session, host, clock) < asked:
                self._session.ask(self._session.zk.set_async, path, codec.encode(BackOff(seconds=asked)))

    @cached_property
    def _limit(self) -> int:
        """Asked for only once something is fetched."""
        return self._limit_of() or ANY_NUMBER

    def close(self) -> None:
        with self._mutex:
            kept = [place for places in self._free.values() for place in places]
            self._free.clear()
        for place in kept:
            locks.drop(self._session, place.path, place.mark)

    def _again(self, host: str) -> _Place | None:
        with self._mutex:
            places = self._free[host]
            return places.pop() if places else None

    def _wait_for_place(self, host: str, attempt: Attempt) -> _Place:
        deadline = time.monotonic() + self._patience
        while True:
            attempt.check()
            changed = threading.Event()
            taken = _places(self._session, host, changed)
            if len(taken) < self._limit:
                if place := self._take(host, taken):
                    return place
            elif time.monotonic() > deadline:
                raise RateLimited(
                    f"all {self._limit} connections that the fleet may have open to {host} are in use "
                    "(ARKLINE_HOST_LIMIT, or limits.host_connections in the profile)",
                    AGAIN,
                )
            else:
                changed.wait(0.5)

    def _take(self, host: str, taken: set[str]) -> _Place | None:
        number = next(n for n in iter(lambda: random.randrange(self._limit), -1) if str(n) not in taken)  # noqa: S311 - spreads the tries, guards nothing
        path, mark = paths.connection(host, number), f"{locks.token()} {self._who}"
        if not locks.take(self._session, path, mark):
            return None
        stat = self._session.exists(path)
        if stat is None:
            raise Unreachable("the ZooKeeper session was lost")
        now = time.monotonic()
        return _Place(path, mark, now, ServerClock(stat.ctime, now))

    def _await_back_off(self, host: str, place: _Place, attempt: Attempt) -> None:
        seen = self._clear.get(host)
        if seen is not None and not seen.is_set():
            return
        deadline = time.monotonic() + self._patience
        while True:
            changed = threading.Event()
            left = _back_off_left(self._session, host, place.clock, changed)
            if left <= 0:
                self._clear[host] = changed
                return
            if time.monotonic() + left > deadline:
                raise RateLimited(f"{host} asked to be left alone, for {left:.0f} seconds more", left)
            attempt.check()
            changed.wait(min(left, 0.2))


def in_use(session: Session, host: str) -> int:
    """Connections that the fleet has open to a host now."""
    stat = session.exists(paths.host(host))
    return stat.numChildren if stat else 0


def holders(session: Session, host: str) -> tuple[str, ...]:
    """Who has each of the connections to a host; '' for one that did not say."""
    path = paths.host(host)
    if session.exists(path) is None:
        return ()
    found = session.get_many([f"{path}/{number}" for number in session.children(path)])
    return tuple(node[0].decode(errors="replace").partition(" ")[2] for node in found if node)


def back_off_left(session: Session, host: str) -> float:
    """Seconds until the host may be asked again, by this machine's clock, which is for people only."""
    return _back_off_left(session, host, ServerClock(int(time.time() * 1000), time.monotonic()))


def _back_off_left(
    session: Session, host: str, clock: ServerClock, changed: threading.Event | None = None
) -> float:
    """Seconds until the host may be asked again, 0 if it may; `changed` is set when its node is written."""
    path = paths.host(host)
    watch = changed and (lambda _: changed.set())
    try:
        data, stat = session.ask(session.zk.get_async, path, watch=watch)
    except NoNodeError:
        return 0
    if not data:
        return 0
    peace = codec.decode(BackOff, data, path)
    return max(0.0, float(stat.mtime - clock.now_ms()) / 1000 + peace.seconds)


def _places(session: Session, host: str, changed: threading.Event) -> set[str]:
    """The numbers that are taken; `changed` is set when one comes or goes."""
    path = paths.host(host)
    while True:
        try:
            return set(session.ask(session.zk.get_children_async, path, watch=lambda _: changed.set()))
        except NoNodeError:
            counters.ensure_node(session, path)
