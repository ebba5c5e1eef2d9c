"""One ZooKeeper session, and what losing it means.

Rule: once the connection was away for longer than a third of the session timeout, or the session was
lost, everything that relied on a lock of it is over, even if the client is connected again; kazoo
itself opens a new session silently and says CONNECTED.
"""

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import make_digest_acl

from pipeline.settings import Settings
from zkstate import paths
from zkstate.errors import Missing, Unreachable

BROKEN = (
    ConnectionLoss,
    OperationTimeoutError,
    KazooTimeoutError,
    SessionExpiredError,
    ConnectionClosedError,
)
"""The answers after which it is not known whether a write happened."""

ANSWER_TIMEOUT = 30.0
"""Seconds to wait for one answer; kazoo's synchronous calls would wait for ever."""


class Session:
    """A connected client. Thread-safe; belongs to the process that made it."""

    def __init__(self, settings: Settings, client: KazooClient) -> None:
        self.zk = client
        self.hosts = settings.zk_hosts
        self.timeout = settings.zk_session_timeout
        self._mutex = threading.Lock()
        self._losses = 0
        self._away_since: float | None = None
        client.add_listener(self._on_change)

    def _on_change(self, state: str) -> None:
        """Called on kazoo's own thread: must not block."""
        with self._mutex:
            if state == KazooState.SUSPENDED:
                self._away_since = self._away_since or time.monotonic()
            else:
                if state == KazooState.LOST or self._away_too_long():
                    self._losses += 1
                if state == KazooState.CONNECTED:
                    self._away_since = None

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
        """A call of one of kazoo's *_async, repeated over a broken connection until its time is up.

        For reads, and for writes that may as well happen twice.
        """
        return self._until_answered(lambda: call(*arguments, **options).get(timeout=ANSWER_TIMEOUT))

    def _until_answered(self, read: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while True:
            try:
                return read()
            except BROKEN as error:
                if time.monotonic() > deadline or not self.wait_connected(deadline):
                    raise self.unreachable() from error
            except (AuthFailedError, NoAuthError) as error:
                raise Unreachable(
                    f"ZooKeeper at {self.hosts} refuses this user: check ARKLINE_ZK_USER"
                ) from error

    def wait_connected(self, deadline: float) -> bool:
        while time.monotonic() < deadline:
            if self.zk.connected:
                return True
            connected = threading.Event()

            def notice(state: str, woken: threading.Event = connected) -> None:
                if state == KazooState.CONNECTED:
                    woken.set()

            self.zk.add_listener(notice)
            try:
                if self.zk.connected or connected.wait(max(0.0, min(1.0, deadline - time.monotonic()))):
                    return True
            finally:
                self.zk.remove_listener(notice)
        return False

    def unreachable(self) -> Unreachable:
        return Unreachable(f"ZooKeeper at {self.hosts} does not answer")

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        try:
            data, stat = self.ask(self.zk.get_async, path)
        except NoNodeError as error:
            raise Missing(f"znode {path} is missing") from error
        return data, stat

    def exists(self, path: str) -> ZnodeStat | None:
        stat: ZnodeStat | None = self.ask(self.zk.exists_async, path)
        return stat

    def children(self, path: str) -> list[str]:
        try:
            names: list[str] = self.ask(self.zk.get_children_async, path)
        except NoNodeError:
            return []
        return names

    def get_many(self, nodes: Sequence[str]) -> list[tuple[bytes, ZnodeStat] | None]:
        """Many nodes, requested at once; None for a node that does not exist."""

        def read() -> list[tuple[bytes, ZnodeStat] | None]:
            return [_or_none(flight) for flight in [self.zk.get_async(path) for path in nodes]]

        contents: list[tuple[bytes, ZnodeStat] | None] = self._until_answered(read)
        return contents

    def exists_many(self, nodes: Sequence[str]) -> list[ZnodeStat | None]:
        def read() -> list[ZnodeStat | None]:
            flights = [self.zk.exists_async(path) for path in nodes]
            return [flight.get(timeout=ANSWER_TIMEOUT) for flight in flights]

        stats: list[ZnodeStat | None] = self._until_answered(read)
        return stats

    def get_synced(self, path: str) -> tuple[bytes, ZnodeStat]:
        """The node as the leader has it, so that an own write whose answer was lost is seen."""
        self.ask(self.zk.sync_async, path)
        return self.get(path)

    def close(self) -> None:
        self.zk.stop()
        self.zk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _or_none(flight: Any) -> tuple[bytes, ZnodeStat] | None:
    try:
        data, stat = flight.get(timeout=ANSWER_TIMEOUT)
    except NoNodeError:
        return None
    return data, stat


def connect(settings: Settings, timeout: float = 15.0) -> Session:
    """A session below the configured root, with the skeleton of the tree in place."""
    credentials = {}
    if settings.zk_user:
        password = settings.zk_password.get_secret_value()
        credentials = {
            "auth_data": [("digest", f"{settings.zk_user}:{password}")],
            "default_acl": [make_digest_acl(settings.zk_user, password, all=True)],
        }
    client = KazooClient(
        hosts=settings.zk_hosts,
        timeout=settings.zk_session_timeout,
        connection_retry={"max_tries": -1, "delay": 0.2, "backoff": 1.5, "max_delay": 2.0},
        command_retry={"max_tries": 5, "delay": 0.1, "max_delay": 1.0},
        **credentials,
    )
    session = Session(settings, client)
    try:
        client.start(timeout=timeout)
        _create_skeleton(client, settings.zk_root)
    except (*BROKEN, client.handler.timeout_exception) as error:
        session.close()
        raise Unreachable(
            f"ZooKeeper at {settings.zk_hosts} does not answer: is it running? (ARKLINE_ZK_HOSTS)"
        ) from error
    except NoAuthError as error:
        session.close()
        raise Unreachable(
            f"ZooKeeper at {settings.zk_hosts} refuses this user: check ARKLINE_ZK_USER"
        ) from error
    return session


def _create_skeleton(client: KazooClient, root: str) -> None:
    root = root.rstrip("/")
    if root:
        client.ensure_path_async(root).get(timeout=ANSWER_TIMEOUT)
        client.chroot = root
    there = [client.exists_async(path) for path in paths.SKELETON]
    for path, flight in zip(paths.SKELETON, there, strict=True):
        if flight.get(timeout=ANSWER_TIMEOUT) is None:
            client.ensure_path_async(path).get(timeout=ANSWER_TIMEOUT)
