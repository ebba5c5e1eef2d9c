"""The deployment of a record, for commands that work without ZooKeeper too; nothing is created."""

import socket

from kazoo.hosts import collect_hosts

from pipeline.deployment import Deployment
from pipeline.settings import Settings
from zkstate import deployment
from zkstate.errors import Unreachable
from zkstate.session import connect

TIMEOUT = 2.0
"""Seconds to wait for ZooKeeper, for one server to accept a connection and for the session to be open."""


def read_if_reachable(settings: Settings) -> Deployment | None:
    """None if the record has no id; Unreachable if ZooKeeper does not answer soon."""
    hosts, _ = collect_hosts(settings.zk_hosts)
    if not any(_accepts(host, port) for host, port in hosts):  # kazoo would try until the time is up
        raise Unreachable(f"ZooKeeper at {settings.zk_hosts} does not answer")
    with connect(settings, TIMEOUT, create=False) as session:
        return deployment.read(session)


def _accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), TIMEOUT).close()
    except OSError:
        return False
    return True
