"""What the web server itself refuses, before the application has a request."""

import socket
import threading
from contextlib import suppress
from queue import Queue
from types import SimpleNamespace

from fastapi import FastAPI

from entrypoints.web.server import server

MOST = 1 << 24
"""Bytes; a head that is received so far has no limit."""


def test_a_head_without_an_end_is_refused() -> None:
    application = FastAPI()
    application.state.context = SimpleNamespace(streams=SimpleNamespace(close=lambda: None))
    ports: Queue[int] = Queue()
    running = server(application, "127.0.0.1", 0, ports.put)
    thread = threading.Thread(target=running.run)
    thread.start()
    sent = 0
    try:
        connection = socket.create_connection(("127.0.0.1", ports.get(timeout=30)), timeout=30)
        with connection, suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: ")
            while sent < MOST:
                connection.sendall(b"a" * (1 << 16))
                sent += 1 << 16
    finally:
        running.should_exit = True
        thread.join(timeout=30)

    assert sent < MOST
