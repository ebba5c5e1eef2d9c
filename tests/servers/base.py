"""The base of the HTTP servers of the tests: they run in a thread, on loopback, and print nothing."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

HOST = "127.0.0.1"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing: the output of the tests matters."""

    def request_body(self) -> bytes:
        """The whole body; the request of a client that died within it has no effect."""
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionAbortedError(f"{len(body)} of {length} bytes came")
        return body

    def respond(self, status: int, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@dataclass
class Service:
    """A service whose data outlives its server: it can be stopped, and served again."""

    port: int = 0
    ended: threading.Event = field(default_factory=threading.Event, kw_only=True)
    """Set when the server stops: requests that are held end."""
    turn: threading.Lock = field(default_factory=threading.Lock, kw_only=True)
    """Held by the request that reads or changes the data."""


S = TypeVar("S", bound=Service)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Many tests are about clients that disconnect; any other error is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], port: int = 0, host: str = HOST) -> Iterator[int]:
    """Serve requests until the block ends; yields the port, any free port if `port` is 0."""
    server = _Server((host, port), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def running(service: S, handler: type[BaseHTTPRequestHandler]) -> Iterator[S]:
    """Serve the service at the port that it had before; the handler finds the service in `service`."""
    service.ended.clear()
    with serving(type(handler.__name__, (handler,), {"service": service}), service.port) as service.port:
        try:
            yield service
        finally:
            service.ended.set()
