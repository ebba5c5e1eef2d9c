"""What a process waits for before it takes messages: stores that belong together, and a prefix of its own."""

import os
import threading
from collections.abc import Callable

import redis

from pipeline.errors import ArklineError, UsageRefused
from pipeline.settings import Settings
from pipeline.working_storage import mount
from tasks.broker_claim import claim, claimed_by_other
from tasks.logs import log
from tasks.stores import ConfirmedStores
from zkstate import deployment, space
from zkstate.session import Session, connect

PAUSE = 2.0
"""Seconds between two tries."""

CLAIM_CHECK = 5.0
"""Seconds between two looks at the claim of the prefix, while a worker runs."""

_NO_ID = "no worker has given the record its deployment id yet"

EXIT_FOREIGN = os.EX_TEMPFAIL
"""A supervisor restarts the process, which then waits."""


def confirmed_id(settings: Settings) -> str:
    """The id of this deployment, after a comparison of its stores; ArklineError says what is wrong."""
    with connect(settings) as session:
        stores = ConfirmedStores(settings)
        stores.confirm(session)
        mount.note_mark(settings, space.WorkingStorage(session))
        return stores.id


def recorded_id(session: Session) -> str:
    """The id in the record; empty if no worker has given it one yet."""
    recorded = deployment.read(session)
    return recorded.id if recorded else ""


def await_claim(settings: Settings, own_id: Callable[[], str]) -> str:
    """Wait until `own_id` gives an id, and that deployment has the prefix in Redis; the id.

    Each reason for waiting is logged once.
    """
    waiting = threading.Event()  # never set: a signal ends the process
    logged = ""
    while True:
        problem = ""
        try:
            own = own_id()
            owner = claim(settings, own) if own else ""
            if own and owner == own:
                return own
            problem = claimed_by_other(settings, owner, own) if own else _NO_ID
        except UsageRefused:
            raise  # a setting is wrong: the process ends
        except (ArklineError, redis.RedisError) as error:
            problem = str(error)
        if problem != logged:
            write = log().info if problem is _NO_ID else log().error  # every first start waits for the id
            write("waiting before the first message", problem=problem)
            logged = problem
        waiting.wait(PAUSE)


def watch_claim(settings: Settings, deployment_id: str, stopped: threading.Event) -> None:
    """End this process once another deployment has the prefix."""

    def watch() -> None:
        while not stopped.wait(CLAIM_CHECK):
            try:
                owner = claim(settings, deployment_id)
            except redis.RedisError:
                continue  # the consumer waits for Redis too
            if owner != deployment_id:
                error = claimed_by_other(settings, owner, deployment_id)
                log().critical("messages of another deployment; exiting", error=error)
                os._exit(EXIT_FOREIGN)

    threading.Thread(target=watch, name="claim", daemon=True).start()
