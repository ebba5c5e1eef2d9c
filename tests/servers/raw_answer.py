"""A server that answers requests with given bytes, whatever they are, and closes the connection.

with RawAnswer() as server:
    server.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
    server.url
    server.asked                     # the first lines of the requests
"""

import socket
import threading
from contextlib import suppress
from typing import Self

from tests.servers.base import HOST

REQUEST_SECONDS = 5.0
"""Seconds that the rest of a request may take."""


class RawAnswer(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.answer = b""
        self.answers: list[bytes] = []
        """The first ones, before `answer`."""
        self.asked: list[bytes] = []
        self._listener = socket.create_server((HOST, 0), backlog=64)
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join()

    def run(self) -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _ = self._listener.accept()
                with client, suppress(OSError):  # a client may leave before the end of the answer
                    client.settimeout(REQUEST_SECONDS)
                    self._read_request(client)
                    client.sendall(self.answers.pop(0) if self.answers else self.answer)

    def _read_request(self, client: socket.socket) -> None:
        """All of it: a connection that is closed with unread bytes loses the answer."""
        with client.makefile("rb") as request:
            length = 0
            self.asked.append(request.readline().strip())
            while (line := request.readline()).strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            request.read(length)
