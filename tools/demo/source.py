"""An HTTP server on loopback that offers a folder as depositors' servers do: GET, HEAD and Range."""

import mimetypes
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from entrypoints.stack.ports import HOST

ONE_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
Span = tuple[int, int]
"""First byte, and the one after the last."""


def span(header: str | None, size: int) -> Span | None:
    """What a Range header asks of a file of `size` bytes: all without one, None if there is nothing there.

    >>> span("bytes=2-4", 10), span("bytes=-3", 10), span("bytes=10-", 10), span("lines=1-2", 10)
    ((2, 5), (7, 10), None, (0, 10))
    """
    match = ONE_RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return 0, size
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    stop = min(size, int(last) + 1) if first and last else size
    return (start, stop) if start < stop else None


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    server: "_Server"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        path = self._path()
        if path is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        data = path.read_bytes()
        asked = self.headers.get("Range")
        found = span(asked, len(data))
        if found is None:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start, stop = found
        partial = (start, stop) != (0, len(data))
        self.send_response(HTTPStatus.PARTIAL_CONTENT if partial else HTTPStatus.OK)
        if partial:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        changed = path.stat().st_mtime
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Type", mimetypes.guess_type(path.name)[0] or "application/octet-stream")
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Last-Modified", formatdate(changed, usegmt=True))
        self.send_header("ETag", f'"{len(data):x}-{int(changed * 1e6):x}"')
        self.end_headers()
        if with_body:
            self.wfile.write(data[start:stop])

    def _path(self) -> Path | None:
        folder = self.server.folder
        wanted = (folder / unquote(urlsplit(self.path).path).lstrip("/")).resolve()
        return wanted if wanted.is_file() and wanted.is_relative_to(folder) else None

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the screen belongs to the demo."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    folder: Path


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Offer the files in `folder`, which may be filled later, until the block ends; yields the base URL."""
    server = _Server((HOST, 0), _Request)
    server.folder = folder.resolve()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
