"""Commands to clamd, by the protocol of clamd(8): one command for each connection, which clamd closes.

Written here because a file is scanned for minutes, in which the caller wants to be asked whether it still
should be, and because clamd answers and closes in the middle of a stream that exceeds its limit: a client
that first sends everything loses this answer.
"""

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

Alive = Callable[[], None]
"""Raises where the work was cancelled."""

CHUNK = 1 << 16
ANSWER_LIMIT = 1 << 16
POLL = 0.5
"""Seconds between two calls of `keep_alive`."""

_LOST = (ConnectionError, TimeoutError)


class Unreachable(Exception):
    """No connection."""


class ConnectionLost(Exception):
    """The connection ended without an answer."""


class NoAnswer(Exception):
    """No answer within the time limit; the connection is closed."""


@dataclass(frozen=True)
class Clamd:
    address: str
    """unix:/PATH or tcp:HOST:PORT."""

    def ask(self, command: str, seconds: float, keep_alive: Alive) -> str:
        """The answer to a command without data, such as PING."""
        answers = self._exchange(iter([f"z{command}\0".encode()]), seconds, keep_alive)
        return answers[0]

    def scan(self, stream: BinaryIO, seconds: float, keep_alive: Alive) -> tuple[str, ...]:
        """The answers about the stream's bytes: one, or several if clamd reports heuristics at once."""
        return self._exchange(_instream(stream), seconds, keep_alive)

    def _exchange(self, pieces: Iterator[bytes], seconds: float, keep_alive: Alive) -> tuple[str, ...]:
        clock = _Clock(seconds, keep_alive)
        with self._connected(clock) as connection:
            answer = _exchanged(connection, pieces, clock)
        if not answer:
            raise ConnectionLost(f"clamd at {self.address} closed the connection without an answer")
        return tuple(line.decode(errors="replace") for line in answer.rstrip(b"\0").split(b"\0"))

    @contextmanager
    def _connected(self, clock: "_Clock") -> Iterator[socket.socket]:
        try:
            connection = self._connection(clock)
        except OSError as error:
            raise Unreachable(f"clamd at {self.address}: {error.strerror or error}") from error
        with connection:
            yield connection

    def _connection(self, clock: "_Clock") -> socket.socket:
        kind, _, place = self.address.partition(":")
        if kind == "unix":
            return _opened(socket.AF_UNIX, place, clock)
        host, _, port = place.rpartition(":")
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        for family, _, _, _, address in addresses[:-1]:
            try:
                return _opened(family, address, clock)
            except OSError:
                continue  # the error of the last address is reported
        return _opened(addresses[-1][0], addresses[-1][4], clock)


class _Clock:
    """Calls `keep_alive` often enough, and ends at the deadline."""

    def __init__(self, seconds: float, keep_alive: Alive) -> None:
        self._deadline = time.monotonic() + seconds
        self._keep_alive = keep_alive
        self._next = 0.0

    def tick(self) -> None:
        now = time.monotonic()
        if now >= self._deadline:
            raise NoAnswer
        if now >= self._next:
            self._keep_alive()
            self._next = now + POLL


def _opened(family: int, address: object, clock: _Clock) -> socket.socket:
    # nonblocking, so that `keep_alive` is called while clamd does not answer
    connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        while (problem := connection.connect_ex(address)) == errno.EAGAIN:  # type: ignore[arg-type]
            clock.tick()  # a Unix socket whose queue of connections is full
            select.select([], [], [], POLL)
        if problem == errno.EINPROGRESS:
            while not _ready(connection, select.POLLOUT):
                clock.tick()
            problem = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    except BaseException:
        connection.close()
        raise
    if problem:
        connection.close()
        raise OSError(problem, os.strerror(problem))
    return connection


def _exchanged(connection: socket.socket, pieces: Iterator[bytes], clock: _Clock) -> bytes:
    """Send the pieces and return what is answered, which may come before the last piece is sent."""
    answer, unsent = bytearray(), memoryview(next(pieces))
    while len(answer) <= ANSWER_LIMIT:
        clock.tick()
        ready = _ready(connection, select.POLLIN | (select.POLLOUT if unsent else 0))
        try:
            if ready & ~select.POLLOUT:  # an answer, or the end of the connection
                got = connection.recv(ANSWER_LIMIT)
                if not got:
                    break
                answer += got
            elif ready:
                unsent = unsent[connection.send(unsent) :] or memoryview(next(pieces, b""))
        except _LOST:
            if not unsent:
                break
            unsent = memoryview(b"")  # what clamd answered before it closed can still be read
    return bytes(answer)


def _ready(connection: socket.socket, events: int) -> int:
    """The events that are there within POLL; not by `select`, which takes no descriptor above 1,023."""
    waiting = select.poll()
    waiting.register(connection, events)
    return next((ready for _, ready in waiting.poll(POLL * 1000)), 0)


def _instream(stream: BinaryIO) -> Iterator[bytes]:
    """The command and the chunks, of which an empty one is the last."""
    before = b"zINSTREAM\0"
    while True:
        chunk = stream.read(CHUNK)
        end = b"" if len(chunk) == CHUNK else bytes(4)
        yield before + (struct.pack("!I", len(chunk)) + chunk if chunk else b"") + end
        if end:
            return
        before = b""
