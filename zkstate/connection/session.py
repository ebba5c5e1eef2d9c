"""One ZooKeeper session, and the consequences of losing it.

Rule: once the connection was lost for longer than a third of the session timeout, or the session was
lost, all work that relied on its locks is over, even if the client is connected again; kazoo
itself silently opens a new session and reports CONNECTED.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from kazoo.client import KazooState
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from pipeline import codes
from pipeline.errors import Action, ArklineError, Remedy
from pipeline.settings import Settings
from zkstate import paths
from zkstate.connection.client import make_client, why_unreachable
from zkstate.direct import Client
from zkstate.errors import Missing, Unreachable, UserRefused

BROKEN = (
    ConnectionLoss,
    OperationTimeoutError,
    KazooTimeoutError,
    SessionExpiredError,
    ConnectionClosedError,
)
"""The errors after which it is unknown whether a write was applied."""

ANSWER_TIMEOUT = 30.0
"""Seconds to wait for one answer; kazoo's synchronous calls would wait for ever."""


CLOSE_TIME = 5.0
"""Seconds to wait for the end of a session, and again once its connection is shut."""

EXIT_UNCLOSED = os.EX_TEMPFAIL
"""A supervisor restarts the process."""

START = Remedy(Action.START_RECORD)
"""The remedy if ZooKeeper does not answer."""

PROBE_PAUSE = 3.0
"""Maximum seconds between two probes of a ZooKeeper that does not answer this client."""

PROBE_TIMEOUT = 2.0
"""Seconds that a probe may take."""

_log = logging.getLogger("arkline.session")

T = TypeVar("T")


