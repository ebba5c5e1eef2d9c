"""How current the board is; thread-safe, since the connection's thread reports a loss."""

import threading
from datetime import datetime

from operations.board.values import Freshness
from pipeline.records import now


class Currency:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = Freshness(as_of=now(), stale=True, stale_since=now())

    def read(self) -> Freshness:
        """While changes are pushed, the board is as of now."""
        with self._lock:
            state = self._state
        live = state.following and not state.stale
        return state.model_copy(update={"as_of": now()}) if live else state

    def lost(self) -> bool:
        """The connection was lost; False if the board is stale already."""
        with self._lock:
            if self._state.stale:
                return False
            moment = now()
            as_of = moment if self._state.following else self._state.as_of
            self._state = self._state.model_copy(
                update={"stale": True, "stale_since": moment, "as_of": as_of, "following": False}
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
