"""How current the board is; thread-safe, since the connection's thread reports a loss."""

import threading
import time
from datetime import datetime, timedelta

from operations.board.values import Freshness
from pipeline.records import now

PROOF_LIMIT = 15.0
"""Seconds without a proof that changes are pushed after which the board is stale, whoever did not notice."""


class Currency:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = Freshness(as_of=now(), stale=True, stale_since=now())
        self._proven = 0.0
        """When it was last proven that changes are pushed; a moment of `time.monotonic`."""

    def read(self) -> Freshness:
        """While changes are pushed, the board is as of the last proof of that."""
        with self._lock:
            return self._read()

    def _read(self) -> Freshness:
        state = self._state
        if state.stale or not state.following:
            return state
        silent = time.monotonic() - self._proven
        as_of = max(state.as_of, now() - timedelta(seconds=silent))
        if silent < PROOF_LIMIT:
            return state.model_copy(update={"as_of": as_of})
        return state.model_copy(update={"as_of": as_of, "stale": True, "stale_since": as_of})

    def proven(self, moment: float) -> None:
        """All changes up to this moment of `time.monotonic` were pushed and are applied."""
        with self._lock:
            self._proven = moment

    def lost(self) -> bool:
        """The connection was lost; False if the board is stale already."""
        with self._lock:
            if self._state.stale:
                return False
            self._state = self._read().model_copy(
                update={"stale": True, "stale_since": now(), "following": False}
            )
            return True

    def compared(
        self, as_of: datetime, *, following: bool, corrections: int = 0, resync: bool = False
    ) -> bool:
        """The board agrees with the record as it was at `as_of`; True if it was stale before."""
        with self._lock:
            before = self._state
            self._state = before.model_copy(
                update={
                    "as_of": as_of,
                    "stale": False,
                    "stale_since": None,
                    "following": following,
                    "corrections": before.corrections + corrections,
                    "resyncs": before.resyncs + resync,
                }
            )
            return before.stale
