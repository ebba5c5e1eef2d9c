"""Waits for a site that is away or asks to wait, and ends after an hour without progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from entrypoints.cli import api

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds before the first retry, and at most: the pause doubles with each retry."""

LONGEST_AWAY = 3600.0
"""Seconds without progress after which the command ends."""

T = TypeVar("T")


@dataclass
class BackOff:
    """`on_wait` is called with the reason of the first wait since the last progress."""

    on_wait: Callable[[str], None]
    _pause: float = field(default=FIRST_PAUSE, init=False)
    _away_since: float | None = field(default=None, init=False)
    """The first failure since the last progress, in seconds of the monotonic clock; None without one."""

    def repeated(self, work: Callable[[], T]) -> T:
        """The result of `work`, tried again while the site is away; its error after LONGEST_AWAY."""
        result = self.tried(work)
        self.progressed()
        return result

    def tried(self, work: Callable[[], T]) -> T:
        """As `repeated`, for an answer that is no progress."""
        while True:
            try:
                return work()
            except api.Away as away:
                self.wait(away)

    def wait(self, away: api.Away) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            self.on_wait(str(away))
        elif now - self._away_since > LONGEST_AWAY:
            raise away
        time.sleep(max(self._pause, away.wait))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def progressed(self) -> None:
        self._away_since, self._pause = None, FIRST_PAUSE
