"""The web application, served on a free port of this machine while a test uses it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from entrypoints.web.server import server

START_SECONDS = 30.0


@contextmanager
def served(app: FastAPI, proxies: str = "") -> Iterator[str]:
    """The address of the application until the block ends."""
    ready = threading.Event()
    ports: list[int] = []

    def on_ready(port: int) -> None:
        ports.append(port)
        ready.set()

    running = server(app, "127.0.0.1", 0, on_ready, proxies)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        assert ready.wait(START_SECONDS), "the server does not start"
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        running.should_exit = True
        thread.join()
