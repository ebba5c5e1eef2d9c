"""A client of ZooKeeper: who it says it is. Without a user, it works with servers on loopback alone."""

import ipaddress
from typing import Any

from kazoo.client import KazooClient
from kazoo.hosts import collect_hosts
from kazoo.security import make_digest_acl

from pipeline.errors import UsageRefused
from pipeline.settings import Settings
from zkstate import tls

MAX_RECONNECT_DELAY = 2.0
"""Seconds between two tries to connect, at most."""


def make_client(settings: Settings) -> KazooClient:
    """A client that is not started; UsageRefused if the settings would leave the record open to others."""
    _check_access_list(settings)
    return KazooClient(
        hosts=settings.zk_hosts,
        handler=tls.handler(settings),
        timeout=settings.zk_session_timeout,
        connection_retry={"max_tries": -1, "delay": 0.2, "backoff": 1.5, "max_delay": MAX_RECONNECT_DELAY},
        command_retry={"max_tries": 5, "delay": 0.1, "max_delay": 1.0},
        **_credentials(settings),
    )


def _check_access_list(settings: Settings) -> None:
    if settings.zk_user or settings.zk_open:
        return
    hosts, _ = collect_hosts(settings.zk_hosts)
    if strangers := [host.strip() for host, _ in hosts if not _is_loopback(host.strip())]:
        raise UsageRefused(
            f"ZooKeeper at {strangers[0]} is not on this machine, and without a user everybody who reaches "
            "that server can change the record: set ARKLINE_ZK_USER and ARKLINE_ZK_PASSWORD, or "
            "ARKLINE_ZK_OPEN=1 to work with an open record"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _credentials(settings: Settings) -> dict[str, Any]:
    if not settings.zk_user:
        return {}
    password = settings.zk_password.get_secret_value()
    return {
        "auth_data": [("digest", f"{settings.zk_user}:{password}")],
        "default_acl": [make_digest_acl(settings.zk_user, password, all=True)],
    }
