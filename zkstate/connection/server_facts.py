"""What ZooKeeper's servers say of themselves, whichever of them this process is connected to.

A server answers `srvr` always, `mntr`, `conf` and `envi` only if its `4lw.commands.whitelist` names them, as
that of the shipped stacks does.
"""

import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from kazoo.exceptions import KazooException
from kazoo.security import make_digest_acl_credential

from pipeline.records import Record
from pipeline.settings import Settings
from zkstate import paths
from zkstate.connection import locks
from zkstate.connection.client import tls_context
from zkstate.connection.session import Session

SECONDS = 2.0
"""For the connection, and for each answer."""

LONGEST = 1 << 16
"""Bytes of an answer that are read."""

SAMPLE = 20
"""The newest batches and jobs whose access lists are read."""


@dataclass(frozen=True)
class ServerFacts:
    host: str
    port: int
    problem: str = ""
    """Why the server does not answer; empty if it does."""
    srvr: Mapping[str, str] = field(default_factory=dict)
    mntr: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)


def servers(settings: Settings) -> tuple[ServerFacts, ...]:
    """Every server that the settings name; a server that does not answer takes 2 seconds."""
    return tuple(_facts(settings, host, port) for host, port in settings.zk_servers)


def _facts(settings: Settings, host: str, port: int) -> ServerFacts:
    commands = {b"srvr": ":", b"mntr": "\t", b"conf": "="}
    try:
        return ServerFacts(host, port, "", *(_ask(settings, host, port, *row) for row in commands.items()))
    except OSError as error:  # of ssl, too
        return ServerFacts(host, port, str(error))


def _ask(settings: Settings, host: str, port: int, command: bytes, separator: str) -> dict[str, str]:
    with ExitStack() as ending:
        connection = ending.enter_context(socket.create_connection((host, port), SECONDS))
        if settings.zk_tls_ca:
            encrypted = tls_context(settings).wrap_socket(connection, server_hostname=host)
            connection = ending.enter_context(encrypted)
        connection.sendall(command)
        data = b""
        while len(data) < LONGEST and (piece := connection.recv(LONGEST)):
            data += piece
    return _values(data.decode(errors="replace"), separator)


def _values(text: str, separator: str) -> dict[str, str]:
    rows = (line.partition(separator) for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in rows if value}


class ServerMemory(Record):
    """Of the server of a session; any figure may be unknown."""

    heap_bytes: int | None = None
    """The most that Java takes for its heap."""
    znodes: int | None = None
    data_bytes: int | None = None
    """Of all znodes, their paths included."""


def heap_bytes(session: Session) -> int | None:
    megabytes = _number(_answer(session, b"envi", "=").get("os.memory.max", "").removesuffix("MB"))
    return None if megabytes is None else megabytes << 20


def memory(session: Session) -> ServerMemory:
    counters = _answer(session, b"mntr", "\t")
    return ServerMemory(
        heap_bytes=heap_bytes(session),
        znodes=_number(counters.get("zk_znode_count", "")),
        data_bytes=_number(counters.get("zk_approximate_data_size", "")),
    )


def _answer(session: Session, command: bytes, separator: str) -> dict[str, str]:
    """Empty if the server does not answer the command."""
    try:
        return _values(str(session.zk.command(command)), separator)
    except (KazooException, OSError, session.zk.handler.timeout_exception):
        return {}


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def clock_difference(session: Session) -> tuple[float, float]:
    """Seconds by which ZooKeeper's clock is ahead of this host's, and the uncertainty of that number."""
    began = time.time()
    with locks.own_clock(session) as clock:
        ended = time.time()
    return clock.read_ms / 1000 - (began + ended) / 2, (ended - began) / 2


def open_nodes(session: Session, settings: Settings) -> tuple[int, tuple[str, ...]]:
    """The number of nodes whose access list was read, and those that others than the user may use."""
    parents = [*paths.SKELETON, *paths.TOP]
    for folder in (paths.BATCHES, paths.JOBS):
        parents += [f"{folder}/{name}" for name in session.children(folder)[-SAMPLE:]]
    below = zip(parents, session.children_of_many(parents), strict=True)
    nodes = list({*parents, *(f"{path}/{name}" for path, names in below for name in names[:SAMPLE])})
    own = make_digest_acl_credential(settings.zk_user, settings.zk_password.get_secret_value())
    ours = ("digest", own if settings.zk_user else None)
    lists = zip(nodes, session.access_of_many(nodes), strict=True)
    read = {path: access for path, access in lists if access is not None}
    others = [
        path for path, access in read.items() if any((one.id.scheme, one.id.id) != ours for one in access)
    ]
    return len(read), tuple(sorted(others))
