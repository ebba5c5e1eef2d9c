"""While a database does not answer, one thread of the process retries, and the others fail at once."""

import threading
import time

AWAY_FOR = 5.0
"""Seconds without a retry."""

RETRY_WITHIN = 30.0
"""Seconds after which another thread may retry; longer than one attempt to connect can take."""


class Silence:
    """Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._until = 0.0
        """When the next retry may begin, in seconds on the monotonic clock; 0 if no outage is known."""
        self._retrying = 0
        """The identifier of the thread that retries; 0 if none does."""

    def holds(self) -> bool:
        """Whether the caller must fail at once. After AWAY_FOR, the first caller gets False, and retries."""
        if not self._until:  # the usual case needs no lock
            return False
        with self._guard:
            own, now = threading.get_ident(), time.monotonic()
            if not self._until:
                return False
            if now >= self._until:
                self._retrying, self._until = own, now + RETRY_WITHIN
            return self._retrying != own

    def begin(self) -> None:
        with self._guard:
            self._retrying, self._until = 0, time.monotonic() + AWAY_FOR

    def end(self) -> None:
        if self._until:
            with self._guard:
                self._retrying, self._until = 0, 0.0
