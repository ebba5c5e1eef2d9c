"""What a process waits for before it takes messages: stores that belong together, and a prefix of its own.

Two deployments with one prefix in Redis would take each other's messages. A key there holds the id of the
one that has the prefix. The record says whether the prefix is this deployment's; the key only lets others
wait, and is set again if it is lost or changed.
"""

import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import redis

from pipeline.deployment import Deployment
from pipeline.errors import ArklineError, UsageRefused
from pipeline.settings import Settings
from pipeline.working_storage import mount
from tasks.logs import log
from tasks.redis_client import client
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
                    problem = claimed_by_other(settings, holder, own) if holder else logged
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
    if is_ours(settings, deployment.read(session)):
        claim_again(settings, own)
        return own
    holder = owner(settings) if time.monotonic() < left else claim(settings, own)
    if holder == own:
        note_ours(settings, session)
    return holder


def keep_claim(settings: Settings, own: str, stopped: threading.Event) -> None:
    """Set the key again when it is lost or changed, while a worker runs: the prefix is this deployment's."""

    def keep() -> None:
        while not stopped.wait(CLAIM_CHECK):
            try:
                had = claim_again(settings, own)
            except redis.RedisError:
                continue  # the consumer waits for Redis too
            if had != own:
                error = claimed_by_other(settings, had, own)
                log().error("the prefix in Redis was claimed by another; claimed again", error=error)

    threading.Thread(target=keep, name="claim", daemon=True).start()


_ID = re.compile(rb"[0-9a-f]{32}")

_CLAIM = """
local held = redis.pcall('GET', KEYS[1])
if type(held) ~= 'string' or #held ~= 32 or held:find('[^0-9a-f]') then
  redis.call('SET', KEYS[1], ARGV[1])
  return ARGV[1]
end
return held
"""
"""What is not the id of a deployment claims nothing: the key may be lost, or anybody's."""


def claim_key(settings: Settings) -> str:
    return f"{settings.broker_prefix}deployment"


def claim(settings: Settings, own: str) -> str:
    """Claim the prefix unless it is claimed; the id of the deployment that has it. redis.RedisError."""
    holder: bytes = client(settings).eval(_CLAIM, 1, claim_key(settings), own)
    return holder.decode()


def claim_again(settings: Settings, own: str) -> str:
    """Set the key to the id of this deployment, which owns the prefix; the id it had. redis.RedisError."""
    had = claim(settings, own)
    if had != own:
        client(settings).set(claim_key(settings), own)
    return had


def owner(settings: Settings) -> str:
    """The id of the deployment that claimed the prefix; empty if none did. redis.RedisError."""
    try:
        value = client(settings).get(claim_key(settings))
    except redis.ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        return ""
    return value.decode() if isinstance(value, bytes) and _ID.fullmatch(value) else ""


def is_ours(settings: Settings, recorded: Deployment | None) -> bool:
    """Whether the record says that its deployment has the prefix."""
    return recorded is not None and recorded.broker == _place(settings)


def note_ours(settings: Settings, session: Session) -> None:
    """Have the record say that this deployment has the prefix."""
    deployment.note_broker(session, _place(settings))


def claimed_by_other(settings: Settings, claimed_by: str, own: str) -> str:
    return (
        f"the prefix {settings.broker_prefix} in Redis at {_address(settings)} belongs to deployment "
        f"{claimed_by}, not to {own}: set ARKLINE_BROKER_PREFIX to a prefix that no other "
        f"deployment uses, or delete the key {claim_key(settings)} if that deployment is gone"
    )


def _place(settings: Settings) -> str:
    """The database and the prefix, without a password."""
    database = client(settings).connection_pool.connection_kwargs.get("db") or 0
    return f"{_address(settings)}/{database} {settings.broker_prefix}"


def _address(settings: Settings) -> str:
    server = client(settings).connection_pool.connection_kwargs
    return f"{server.get('host')}:{server.get('port')}"
