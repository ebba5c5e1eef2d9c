"""A server on loopback that speaks EZID's protocol, with faults: the next request uses the first fault."""

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from tests.servers.base import Handler, Service, running

USER, PASSWORD = "arkline", "s3cret:ü"
LOGIN = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

Elements = dict[str, str]


@dataclass(frozen=True)
class Fault:
    """The fault of one request."""

    status: int = 200
    body: bytes | None = None
    """Sent instead of EZID's response; nothing is done."""
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False
    """EZID does the work, and the connection ends without a response."""
    hold: bool = False
    """No response before the server stops."""


@dataclass
class Ezid(Service):
    identifiers: dict[str, Elements] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(method, identifier) of every request."""
    faults: list[Fault] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, identifier: str, given: Elements) -> tuple[int, str]:
        """The response of EZID without faults: HTTP status and body."""
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


class _Answer(Handler):
    service: Ezid

    def do_GET(self) -> None:
        self._serve("GET")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        identifier = unquote(urlsplit(self.path).path).removeprefix("/id/")
        body = self.request_body()
        with self.service.turn:
            self.service.asked.append((method, identifier))
            fault = self.service.faults.pop(0) if self.service.faults else Fault()
        if fault.hold:
            self.service.ended.wait(30)
        if fault.body is not None:
            self.respond(fault.status, fault.body, fault.headers)
        elif self.headers["Authorization"] != LOGIN:
            self.respond(401, b"error: unauthorized")
        else:
            with self.service.turn:
                status, words = self.service.answer(method, identifier, _elements(body))
            if not fault.cut:
                self.respond(status, words.encode())


@contextmanager
def ezid(previous: Ezid | None = None) -> Iterator[Ezid]:
    """The running service; `previous` was stopped, and restarts at the same address with its data."""
    with running(previous or Ezid(), _Answer) as service:
        yield service
