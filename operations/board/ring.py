"""The last changes, so that a client that was away for a moment continues where it was."""

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable

from operations.board.values import EVERYTHING, Change, Changes, Scope

LENGTH = 4096
"""Changes that are remembered."""


class Ring:
    """Thread-safe. An id is `boot.number`: ids of another process, or of long ago, mean a reset."""

    def __init__(self, length: int = LENGTH) -> None:
        self._boot = uuid.uuid4().hex[:8]
        self._last = 0
        self._changes: deque[tuple[int, Change]] = deque(maxlen=length)
        self._news = threading.Condition()
        self._subscribers: set[Callable[[], None]] = set()

    def add(self, changes: Iterable[Change]) -> None:
        """Number the changes, and wake everybody who waits."""
        with self._news:
            before = self._last
            for change in changes:
                self._last += 1
                named = change.model_copy(update={"id": f"{self._boot}.{self._last}"})
                self._changes.append((self._last, named))
            if self._last == before:
                return
            self._news.notify_all()
            subscribers = tuple(self._subscribers)
        for wake in subscribers:
            wake()

    def since(self, event_id: str | None, scope: Scope = EVERYTHING) -> Changes:
        """The changes after this id that the scope admits; without an id none, from now on."""
        with self._news:
            last = f"{self._boot}.{self._last}"
            if event_id is None:
                return Changes(last=last)
            number = self._number(event_id)
            if number is None:
                return Changes(last=last, reset=True)
            changes = tuple(
                change for at, change in self._changes if at > number and _is_admitted(change, scope)
            )
            return Changes(last=last, changes=changes)

    def wait(self, event_id: str, seconds: float) -> bool:
        """True once there is a change after this id; False after `seconds`."""
        with self._news:
            return self._news.wait_for(lambda: self._number(event_id) != self._last, seconds)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called after every flush, on the writer's thread; the result ends this."""
        with self._news:
            self._subscribers.add(wake)

        def end() -> None:
            with self._news:
                self._subscribers.discard(wake)

        return end

    def _number(self, event_id: str) -> int | None:
        """None if changes after this id may be forgotten."""
        boot, _, text = event_id.partition(".")
        if boot != self._boot or not text.isdecimal():
            return None
        number = int(text)
        oldest = self._changes[0][0] if self._changes else self._last + 1
        return number if oldest - 1 <= number <= self._last else None


def _is_admitted(change: Change, scope: Scope) -> bool:
    if change.kind in ("stops", "freshness"):
        return True  # no facts about anybody: the client asks again
    return scope.admits(change.collection, change.owner)
