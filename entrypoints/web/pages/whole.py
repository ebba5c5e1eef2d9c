"""What the pages show of the whole fleet: its health, working storage, and collections at their limit.

These facts are expensive, so they are queried at most every few seconds, for all pages together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar, cast

from fastapi import Request

from entrypoints.web.context import WebContext
from operations.fleet.fleet import Answers, Fleet, ask_broker, ask_workers
from operations.fleet.health import FleetHealth, Space, fleet_health, record_memory, space_now
from operations.reasons import Reason
from pipeline.codes import ErrorKind
from pipeline.errors import ArklineError
from pipeline.records import age, now
from zkstate.fleet import holds, notes
from zkstate.queue import fairness, queue

T = TypeVar("T")

PERIOD = 3.0
"""Seconds for which an answer is shown before it is renewed."""

OLD = 15.0
"""Seconds after which a page waits for a new answer, because the last one is too old."""

TIMEOUT = 1.0
"""Seconds that a page waits for a new answer before it shows the old one."""

FIRST_TIMEOUT = 5.0
"""Seconds that a page waits for the process's first answer."""

_log = logging.getLogger("arkline.web")


class Recent(Generic[T]):
    """The last answer of `ask`. Thread-safe.

    A single thread calls `ask`, so that no page waits for as long as that takes: an answer older than PERIOD
    is shown once more while a new one is fetched.
    """

    def __init__(self, ask: Callable[[], T], name: str) -> None:
        self._ask = ask
        self._name = name
        self._changed = threading.Condition()
        self._answer: T | None = None
        self._at = float("-inf")
        self._tried = float("-inf")
        self._asking = False
        self._again = False
        self._closed = False
        self._wakes: list[Callable[[], None]] = []

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` after every answer, in the asking thread: it must not block."""
        self._wakes.append(wake)

    def get(self, first: float = FIRST_TIMEOUT) -> T | None:
        """The answer; None before the first one, or if a server that it needs does not answer.

        `first`: seconds to wait for the process's first answer.
        """
        with self._changed:
            now = time.monotonic()
            if now - max(self._at, self._tried) >= PERIOD:
                self._start()
            if self._asking and now - self._at >= OLD:
                timeout = TIMEOUT if self._at > 0 else first
                self._changed.wait_for(lambda: self._at >= now or not self._asking, timeout)
            return self._answer

    def renew(self) -> None:
        """Ask now, and again after a query in progress: its subject has changed."""
        with self._changed:
            self._again = self._asking
            self._start()

    def close(self) -> None:
        """Stop asking."""
        with self._changed:
            self._closed = True

    def _start(self) -> None:
        if not self._asking and not self._closed:
            self._asking = True
            threading.Thread(target=self._run, name=f"ask: {self._name}", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._keep(*self._asked())
            for wake in self._wakes:
                wake()
            with self._changed:
                if not self._again or self._closed:
                    self._asking = False
                    self._changed.notify_all()
                    return
                self._again = False

    def _asked(self) -> tuple[bool, T | None]:
        """Whether there is an answer, and the answer: None if a server does not answer."""
        try:
            return True, self._ask()
        except ArklineError as error:
            if error.error_kind is ErrorKind.UNREACHABLE:
                return True, None
            _log.exception("the pages cannot renew: %s", self._name)
        except Exception:  # noqa: BLE001 - logged: it is asked again
            _log.exception("the pages cannot renew: %s", self._name)
        return False, None

    def _keep(self, answered: bool, answer: T | None) -> None:
        with self._changed:
            self._tried = time.monotonic()
            if answered:
                self._answer, self._at = answer, self._tried
            self._changed.notify_all()


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
