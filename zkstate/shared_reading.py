"""A handler for kazoo whose connection several threads read, one at a time (see `zkstate.connection`)."""

import select
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import AsyncResult

from zkstate.polling import PollHandler


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


class SharingHandler(PollHandler):
    gate: Gate | None = None
    """The connection's gate; None while kazoo's thread alone reads."""

    def async_result(self) -> Answer:
        return Answer(self)

    def select(
        self,
        reading: Sequence[Any],
        writing: Sequence[Any],
        exceptional: object,
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        gate = self.gate
        if gate is not None and gate.connection in reading:
            return gate.wait(reading, timeout), [], []
        return super().select(reading, writing, exceptional, timeout)
