"""Places of the fleet: so many holders at a time, each with an ephemeral node that has a number of its own.

ZooKeeper refuses a second node with the same number, so there are never more places than numbers, however
many workers wait. A place is free again when its holder releases it, or when the holder's session ends.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from kazoo.exceptions import NoNodeError

from pipeline.attempt import Attempt
from pipeline.checks import CheckRule
from pipeline.outcome import Later, WaitKind
from zkstate import paths
from zkstate.connection import locks
from zkstate.connection.clock import ServerClock, server_clock
from zkstate.connection.session import Session
from zkstate.connection.transaction import token


@dataclass(frozen=True)
class Place:
    """One place, until it is released."""

    session: Session
    path: str
    token: str
    opened: float
    """When its node was created, by `time.monotonic`."""

    @cached_property
    def clock(self) -> ServerClock:
        """The server's clock, from the creation of the node: read on demand, while the node exists."""
        return server_clock(self.session, self.path, self.opened)

    def release(self) -> None:
        locks.drop(self.session, self.path, self.token)


def acquire(session: Session, folder: str, limit: int, owner: str, changed: threading.Event) -> Place | None:
    """One of `limit` places; None if all are taken: then `changed` is set once one is released."""
    while len(taken := _numbers(session, folder, changed)) < limit:
        # one number more than are taken, so that at least one of these is free
        numbers = random.sample(range(limit), len(taken) + 1)
        free = next(number for number in numbers if str(number) not in taken)
        path, holder = paths.place(folder, free), f"{token()} {owner}"
        if locks.take(session, path, holder):
            return Place(session, path, holder, time.monotonic())
    return None


def _numbers(session: Session, folder: str, changed: threading.Event) -> set[str]:
    """The numbers in use; `changed` is set when a place is taken or released."""
    while True:
        try:
            return set(session.ask(session.zk.get_children_async, folder, watch=lambda _: changed.set()))
        except NoNodeError:
            session.ensure_node(folder)


CHECK_WAIT = 2.0
"""Seconds that a worker waits for a place of a check; then the job is handed back."""

RETRY_AFTER = 5.0
"""Seconds after which a job that got no place is retried."""


@contextmanager
def place_of_check(session: Session, owner: str, attempt: Attempt, rule: CheckRule) -> Iterator[None]:
    """Hold one of the places of the check, if it has a limit; Later if none is free soon."""
    if rule.at_once is None:
        yield
        return
    place = _place_of_check(session, owner, attempt, rule.name, rule.at_once)
    try:
        yield
    finally:
        place.release()


def _place_of_check(session: Session, owner: str, attempt: Attempt, name: str, limit: int) -> Place:
    deadline = time.monotonic() + CHECK_WAIT
    while True:
        attempt.check()
        changed = threading.Event()
        place = acquire(session, paths.check_places(name), limit, owner, changed)
        if place is not None:
            return place
        if time.monotonic() > deadline:
            message = f"all runs of the check {name} that the fleet may do at once ({limit}) are in progress"
            raise Later(WaitKind.CHECK, name, message, RETRY_AFTER)
        changed.wait(0.5)
