"""The base of the HTTP servers of the tests: they run in a thread, on loopback, and print nothing."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing: the output of the tests matters."""

    def request_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def respond(self, status: int, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


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
