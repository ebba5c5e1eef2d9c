"""A handler for kazoo that waits for sockets with poll(2).

kazoo 2.11 creates, fills and closes a selector for every wait: with epoll four system calls instead of one,
and five waits for one request. poll has no limit of file descriptors either.
"""

import select
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.handlers.utils import fileobj_to_fd

_READABLE = select.POLLIN | select.POLLPRI | select.POLLHUP | select.POLLERR
"""A closed or broken connection counts as readable, as with epoll: the read then reports the reason."""

_WRITABLE = select.POLLOUT | select.POLLHUP | select.POLLERR


class Gate:
    """Wakes kazoo's thread when its connection has something to read, or a request waits; can be shut for
    the first, while another thread reads."""

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
    """Of one request. The thread that waits for it reads from the connection, if it was sent on one."""

    connection: Any = None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if block and self.connection is not None and not self.ready():
            self.connection.read_until(self, timeout)
        return super().get(block, timeout)


class PollHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    gate: Gate | None = None
    """Of the connection, while threads read their own answers."""

    def async_result(self) -> Answer:
        return Answer(self)

    def select(
        self,
        reading: Sequence[Any],
        writing: Sequence[Any],
        _exceptional: object,
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """The ready ones, as by `select.select`; `timeout` in seconds, None for no limit.

        ValueError for a file that is closed and for a negative timeout.
        """
        if timeout is not None and timeout < 0:
            raise ValueError("timeout must be non-negative")
        gate = self.gate
        if gate is not None and gate.connection in reading:
            return gate.wait(reading, timeout), [], []
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
