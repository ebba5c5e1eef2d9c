"""Sockets that ask, before a call and twice a second while they wait, whether their exchange may continue.

The timeouts of the libraries begin anew with every byte. A peer that sends one byte now and then, as part of
a header, of a chunk's size or of a trailer, keeps them waiting for ever, inside a call of the library.
"""

import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

CHECK_INTERVAL = 0.5
"""Seconds between two checks, at most."""

T = TypeVar("T")


class Exchange(threading.local):
    """The exchange of the thread that asks: what `check` raises ends the call of the library."""

    check: Callable[[], None] = staticmethod(lambda: None)
    redirected: Callable[[str], None] = staticmethod(lambda host: None)
    """Called with the host and port to which a request is redirected, before a request is sent there."""


class _Interruptible(socket.socket):
    exchange: Exchange
    _timeout: float | None = None

    def settimeout(self, value: float | None) -> None:
        if value is not None and value == self._timeout:
            return  # as it is: no call of the system
        self._timeout = value
        super().settimeout(CHECK_INTERVAL if value is None else min(value, CHECK_INTERVAL))

    def gettimeout(self) -> float | None:
        return self._timeout

    def recv(self, *arguments: Any) -> bytes:
        return self._checked(lambda: super(_Interruptible, self).recv(*arguments))

    def sendall(self, data: Any, flags: int = 0) -> None:
        with memoryview(data).cast("B") as octets:
            sent = 0
            while sent < len(octets):
                rest = octets[sent:]
                sent += self._checked(lambda rest=rest: self.send(rest, flags))  # type: ignore[misc]

    def _checked(self, call: Callable[[], T]) -> T:
        """What `call` returns, called again after each interval; TimeoutError after the socket's timeout."""
        began = time.monotonic()
        while True:
            self.exchange.check()
            try:
                return call()
            except TimeoutError:
                if self._timeout is not None and time.monotonic() - began >= self._timeout:
                    raise


class PlainSocket(_Interruptible):
    def connect(self, address: Any) -> None:
        limit = self._timeout
        super().settimeout(0)
        code = self.connect_ex(address)
        super().settimeout(limit)
        with suppress(BlockingIOError):
            _raise_if(code)
            return
        waiting = select.poll()
        waiting.register(self, select.POLLOUT)
        self._checked(lambda: _wait(waiting))
        _raise_if(self.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


class TlsSocket(_Interruptible, ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        try:
            self._checked(lambda: super(_Interruptible, self).do_handshake(block))
        except BaseException:
            self.close()
            raise


def _wait(waiting: select.poll) -> None:
    if not waiting.poll(CHECK_INTERVAL * 1000):
        raise TimeoutError("timed out")


def _raise_if(code: int) -> None:
    """OSError, of the class that belongs to `code`, unless it is 0."""
    if code:
        raise OSError(code, os.strerror(code))


def addresses_of(host: str, port: int, family: int, exchange: Exchange) -> list[str]:
    """The addresses of `host`, in the resolver's order; socket.gaierror or UnicodeError if it has none.

    The resolver cannot be interrupted, so a thread waits for it. Left alone, it ends after the resolver's
    own timeouts, some 30 seconds.
    """
    answers: SimpleQueue[list[str] | Exception] = SimpleQueue()

    def look_up() -> None:
        try:
            answer = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
            answers.put(list(dict.fromkeys(str(entry[4][0]) for entry in answer)))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    threading.Thread(target=look_up, name="look up a host", daemon=True).start()
    while True:
        exchange.check()
        try:
            answer = answers.get(timeout=CHECK_INTERVAL)
        except Empty:
            continue
        if isinstance(answer, Exception):
            raise answer
        return answer
