"""The latest changes, so that a client that was briefly disconnected can continue where it left off."""

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable

from operations.board.values import EVERYTHING, Change, Changes, Scope

LENGTH = 4096
"""Number of changes kept."""


class Ring:
    """Thread-safe. An id is `boot.number`; an id of another process, or one too old, causes a reset."""

    def __init__(self, length: int = LENGTH) -> None:
        self._boot = uuid.uuid4().hex[:8]
        self._last = 0
        self._changes: deque[tuple[int, Change]] = deque(maxlen=length)
        self._news = threading.Condition()
        self._subscribers: set[Callable[[], None]] = set()

    def add(self, changes: Iterable[Change]) -> None:
        """Number the changes, and wake all waiting threads."""
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
        """The changes after this id within the scope; without an id none, only the id to continue after."""
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
        """Call `wake` after every flush, in the writer's thread; returns a function that unsubscribes."""
        with self._news:
            self._subscribers.add(wake)

        def end() -> None:
            with self._news:
                self._subscribers.discard(wake)

        return end

    def _number(self, event_id: str) -> int | None:
        """The id's number; None if changes after it may have been discarded."""
        boot, _, text = event_id.partition(".")
        if boot != self._boot or not text.isdecimal():
            return None
        number = int(text)
        oldest = self._changes[0][0] if self._changes else self._last + 1
        return number if oldest - 1 <= number <= self._last else None


def _is_admitted(change: Change, scope: Scope) -> bool:
    if change.kind in ("stops", "freshness"):
        return True  # names no job or batch: the client reloads
    return scope.admits(change.collection, change.owner)
