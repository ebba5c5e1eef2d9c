"""A client of ZooKeeper: who it says it is. Without a user, it works with servers on loopback alone."""

import ipaddress
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from kazoo.client import KazooClient, _prefix_root
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, ConnectionLoss, SessionExpiredError
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import Sync
from kazoo.protocol.states import KeeperState
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_digest_acl

from pipeline.errors import UsageRefused
from pipeline.settings import Settings
from zkstate import tls
from zkstate.connection import DirectConnection
from zkstate.create_request import CreateRequest

MAX_RECONNECT_DELAY = 2.0
"""Seconds between two tries to connect, at most."""

_LONGEST_ANSWER = 1 << 16
"""Bytes; `mntr` of ZooKeeper 3.9 has some 9,000, and comes in pieces."""

_EPHEMERAL = 1
"""The flag of a request to create a node."""

_FAULTS = {
    KeeperState.AUTH_FAILED: AuthFailedError,
    KeeperState.CLOSED: ConnectionClosedError,
    KeeperState.EXPIRED_SESSION: SessionExpiredError,
}
"""The answers to requests in a state in which none is sent."""

_CONNECTED = (KeeperState.CONNECTED, KeeperState.CONNECTED_RO)

T = TypeVar("T")


class Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """kazoo's client, whose callers send their requests and read the answers (see `zkstate.connection`)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        retry = self._conn_retry.copy()
        self._connection: DirectConnection = DirectConnection(self, retry, logger=self.logger)

    def _call(self, request: Any, async_object: Any) -> bool:
        """As kazoo's, which takes every exception of the caller's thread for the end of the connection."""
        if self._connection.send_now(request, async_object):
            return True
        if (fault := _FAULTS.get(self._state)) is not None:
            async_object.set_exception(fault())
            return False
        self._connection.send_later(request, async_object)
        return True

    def start_within(self, seconds: float) -> None:
        """As kazoo's `start`, which stops without a limit what did not connect in time."""
        if not self.start_async().wait(seconds):
            raise self.handler.timeout_exception("Connection time-out")

    def stop_within(self, seconds: float) -> bool:
        """End the session and its threads; False if a thread of a connected session continues.

        kazoo's `stop` waits for its threads without a limit. A thread that waits for the server continues
        once the socket is shut; the server then ends the session after its timeout, as for a dead process.
        """
        ending = threading.Thread(target=self._end, name="end of a session", daemon=True)
        ending.start()
        ending.join(seconds)
        if ending.is_alive():
            self._connection.end()
            ending.join(seconds)
        return not ending.is_alive() or self._connection.is_connecting

    def _end(self) -> None:
        self.stop()
        self._connection.connection_stopped.wait()
        self.close()

    def command(self, cmd: bytes = b"ruok") -> str:
        """As kazoo's, which leaves its socket open after a fault, and reads one piece of the answer."""
        if (connected := self._connection._socket) is None:
            raise ConnectionLoss("no server is connected")
        answer = b""
        with self.handler.create_connection(
            connected.getpeername()[:2], hostname=None, timeout=self._session_timeout / 1000
        ) as connection:
            connection.sendall(cmd)
            while len(answer) < _LONGEST_ANSWER and (piece := connection.recv(_LONGEST_ANSWER)):
                answer += piece
        return answer.decode(errors="replace")

    def together(self, ask: Callable[[], T]) -> T:
        """What `ask` returns, which waits for no answer: its requests are sent in one piece."""
        return self._connection.together(ask)

    def request(self, request: Any) -> Any:
        """Send the request, whose paths are whole; its answer."""
        answer = self.handler.async_result()
        self._call(request, answer)
        return answer

    @property
    def access(self) -> Sequence[ACL]:
        """The access list of new nodes."""
        access: Sequence[ACL] = self.default_acl or OPEN_ACL_UNSAFE
        return access

    def create_ephemeral(self, path: str, data: bytes) -> Any:
        """As kazoo's `create_async`, whose answer passes through a further thread."""
        return self.request(CreateRequest(whole_path(self.chroot, path), data, self.access, _EPHEMERAL))

    def _session_callback(self, state: Any) -> None:
        if state not in _CONNECTED:
            self._connection.end_sharing()
        super()._session_callback(state)

    def sync_async(self, path: str) -> Any:
        """As kazoo's, without the path as the answer, which another thread would have to compute."""
        return self.request(Sync(whole_path(self.chroot, path)))


def whole_path(chroot: str, path: str) -> str:
    """The path below the root of the session; kazoo takes six times as long for a path that is plain."""
    plain = path[:1] == "/" and "//" not in path and "/." not in path and path[-1:] != "/"
    whole: str = root_prefix(chroot) + path if plain else _prefix_root(chroot, path)
    return whole


@lru_cache(maxsize=8)
def root_prefix(chroot: str) -> str:
    """What kazoo puts before a path."""
    return "".join(f"/{name}" for name in chroot.split("/") if name)


def make_client(settings: Settings) -> Client:
    """A client that is not started; UsageRefused if the settings would leave the record open to others."""
    _check_access_list(settings)
    return Client(
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
