"""Whose messages are under a prefix in Redis: a key there holds the id of one deployment.

Two deployments with one prefix would take each other's messages. Redis may lose the key: whoever comes first
sets it again, and the other one does not consume until it has a prefix of its own.
"""

import redis

from pipeline.settings import Settings
from tasks.redis_client import client


def claim_key(settings: Settings) -> str:
    return f"{settings.broker_prefix}deployment"


def claim(settings: Settings, deployment: str) -> str:
    """Claim the prefix unless it is claimed; the id of the deployment that has it. redis.RedisError."""
    connection: redis.Redis = client(settings)
    connection.set(claim_key(settings), deployment, nx=True)
    return owner(settings) or claim(settings, deployment)


def owner(settings: Settings) -> str:
    """The id of the deployment that claimed the prefix; empty if none did. redis.RedisError."""
    value = client(settings).get(claim_key(settings))
    return value.decode() if isinstance(value, bytes) else ""


def claimed_by_other(settings: Settings, claimed_by: str, deployment: str) -> str:
    server = client(settings).connection_pool.connection_kwargs
    address = f"{server.get('host')}:{server.get('port')}"
    return (
        f"the prefix {settings.broker_prefix} in Redis at {address} belongs to deployment {claimed_by}, not "
        f"to {deployment}: set ARKLINE_BROKER_PREFIX to a prefix that no other "
        f"deployment uses, or delete the key {claim_key(settings)} if that deployment is gone"
    )
