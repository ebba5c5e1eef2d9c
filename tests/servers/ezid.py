"""A server on loopback that speaks EZID's protocol, with faults: each is used by one request, in order."""

import base64
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

USER, PASSWORD = "arkline", "s3cret:ü"
LOGIN = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

Elements = dict[str, str]


@dataclass(frozen=True)
class Fault:
    """What happens to one request."""

    status: int = 200
    body: bytes | None = None
    """Answered instead of EZID's own words; nothing is done."""
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False
    """EZID does what it was asked, and the connection ends without an answer."""
    hold: bool = False
    """No answer before the server ends."""


@dataclass
class Ezid:
    port: int = 0
    identifiers: dict[str, Elements] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(method, identifier) of every request."""
    faults: list[Fault] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, identifier: str, given: Elements) -> tuple[int, str]:
        """What EZID does and says, faults apart."""
        known = self.identifiers.get(identifier)
        if method == "PUT":
            if known is not None:
                return 400, "error: bad request - identifier already exists, cannot create"
            self.identifiers[identifier] = {"_status": "public", **given}
            return 201, f"success: {identifier}"
        if known is None:
            return 400, "error: bad request - no such identifier"
        if method == "POST":
            if given.get("_status") == "reserved" and known["_status"] != "reserved":
                return 400, "error: bad request - invalid identifier status change"
            known.update(given)
            return 200, f"success: {identifier}"
        lines = [f"{name}: {_escaped(value)}" for name, value in known.items()]
        return 200, "\n".join([f"success: {identifier}", *lines])


def _escaped(value: str) -> str:
    return value.replace("%", "%25").replace("\n", "%0A").replace("\r", "%0D")


def _elements(body: bytes) -> Elements:
    """The body's lines, as strictly as EZID reads them."""
    found = {}
    for line in body.decode().splitlines():
        name, colon, value = line.partition(":")
        assert colon, line
        found[_plain(name)] = _plain(value.strip())
    return found


def _plain(text: str) -> str:
    assert not re.search("%(?![0-9A-Fa-f]{2})", text), text
    return unquote(text, errors="strict")


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what some tests are about."""


class _Answer(BaseHTTPRequestHandler):
    service: Ezid

    def log_message(self, *_: object) -> None:
        """Say nothing: the test's own output matters."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        identifier = unquote(urlsplit(self.path).path).removeprefix("/id/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.service.turn:
            self.service.asked.append((method, identifier))
            fault = self.service.faults.pop(0) if self.service.faults else Fault()
        if fault.hold:
            self.service.ended.wait(30)
        if fault.body is not None:
            self._say(fault.status, fault.body, fault.headers)
        elif self.headers["Authorization"] != LOGIN:
            self._say(401, b"error: unauthorized")
        else:
            with self.service.turn:
                status, words = self.service.answer(method, identifier, _elements(body))
            if not fault.cut:
                self._say(status, words.encode())

    def _say(self, status: int, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def ezid(kept: Ezid | None = None) -> Iterator[Ezid]:
    """The service; `kept` is one that ended, which comes back at its address with all that it held."""
    running = kept or Ezid()
    running.ended.clear()

    class Answer(_Answer):
        service = running

    server = _Quiet(("127.0.0.1", running.port), Answer)
    running.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield running
    finally:
        running.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
