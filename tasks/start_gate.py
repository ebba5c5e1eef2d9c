"""What a process waits for before it takes messages: stores that belong together, and a prefix of its own."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import redis

from pipeline.errors import ArklineError, UsageRefused
from pipeline.settings import Settings
from pipeline.working_storage import mount
from tasks import broker_claim
from tasks.logs import log
from tasks.stores import ConfirmedStores
from zkstate import deployment, space
from zkstate.session import Session

PAUSE = 2.0
"""Seconds between two tries."""

CLAIM_CHECK = 5.0
"""Seconds between two looks at the claim of the prefix, while a worker runs."""

LEFT_FOR = 2 * CLAIM_CHECK
"""Seconds that another deployment's prefix has to be free: its workers set a lost key again."""

_NO_ID = "no worker has given the record its deployment id yet"


def confirmed_id(settings: Settings, session: Session) -> str:
    """The id of this deployment, after a comparison of its stores; ArklineError says what is wrong."""
    stores = ConfirmedStores(settings)
    stores.confirm(session)
    mount.note_mark(settings, space.WorkingStorage(session))
    return stores.id


def recorded_id(session: Session) -> str:
    """The id in the record; empty if no worker has given it one yet."""
    recorded = deployment.read(session)
    return recorded.id if recorded else ""


def await_claim(
    settings: Settings,
    opened: Callable[[], AbstractContextManager[Session]],
    own_id: Callable[[Session], str],
) -> str:
    """Wait until `own_id` gives an id, and that deployment has the prefix in Redis; the id.

    Each reason for waiting is logged once.
    """
    waiting = threading.Event()  # never set: a signal ends the process
    logged = ""
    left = 0.0
    while True:
        problem = _NO_ID
        try:
            with opened() as session:
                if own := own_id(session):
                    holder = _claim(settings, session, own, left)
                    if holder == own:
                        return own
                    problem = broker_claim.claimed_by_other(settings, holder, own) if holder else logged
                    left = time.monotonic() + LEFT_FOR if holder else left
        except UsageRefused:
            raise  # a setting is wrong: the process ends
        except (ArklineError, redis.RedisError) as error:
            problem = str(error)
        if problem != logged:
            write = log().info if problem is _NO_ID else log().error  # every first start waits for the id
            write("waiting before the first message", problem=problem)
            logged = problem
        waiting.wait(PAUSE)


def _claim(settings: Settings, session: Session, own: str, left: float) -> str:
    """The deployment that has the prefix; the record is believed before the key in Redis.

    Empty if nobody has claimed it, but another deployment had it until `left`: its workers claim it again.
    """
    if broker_claim.is_ours(settings, deployment.read(session)):
        broker_claim.claim_again(settings, own)
        return own
    holder = broker_claim.owner(settings) if time.monotonic() < left else broker_claim.claim(settings, own)
    if holder == own:
        broker_claim.note_ours(settings, session)
    return holder


def keep_claim(settings: Settings, own: str, stopped: threading.Event) -> None:
    """Set the key again when it is lost or changed, while a worker runs: the prefix is this deployment's."""

    def keep() -> None:
        while not stopped.wait(CLAIM_CHECK):
            try:
                had = broker_claim.claim_again(settings, own)
            except redis.RedisError:
                continue  # the consumer waits for Redis too
            if had != own:
                error = broker_claim.claimed_by_other(settings, had, own)
                log().error("the prefix in Redis was claimed by another; claimed again", error=error)

    threading.Thread(target=keep, name="claim", daemon=True).start()
