"""Handlers for kazoo: one for its own connection, and one whose connection several threads read in turn.

With TLS, kazoo's own handler also trusts every CA of the system, leaves a socket open after every refused
connection, and waits for bytes that it already has. Both handlers here take SSL contexts instead.
"""

import select
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.handlers.utils import fileobj_to_fd

Ready = tuple[list[Any], list[Any], list[Any]]

_READABLE = select.POLLIN | select.POLLPRI | select.POLLHUP | select.POLLERR
"""A closed or broken connection counts as readable, as with epoll: the read then reports the reason."""

_WRITABLE = select.POLLOUT | select.POLLHUP | select.POLLERR


class StockHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler, with the SSL context that `context` makes for each connection, if TLS is used.

    So a renewed authority is trusted at the next connection. An OSError of `context` fails that one only.
    """

    def __init__(self, context: Callable[[], ssl.SSLContext] | None = None) -> None:
        super().__init__()
        self._context = context
        self._hostname = ""
        """The host name of the session's server."""

    def create_connection(self, address: Any, hostname: str | None = None, **options: Any) -> Any:
        """`hostname`: None for a command (`mntr`) to the server of the session."""
        if self._context is None:
            return super().create_connection(address, hostname=hostname, **options)
        if hostname:
            self._hostname = hostname
        context = self._context()
        connection = socket.create_connection(address, options.get("timeout"))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(connection, server_hostname=self._hostname)  # closes it if it fails

    def select(
        self, reading: Sequence[Any], writing: Sequence[Any], errors: Any, timeout: float | None = None
    ) -> Ready:
        """Two answers may arrive in one TLS record: the socket then has nothing to read, but TLS has."""
        decrypted = [one for one in reading if isinstance(one, ssl.SSLSocket) and one.pending()]
        return (decrypted, [], []) if decrypted else self.poll(reading, writing, timeout)

    def poll(self, reading: Sequence[Any], writing: Sequence[Any], timeout: float | None) -> Ready:
        readable, writable, _ = super().select(reading, writing, [], timeout)
        return list(readable), list(writable), []


class Gate:
    """Wakes kazoo's thread when its connection is readable or a request is queued.

    While another thread reads, the gate is shut for the connection.
    """

    def __init__(self, connection: Any, requests: Any) -> None:
        self.connection = connection
        self._epoll = select.epoll()
        self._epoll.register(connection, select.EPOLLIN | select.EPOLLPRI)
        self._epoll.register(requests, select.EPOLLIN)

    def wait(self, reading: Sequence[Any], timeout: float | None) -> list[Any]:
        ready = {descriptor for descriptor, _ in self._epoll.poll(timeout)}
        return [file for file in reading if file.fileno() in ready]

    def shut(self) -> None:
        self._epoll.modify(self.connection, 0)

    def open(self) -> None:
        self._epoll.modify(self.connection, select.EPOLLIN | select.EPOLLPRI)

    def close(self) -> None:
        self._epoll.close()


class Answer(AsyncResult):  # type: ignore[misc]  # kazoo has no types
    """The answer to one request. If that was sent on a `connection`, the waiting thread reads from it."""

    connection: Any = None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if block and self.connection is not None and not self.ready():
            self.connection.read_until(self, timeout)
        return super().get(block, timeout)


class DirectHandler(StockHandler):
    """Waits for sockets with poll(2), or at the gate of its connection.

    kazoo 2.11 creates, fills and closes a selector for every wait: with epoll four system calls instead of
    one, and five waits for one request. poll has no limit of file descriptors either.
    """

    gate: Gate | None = None
    """The connection's gate; None while kazoo's thread alone reads."""

    def async_result(self) -> Answer:
        return Answer(self)

    def select(
        self, reading: Sequence[Any], writing: Sequence[Any], errors: Any, timeout: float | None = None
    ) -> Ready:
        gate = self.gate
        if gate is not None and gate.connection in reading:
            return gate.wait(reading, timeout), [], []
        return super().select(reading, writing, errors, timeout)

    def poll(self, reading: Sequence[Any], writing: Sequence[Any], timeout: float | None) -> Ready:
        """The ready files, as from `select.select`; `timeout` in seconds, None for no limit.

        ValueError for a closed file and for a negative timeout.
        """
        if timeout is not None and timeout < 0:
            raise ValueError("timeout must be non-negative")
        events_of: dict[int, int] = {}
        for file in reading:
            events_of[fileobj_to_fd(file)] = select.POLLIN | select.POLLPRI
        for file in writing:
            descriptor = fileobj_to_fd(file)
            events_of[descriptor] = events_of.get(descriptor, 0) | select.POLLOUT
        poll = select.poll()
        for descriptor, events in events_of.items():
            poll.register(descriptor, events)
        ready = dict(poll.poll(None if timeout is None else timeout * 1000))
        if closed := [descriptor for descriptor, events in ready.items() if events & select.POLLNVAL]:
            raise ValueError(f"file descriptor {closed[0]} is closed")
        return (
            [file for file in reading if ready.get(fileobj_to_fd(file), 0) & _READABLE],
            [file for file in writing if ready.get(fileobj_to_fd(file), 0) & _WRITABLE],
            [],
        )
