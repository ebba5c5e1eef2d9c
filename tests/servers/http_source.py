"""A content source on loopback that misbehaves on demand: real HTTP over a real socket.

with HttpSource() as source:
    url = source.put("/a.bin", b"...", cut_after=1000, cuts=1)
    ...
    assert source.count("/a.bin") == 2
    assert source.seen("/a.bin")[1].headers["Range"] == "bytes=1000-"
"""

import hashlib
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from tests.servers.base import HOST, Handler, serving

PIECE = 1 << 16
LONG_AGO = formatdate(1_000_000_000, usegmt=True)


@dataclass(frozen=True)
class Page:
    """The content at a path, and how it is served."""

    body: bytes | Path = b""
    status: int = 200
    """This status is sent instead of the body, `status_times` times (None: always)."""
    status_times: int | None = None
    reason: str | None = None
    """The reason phrase; None: that of the status."""
    retry_after: str | None = None
    redirect: str | None = None
    delay: float | threading.Event = 0
    """Seconds before the answer, or the event that it waits for."""
    head: bool = True
    """False: HEAD is answered with 405."""
    framing: str = "length"
    """length | chunked | close: how the end of the body is marked."""
    ranges: bool = True
    """False: Range is ignored."""
    range_limit: int | None = None
    """Maximum bytes in one 206 response."""
    stated_length: int | None = None
    """A Content-Length other than the body's."""
    cut_after: int | None = None
    """The connection ends after this many bytes of a body, `cuts` times (None: always)."""
    cuts: int | None = None
    etag: str | None = "auto"
    """auto: derived from the body; None: not sent."""
    last_modified: str | None = LONG_AGO
    headers: tuple[tuple[str, str], ...] = ()
    hold: threading.Event | None = None
    """The body waits for it after its first `hold_after` bytes; one that is a single byte is sent at once."""
    hold_after: int = 0
    pause: float = 0
    """Seconds between two pieces of `piece` bytes."""
    piece: int = PIECE

    def size(self) -> int:
        return self.body.stat().st_size if isinstance(self.body, Path) else len(self.body)

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        if isinstance(self.body, bytes):
            for at in range(start, end, self.piece):
                yield self.body[at : min(at + self.piece, end)]
            return
        with self.body.open("rb") as stream:
            stream.seek(start)
            while start < end and (data := stream.read(min(self.piece, end - start))):
                start += len(data)
                yield data

    def tag(self) -> str | None:
        if self.etag != "auto":
            return self.etag
        if isinstance(self.body, Path):
            return f'"{self.body.stat().st_mtime_ns}"'
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


@dataclass(frozen=True)
class Seen:
    """One request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    peer: tuple[str, int]


@dataclass
class _Site:
    pages: dict[str, Page] = field(default_factory=dict)
    requests: list[Seen] = field(default_factory=list)
    served: dict[tuple[str, str], int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    folder: Path | None = None
    arrived: threading.Condition = field(default_factory=threading.Condition)
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when the server stops: requests that are held end."""

    def hold(self, until: threading.Event) -> None:
        while not until.wait(0.2) and not self.ended.is_set():
            pass

    def page(self, path: str) -> Page | None:
        if path in self.pages:
            return self.pages[path]
        if self.folder is not None:
            file = self.folder / unquote(path).lstrip("/")
            return Page(file) if file.is_file() else None
        return None

    def first(self, path: str, fault: str, times: int | None) -> bool:
        """True if `fault` is still due at `path`; counts it."""
        with self.lock:
            used = self.served.get((path, fault), 0)
            self.served[path, fault] = used + 1
        return times is None or used < times


class HttpSource:
    """Serves the pages set by a test, and the files of `folder` if there is one."""

    def __init__(self, folder: Path | None = None, host: str = HOST) -> None:
        self._site = _Site(folder=folder)

        class BoundHandler(_Handler):
            site = self._site

        self.host = host
        self._running = serving(BoundHandler, host=host)

    def __enter__(self) -> Self:
        self.port = self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._site.ended.set()
        self._running.__exit__(None, None, None)

    @property
    def place(self) -> str:
        """Host and port, as the fleet's limits name them."""
        return f"{self.host}:{self.port}"

    def url(self, path: str) -> str:
        return f"http://{self.host}:{self.port}{path}"

    def put(self, path: str, body: bytes | Path = b"", **how: Any) -> str:
        """Serve `body` at `path`, and reset the faults counted there; returns the URL."""
        with self._site.lock:
            for key in [key for key in self._site.served if key[0] == path]:
                del self._site.served[key]
            self._site.pages[path] = Page(body, **how)
        return self.url(path)

    def change(self, path: str, **how: Any) -> None:
        """Change how the page at `path` is served."""
        self._site.pages[path] = replace(self._site.pages[path], **how)

    def seen(self, path: str | None = None, method: str | None = None) -> list[Seen]:
        with self._site.lock:
            requests = [each for each in self._site.requests if path in (None, each.path)]
        return [each for each in requests if method in (None, each.method)]

    @property
    def peers(self) -> set[tuple[str, int]]:
        """The connections from which requests came."""
        with self._site.lock:
            return {each.peer for each in self._site.requests}

    def count(self, *which: str) -> int:
        return len(self.seen(*which))

    def await_request(self, path: str, times: int = 1, timeout: float = 30) -> None:
        """Return when `path` has been requested `times` times."""
        with self._site.arrived:
            if not self._site.arrived.wait_for(lambda: self.count(path) >= times, timeout):
                raise TimeoutError(f"{path} was asked for {self.count(path)} times, not {times}")