class Session(AbstractContextManager["Session"]):
    """A connected client. Thread-safe; belongs to the process that made it."""

    def __init__(self, settings: Settings, client: Client, answer_timeout: float = ANSWER_TIMEOUT) -> None:
        self.zk = client
        self.answer_timeout = answer_timeout
        """Seconds to wait for one answer."""
        self.hosts = settings.zk_hosts
        self.root = settings.zk_root.rstrip("/") or "/"
        self.timeout = settings.zk_session_timeout
        self._mutex = threading.Lock()
        self._losses = 0
        self._away_since: float | None = None
        self._connected = threading.Event()
        self._closed = threading.Event()
        self._beside = threading.Lock()
        self._none_beside = threading.Event()
        """Cleared while a thread of this session has a separate client."""
        self._none_beside.set()
        self.connections = 0
        """How often the client has connected; after that, another server or another record may answer."""
        self.remembered: dict[str, object] = {}
        """Answers of ZooKeeper that modules cache while their watches are set."""
        self._last_change = 0
        self._went_back: Unreachable | None = None
        self._probe = partial(_probe, settings)
        self.refuses_size = partial(_refuses_size, settings)
        """Whether ZooKeeper answers, but not to a request of that many bytes."""
        client.add_listener(self._on_change)

    def _on_change(self, state: str) -> None:
        """Called on kazoo's own thread: must not block."""
        left = False
        with self._mutex:
            if state == KazooState.SUSPENDED:
                left, self._away_since = self._away_since is None, self._away_since or time.monotonic()
            elif state == KazooState.LOST or self._away_too_long():
                self._losses += 1
            if state == KazooState.CONNECTED:
                self._away_since = None
                self.connections += 1
                self._connected.set()
            else:
                self._connected.clear()
        if left:
            threading.Thread(target=self._watch_absence, daemon=True).start()

    def _watch_absence(self) -> None:
        """While the client is disconnected, find out whether ZooKeeper answers others with an older record.

        A server refuses a session that has seen a later change than the server has; the client then silently
        reconnects for ever.
        """
        while not self._connected.wait(min(self.timeout / 3, PROBE_PAUSE)) and not self._closed.is_set():
            has = self._ask_beside(self._probe)
            latest = self.last_change
            if has is None or has >= latest or self._connected.is_set():
                continue
            self._went_back = Unreachable(
                f"the record in ZooKeeper at {self.hosts} is older than it was (its last change is {has:#x}, "
                f"but {latest:#x} was seen), so it was restored from a backup or is another one",
                code=codes.WENT_BACK,
            )
            _log.error("%s", self._went_back)
            self.zk.stop()  # what waits for an answer gets an error now
            return

    def _ask_beside(self, ask: Callable[[], T]) -> T | None:
        """The result of `ask`, which uses a separate client; `close` waits for it. None if closed already."""
        with self._beside:
            self._none_beside.clear()
            try:
                return None if self._closed.is_set() else ask()
            finally:
                self._none_beside.set()

    @property
    def last_change(self) -> int:
        """The zxid of the latest change that this session has seen; kazoo forgets it at the end."""
        self._last_change = max(self._last_change, int(self.zk.last_zxid))
        return self._last_change

    def _away_too_long(self) -> bool:
        away = self._away_since
        return away is not None and time.monotonic() - away > self.timeout / 3

    def standing(self) -> tuple[int, int] | None:
        """A token that must not change while a lock is relied on; None if no lock can be relied on now."""
        with self._mutex:
            if self._away_too_long():
                return None
            return self._losses, self.id

    @property
    def id(self) -> int:
        identity = self.zk.client_id
        return int(identity[0]) if identity else 0

    def ask(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call one of kazoo's *_async methods, with retries after a broken connection until the timeout.

        For reads, and for writes that may be applied twice.
        """
        return self._until_answered(lambda: call(*arguments, **options).get(timeout=self.answer_timeout))

    def _until_answered(self, read: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + self.answer_timeout
        while True:
            try:
                return read()
            except BROKEN as error:
                if time.monotonic() > deadline or not self.wait_connected(deadline):
                    raise self.unreachable() from error
            except (AuthFailedError, NoAuthError) as error:
                raise self.refuses_user() from error

    def wait_connected(self, deadline: float) -> bool:
        """True once the client is connected; False at the deadline, in seconds of `time.monotonic`."""
        left = deadline - time.monotonic()
        return left > 0 and self._went_back is None and self._connected.wait(left)

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    @property
    def usable(self) -> bool:
        """False once ZooKeeper refuses this session for ever: the process has to open another one."""
        return self._went_back is None

    def unreachable(self) -> Unreachable:
        if self._went_back is not None:
            return self._went_back
        return Unreachable(f"ZooKeeper at {self.hosts} does not answer").with_remedies(START)

    def refuses_user(self) -> UserRefused:
        return UserRefused(f"ZooKeeper at {self.hosts} refuses this user: check ARKLINE_ZK_USER")

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        if (node := self.find(path)) is None:
            raise Missing(f"znode {path} is missing")
        return node

    def exists(self, path: str) -> ZnodeStat | None:
        stat: ZnodeStat | None = self.ask(self.zk.exists_async, path)
        return stat

    def children(self, path: str) -> list[str]:
        """The record's own nodes right below `path`, sorted."""
        return paths.owned(path, self.children_of_many([path])[0])

    def find(self, path: str) -> tuple[bytes, ZnodeStat] | None:
        """One node; None if it does not exist."""
        return self.get_many([path])[0]

    def get_many(self, nodes: Sequence[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        """Many nodes, requested at once; None for a node that does not exist."""
        return self._ask_many(self.zk.get_async, nodes)

    def exists_many(self, nodes: Sequence[str]) -> list[ZnodeStat | None]:
        return self._ask_many(self.zk.exists_async, nodes)

    def children_of_many(self, nodes: Sequence[str]) -> list[list[str]]:
        """All names below each of the nodes, unsorted; none for a node that does not exist."""
        return [names or [] for names in self._ask_many(self.zk.get_children_async, nodes)]

    def _ask_many(self, call: Callable[[Any], Any], given: Sequence[Any]) -> list[Any]:
        def read() -> list[Any]:
            flights = self.zk.together(lambda: [call(one) for one in given])
            return [_or_none(flight, self.answer_timeout) for flight in flights]

        answers: list[Any] = self._until_answered(read)
        return answers

    def access_of_many(self, nodes: Sequence[str]) -> list[Sequence[ACL] | None]:
        """The access lists of many nodes; None for a node that does not exist."""
        answers = self._ask_many(self.zk.get_acls_async, nodes)
        return [answer and answer[0] for answer in answers]

    def count_children(self, *nodes: str) -> list[int]:
        """The number of children of each node, without listing them; 0 for a missing node."""
        return [stat.numChildren if stat else 0 for stat in self.exists_many(nodes)]

    def ensure_node(self, path: str, data: bytes = b"") -> None:
        """Create a node and its ancestors unless they exist."""
        with suppress(NodeExistsError):
            self.ask(self.zk.create_async, path, data, makepath=True)

    def get_synced(self, path: str) -> tuple[bytes, ZnodeStat]:
        """The node as the leader has it, so that the caller sees its own write whose answer was lost.

        Both requests are sent at once: a server answers the requests of a session in order.
        """
        _, node = self._ask_many(lambda request: request(path), (self.zk.sync_async, self.zk.get_async))
        if node is None:
            raise Missing(f"znode {path} is missing")
        data, stat = node
        return data, stat

    def create_skeleton(self) -> None:
        """Create the missing znodes of the record; the client must not have its root yet."""
        nodes = [self.root.rstrip("/") + path for path in paths.SKELETON]
        for node, stat in zip(nodes, self.exists_many(nodes), strict=True):
            if stat is None:
                self.ask(self.zk.ensure_path_async, node)

    def create_skeleton_later(self, settings: Settings) -> None:
        """Create the skeleton once ZooKeeper answers; in a session of its own, as this one has its root."""
        while not self._closed.is_set() and self.usable:
            if not self._connected.wait(PROBE_PAUSE):
                continue
            try:
                self._ask_beside(lambda: connect(settings, PROBE_TIMEOUT).close())
            except ArklineError as error:
                _log.warning("the record cannot be prepared: %s", error)
                self._closed.wait(PROBE_PAUSE)
            else:
                return

    def close(self) -> None:
        """End the session and so release its locks, or end this process: a lock must not outlive its work."""
        self._closed.set()
        self._none_beside.wait(CLOSE_TIME)  # a client that takes longer has no lock, and ends by itself
        self._last_change = self.last_change
        if not self.zk.stop_within(CLOSE_TIME):
            _log.critical(
                "the session with ZooKeeper at %s does not end; this process does, so that its locks do",
                self.hosts,
            )
            os._exit(EXIT_UNCLOSED)

    def __exit__(self, *_: object) -> None:
        self.close()


def _or_none(flight: Any, seconds: float) -> Any:
    try:
        return flight.get(timeout=seconds)
    except NoNodeError:
        return None


_NO_ANSWER = (*BROKEN, NoAuthError)


@contextmanager
def _client_beside(settings: Settings) -> Iterator[Client]:
    """A separate client for a few requests."""
    client = make_client(settings)
    try:
        client.start_within(PROBE_TIMEOUT)
        yield client
    finally:
        client.stop_within(PROBE_TIMEOUT)


def _probe(settings: Settings) -> int | None:
    """The zxid of ZooKeeper's last change, as a new client sees it; None if ZooKeeper does not answer."""
    with suppress(*_NO_ANSWER), _client_beside(settings) as client:
        client.exists_async("/").get(timeout=PROBE_TIMEOUT)
        return int(client.last_zxid)
    return None


def _refuses_size(settings: Settings, size: int) -> bool:
    """Whether a new client gets answers, but loses its connection on a request of `size` bytes.

    Tried twice, as a connection may break by chance. None of the commands that a server answers by default
    shows its limit. The request is a read, which may be repeated.
    """
    with suppress(*_NO_ANSWER), _client_beside(settings) as client:
        for _ in range(2):
            _await_answer(client)
            with suppress(ConnectionLoss, ConnectionClosedError):
                client.exists_async("/" + "x" * size).get(timeout=PROBE_TIMEOUT)
                return False
        _await_answer(client)
        return True
    return False


def _await_answer(client: Client) -> None:
    """Wait for the answer to a small request, on a new connection if the last one broke."""
    deadline = time.monotonic() + PROBE_TIMEOUT
    while True:
        try:
            client.exists_async("/").get(timeout=PROBE_TIMEOUT)
        except ConnectionLoss:
            if time.monotonic() > deadline:
                raise
        else:
            return


def connect(
    settings: Settings,
    timeout: float = 15.0,
    *,
    create: bool = True,
    answer_timeout: float = ANSWER_TIMEOUT,
    required: bool = True,
) -> Session:
    """Open a session below the configured root, with the skeleton of the tree in place if `create`.

    `answer_timeout`: seconds after which a call raises Unreachable. `required`: if False, and ZooKeeper does
    not answer within `timeout`, the session is returned unconnected, and connects once ZooKeeper answers.
    """
    client = make_client(settings)
    session = Session(settings, client, answer_timeout)
    try:
        client.start_within(timeout)
        if create:
            session.create_skeleton()
    except UserRefused:
        session.close()
        raise
    except (*BROKEN, Unreachable) as error:
        message = f"ZooKeeper at {settings.zk_hosts} does not answer: {why_unreachable(settings)}"
        if required:
            session.close()
            raise Unreachable(message).with_remedies(START) from error
        _log.warning("%s", message)
        if create:
            threading.Thread(target=session.create_skeleton_later, args=[settings], daemon=True).start()
    client.chroot = settings.zk_root.rstrip("/")
    return session
