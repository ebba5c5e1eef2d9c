"""Values between two pages of one person: notices and previews, kept in memory for a while."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """Values under random keys, each handed out once. Thread-safe.

    A key is random, so that nobody can have another person's page show a text or carry out an act of theirs.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[str, T] = OrderedDict()
        self._mutex = Lock()

    def keep(self, value: T) -> str:
        """The key; the oldest values are forgotten once there are more than `most`."""
        key = secrets.token_urlsafe(12)
        with self._mutex:
            self._values[key] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return key

    def take(self, key: str) -> T | None:
        with self._mutex:
            return self._values.pop(key, None)
