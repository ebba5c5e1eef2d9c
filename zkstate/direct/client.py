"""kazoo's client, on the direct connection where that works and on kazoo's own where it does not."""

import select
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

import kazoo
from kazoo.client import KazooClient, _prefix_root
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, ConnectionLoss, SessionExpiredError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Sync, Watch
from kazoo.protocol.states import KeeperState
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from zkstate.direct.connection import DirectConnection, shut
from zkstate.direct.handler import DirectHandler
from zkstate.direct.requests import AddWatch, CreateRequest

KNOWN = "2.11."
"""Releases of kazoo in which the private names that the direct connection uses have the same meaning."""

_LONGEST_ANSWER = 1 << 16
"""Bytes; the answer to `mntr` of ZooKeeper 3.9 has some 9,000, and arrives in pieces."""

_EPHEMERAL = 1
"""The flag of a request to create a node."""

FAULTS = {
    KeeperState.AUTH_FAILED: AuthFailedError,
    KeeperState.CLOSED: ConnectionClosedError,
    KeeperState.EXPIRED_SESSION: SessionExpiredError,
}
"""State in which no request is sent -> the error that answers a request."""

_CONNECTED = (KeeperState.CONNECTED, KeeperState.CONNECTED_RO)

EventListener = Callable[[int, str], None]
"""Called with the type of an event, as in `kazoo.protocol.connection`, and its full path."""

T = TypeVar("T")


class Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """kazoo's client, in which each calling thread sends its requests and reads the answers.

    With kazoo's own handler, or where the direct connection cannot work, kazoo's threads do both.
    """

    _connection: ConnectionHandler
    _direct: DirectConnection | None = None

    def __init__(self, *arguments: Any, handler: Any = None, **options: Any) -> None:
        super().__init__(*arguments, handler=DirectHandler() if handler is None else handler, **options)
        if reason := _why_stock(self.handler):
            self.logger.info("kazoo's own connection is used: %s", reason)
        else:
            retry, sasl_options = self._conn_retry.copy(), self._connection.sasl_options
            self._direct = DirectConnection(self, retry, logger=self.logger, sasl_options=sasl_options)
            self._connection = self._direct
        self._event_listeners: tuple[EventListener, ...] = ()
        read = self._connection._read_watch_event
        self._connection._read_watch_event = partial(self._read_event, read)

    @property
    def is_direct(self) -> bool:
        """Whether the calling threads send and read themselves."""
        return self._direct is not None

    def _call(self, request: Any, async_object: Any) -> bool:
        """Replaces kazoo's, which takes an exception in a caller's thread for the end of the connection."""
        if self._direct is None:
            return super()._call(request, async_object) is not False
        if self._direct.send_now(request, async_object):
            return True
        if (fault := FAULTS.get(self._state)) is not None:
            async_object.set_exception(fault())
            return False
        self._direct.send_later(request, async_object)
        return True

    def _session_callback(self, state: Any) -> None:
        if self._direct is not None and state not in _CONNECTED:
            self._direct.end_sharing()
        super()._session_callback(state)

    def start_within(self, seconds: float) -> None:
        """Replaces kazoo's `start`, which after its timeout stops the client without a time limit."""
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
            if self._direct is not None:
                self._direct.end()
            shut(self._connection)
            ending.join(seconds)
        return not ending.is_alive() or self._connection._socket is None  # still waiting for a server

    def _end(self) -> None:
        self.stop()
        self._connection.connection_stopped.wait()
        self.close()

    def command(self, cmd: bytes = b"ruok") -> str:
        """Replaces kazoo's, which leaves its socket open after a fault, and reads only part of the answer."""
        if not self.connected or (connected := self._connection._socket) is None:
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
        """Call `ask`, which must not wait for an answer; its requests are sent in one piece, if possible."""
        return ask() if self._direct is None else self._direct.together(ask)

    def request(self, request: Any) -> Any:
        """Send the request, which has full paths; returns its asynchronous answer."""
        answer = self.handler.async_result()
        self._call(request, answer)
        return answer

    @property
    def access(self) -> Sequence[ACL]:
        """The access list of new nodes."""
        access: Sequence[ACL] = self.default_acl or OPEN_ACL_UNSAFE
        return access

    def create_ephemeral(self, path: str, data: bytes) -> Any:
        """Replaces kazoo's `create_async`, which passes the answer through another thread."""
        return self.request(CreateRequest(whole_path(self.chroot, path), data, self.access, _EPHEMERAL))

    def sync_async(self, path: str) -> Any:
        """Like kazoo's, but does not answer the path, which another thread would have to compute."""
        return self.request(Sync(whole_path(self.chroot, path)))

    def add_watch_async(self, path: str) -> Any:
        """Have the server send events of the node and of all below it, until the connection ends."""
        return self.request(AddWatch(whole_path(self.chroot, path)))

    def add_event_listener(self, listener: EventListener) -> None:
        """Call `listener` for each event, before kazoo's watches, in the reading thread; must not block."""
        self._event_listeners = (*self._event_listeners, listener)

    def remove_event_listener(self, listener: EventListener) -> None:
        self._event_listeners = tuple(other for other in self._event_listeners if other != listener)

    def _read_event(self, read: Callable[[bytes, int], None], buffer: bytes, offset: int) -> None:
        if self._event_listeners:
            event, _ = Watch.deserialize(buffer, offset)
            for listener in self._event_listeners:
                listener(event.type, event.path)
        read(buffer, offset)


def _why_stock(handler: Any) -> str:
    """Why the direct connection cannot be used; empty if it can."""
    if not isinstance(handler, DirectHandler):
        return "so the handler wants"
    if not kazoo.__version__.startswith(KNOWN):
        return f"kazoo {kazoo.__version__} is not known"
    return "" if hasattr(select, "epoll") else "the system has no epoll"


def whole_path(chroot: str, path: str) -> str:
    """The path with the session's root in front; for plain paths, six times as fast as kazoo's function."""
    plain = path[:1] == "/" and "//" not in path and "/." not in path and path[-1:] != "/"
    whole: str = root_prefix(chroot) + path if plain else _prefix_root(chroot, path)
    return whole


@lru_cache(maxsize=8)
def root_prefix(chroot: str) -> str:
    """The prefix that kazoo puts in front of a path."""
    return "".join(f"/{name}" for name in chroot.split("/") if name)
