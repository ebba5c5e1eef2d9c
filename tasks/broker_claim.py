"""Whose messages are under a prefix in Redis: a key there holds the id of one deployment.

Two deployments with one prefix would take each other's messages. The record says whether the prefix is this
deployment's; the key only lets others wait, and is set again if it is lost or changed.
"""

import re

import redis

from pipeline.deployment import Deployment
from pipeline.settings import Settings
from tasks.redis_client import client
from zkstate import deployment
from zkstate.session import Session

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
