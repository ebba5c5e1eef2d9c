"""Serves a folder over HTTP on loopback, for the tools that need a content source."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from entrypoints.stack.child import HOST


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing: the screen belongs to the caller."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the files in `folder`, which may be filled later, for the block; yields the base URL."""
    with ThreadingHTTPServer((HOST, 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