class _Handler(Handler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = PIECE
    site: _Site

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = urlsplit(self.path).path
        with self.site.lock:
            self.site.requests.append(
                Seen(self.command, path, dict(self.headers.items()), self.client_address)
            )
            page = self.site.page(path)  # a request that a test has seen is answered as it was then
        with self.site.arrived:
            self.site.arrived.notify_all()
        delay = page.delay if page is not None else 0
        if isinstance(delay, threading.Event):
            self.site.hold(delay)
        else:
            time.sleep(delay)
        self._serve(path, page, body=body)

    def _serve(self, path: str, page: Page | None, *, body: bool) -> None:
        if page is None:
            self._plain(404, body=body)
        elif not body and not page.head:
            self._plain(405, body=body)
        elif page.redirect is not None:
            self._plain(302, (("Location", page.redirect), *page.headers), body=body)
        elif page.status >= 300 and self.site.first(path, f"status {self.command}", page.status_times):
            wait = (("Retry-After", page.retry_after),) if page.retry_after else ()
            self._plain(page.status, wait, body=body, reason=page.reason)
        else:
            self._content(path, page, body=body)

    def _plain(
        self,
        status: int,
        headers: tuple[tuple[str, str], ...] = (),
        *,
        body: bool,
        reason: str | None = None,
    ) -> None:
        text = f"{status} {reason or HTTPStatus(status).phrase}\n".encode()
        self.send_response(status, reason)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if body:
            self.wfile.write(text)

    def _content(self, path: str, page: Page, *, body: bool) -> None:
        total = page.size()
        start, end, status = self._range(page, total)
        if status == 416:
            self._plain(416, (("Content-Range", f"bytes */{total}"),), body=body)
            return
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{total}")
        for name, value in (("ETag", page.tag()), ("Last-Modified", page.last_modified), *page.headers):
            if value is not None:
                self.send_header(name, value)
        if page.framing == "length":
            stated = page.stated_length if page.stated_length is not None else end - start
            self.send_header("Content-Length", str(stated))
        elif page.framing == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        if page.framing == "close" or page.stated_length is not None:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if body:
            self._send(path, page, start, end)

    def _range(self, page: Page, total: int) -> tuple[int, int, int]:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range")
        if not asked or not page.ranges or condition not in (None, page.tag(), page.last_modified):
            return 0, total, 200
        start = int(asked[1])
        if start >= total:
            return 0, 0, 416
        end = int(asked[2]) + 1 if asked[2] else total
        return start, min(end, total, start + (page.range_limit or total)), 206

    def _send(self, path: str, page: Page, start: int, end: int) -> None:
        cut = page.cut_after is not None and self.site.first(path, "cut", page.cuts)
        left = page.cut_after if cut and page.cut_after is not None else end - start
        held = page.hold if end - start > 1 else None
        sent = 0
        for data in page.pieces(start, end):
            if held is not None and sent + len(data) > page.hold_after:
                first, data = data[: page.hold_after - sent], data[page.hold_after - sent :]
                self._write(page, first)
                sent += len(first)
                self.wfile.flush()
                self.site.hold(held)
                held = None
            piece = data[: left - sent]
            self._write(page, piece)
            sent += len(piece)
            if cut and sent >= left:
                self.close_connection = True
                return
            if page.pause:
                time.sleep(page.pause)
        if page.framing == "chunked":
            self.wfile.write(b"0\r\n\r\n")

    def _write(self, page: Page, data: bytes) -> None:
        if not data:
            return
        if page.framing == "chunked":
            data = b"%x\r\n%s\r\n" % (len(data), data)
        self.wfile.write(data)
        self.wfile.flush()
