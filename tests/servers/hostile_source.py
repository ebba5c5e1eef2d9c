"""A source that answers with one small piece after the other and never ends, in each part of an answer.

with HostileSource("endless-header", pause=0.05) as source:
    source.url                       # https where the variant is one of TLS
    source.await_left()              # the client has closed its connection
"""

import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from tests.servers.base import HOST

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Drip:
    """What the source sends at once, and then again and again."""

    first: bytes
    again: bytes
    scheme: str = "http"


BEFORE_THE_BODY: Mapping[str, Drip] = {
    "no-answer": Drip(b"", b""),
    "endless-handshake": Drip(b"\x16\x03\x03\x40\x00\x02", b"\0", "https"),
    "no-handshake": Drip(b"", b"", "https"),
    "endless-status-line": Drip(b"HTTP/1.1 200 ", b"x"),
    "endless-header": Drip(OK + b"X-A: ", b"a"),
    "endless-continue": Drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "endless-continue-header": Drip(b"HTTP/1.1 100 Continue\r\nX-A: ", b"a"),
    "endless-redirect": Drip(b"HTTP/1.1 302 Found\r\nLocation: /", b"a"),
}
"""Variants whose headers never end."""

IN_THE_BODY: Mapping[str, Drip] = {
    "endless-body": Drip(OK + b"Content-Length: 1000000\r\n\r\n", b"a"),
    "endless-body-without-length": Drip(OK + b"\r\n", b"a"),
    "endless-chunks": Drip(CHUNKED, b"1\r\na\r\n"),
    "endless-chunk-size": Drip(CHUNKED, b"0"),
    "endless-chunk-extension": Drip(CHUNKED + b"5;", b"a"),
    "endless-trailer": Drip(CHUNKED + b"5\r\nhello\r\n0\r\nX-A: ", b"a"),
    "endless-trailers": Drip(CHUNKED + b"5\r\nhello\r\n0\r\n", b"X-A: a\r\n"),
    "nothing-after-the-headers": Drip(OK + b"Content-Length: 1000000\r\n\r\n", b""),
}
"""Variants whose headers are complete."""

VARIANTS = {**BEFORE_THE_BODY, **IN_THE_BODY}

FAST = {"fast-body-without-end": Drip(OK + b"\r\n", bytes(1 << 20))}
"""Variants that no minimum speed ends."""


class HostileSource(threading.Thread):
    """One server for one variant, whatever is requested.

    `pause`: seconds between two pieces; `context`: the answer is sent over TLS; `host`: a loopback address.
    """

    def __init__(
        self, variant: str, pause: float, context: ssl.SSLContext | None = None, *, host: str = HOST
    ) -> None:
        super().__init__(daemon=True)
        self._context = context
        self._drip = {**VARIANTS, **FAST}[variant]
        self._pause = pause
        self._listener = socket.create_server((host, 0), backlog=64)
        self._ended = threading.Event()
        self._clients: list[threading.Thread] = []
        self._change = threading.Condition()
        self._arrived = 0
        self._left = 0
        scheme = "https" if context else self._drip.scheme
        self.url = f"{scheme}://{host}:{self._listener.getsockname()[1]}/{variant}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in (self, *self._clients):
            thread.join()

    @property
    def arrived(self) -> int:
        """Clients that have got the first piece."""
        return self._arrived

    def await_request(self, times: int = 1, timeout: float = 30) -> None:
        """Return when so many clients have got the first piece."""
        with self._change:
            if not self._change.wait_for(lambda: self._arrived >= times, timeout):
                raise TimeoutError(f"{self._arrived} requests, not {times}")

    def await_left(self, times: int = 1, timeout: float = 30) -> None:
        """Return when so many clients have closed their connections."""
        with self._change:
            if not self._change.wait_for(lambda: self._left >= times, timeout):
                raise TimeoutError(f"{self._left} of {self._arrived} clients have left, not {times}")

    def run(self) -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _ = self._listener.accept()
                self._clients.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
                self._clients[-1].start()

    def _serve(self, client: socket.socket) -> None:
        if self._context:
            client = self._context.wrap_socket(client, server_side=True)
        with client, suppress(ConnectionError):
            client.recv(1 << 16)
            client.sendall(self._drip.first)
            with self._change:
                self._arrived += 1
                self._change.notify_all()
            self._send_on(client)
        with self._change:
            self._left += 1
            self._change.notify_all()

    def _send_on(self, client: socket.socket) -> None:
        """Send piece after piece until the client has left."""
        while not self._ended.is_set():
            client.settimeout(self._pause)
            with suppress(TimeoutError):
                if not client.recv(1 << 16):
                    return
            client.settimeout(None)
            client.sendall(self._drip.again)
