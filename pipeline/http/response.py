"""The response to one request (RFC 9112): its head, and its body piece by piece.

http.client parses a head by the parser of e-mail, which took half of the CPU of a small download.

Rule: a body ends where its head says, or the response is a fault. A connection is used again only after a
body that was read to the end that its length or its last chunk states.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import BadStatusLine, HTTPException, IncompleteRead, LineTooLong, RemoteDisconnected
from socket import socket

import urllib3.exceptions as faults

HEAD_LIMIT = 1 << 16
"""Bytes of a head, of the line of a chunk's size, and of a line of a trailer; nginx accepts 32 KiB."""

HEADER_LIMIT = 100
"""Headers of a response; as in http.client."""

RECEIVED_AT_ONCE = 1 << 16
"""Bytes that are read with a head at most: enough for a small file, which then takes one call."""

_SIZE_DIGITS = 30
"""Digits of a size that are read, leading zeros included."""

_END_OF_HEAD = re.compile(rb"\n\r?\n")
_STATUS_LINE = re.compile(r"HTTP/(\d+\.\d+)[ \t]+([1-9]\d\d)(?:[ \t]+(.*))?", re.ASCII)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)

_SWITCHING = 101
_WITHOUT_BODY = frozenset({_SWITCHING, 204, 304})


class Headers(Mapping[str, str]):
    """The headers of a response by their names in any case; those of one name are joined by commas."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._values: dict[str, str] = {}
        for name, value in pairs:
            key = name.lower()
            self._values[key] = f"{self._values[key]}, {value}" if key in self._values else value

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Received:
    """The bytes that arrive on a connection; faults of it as those of urllib3."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self._ahead = b""
        """Bytes that arrived with those that were asked for."""

    @property
    def is_empty(self) -> bool:
        return not self._ahead

    def some(self, most: int) -> bytes:
        """At most `most` bytes, as soon as there are any; b"" at the end."""
        if not self._ahead:
            return self._receive(most)
        some, self._ahead = self._ahead[:most], self._ahead[most:]
        return some

    def head(self) -> str:
        """The lines until the empty line that ends a head."""
        data, looked_at = self._ahead, 0
        while (end := _END_OF_HEAD.search(data, max(0, looked_at - 2))) is None:
            looked_at = len(data)
            if looked_at > HEAD_LIMIT:
                raise LineTooLong("header line")
            more = self._receive(RECEIVED_AT_ONCE)
            if not more:
                if not data:
                    raise RemoteDisconnected("Remote end closed connection without response")
                raise IncompleteRead(b"")
            data += more
        if end.end() > HEAD_LIMIT:
            raise LineTooLong("header line")
        self._ahead = data[end.end() :]
        return data[: end.start()].decode("latin-1")

    def line(self) -> bytes:
        """The next line, without its end."""
        data, looked_at = self._ahead, 0
        while (end := data.find(b"\n", looked_at)) < 0:
            looked_at = len(data)
            if looked_at > HEAD_LIMIT:
                raise LineTooLong("line of a chunk")
            more = self._receive(RECEIVED_AT_ONCE)
            if not more:
                raise IncompleteRead(b"")
            data += more
        self._ahead = data[end + 1 :]
        return data[:end].removesuffix(b"\r")

    def _receive(self, most: int) -> bytes:
        try:
            return self._connection.recv(most)
        except TimeoutError as error:
            raise faults.TimeoutError("timeout while waiting for bytes") from error
        except OSError as error:
            raise faults.ProtocolError("Connection broken", error) from error


class Body:
    """The body of a response, read once."""

    def __init__(self, received: Received, left: int | None, *, chunked: bool = False) -> None:
        """`left`: bytes of the body; None: as many as arrive until the connection is closed."""
        self._received = received
        self._left = 0 if chunked else left
        """Bytes of the body, or of the current chunk, that are not read yet."""
        self._chunked = chunked
        """More chunks may follow."""
        self._begun = False

    @property
    def is_complete(self) -> bool:
        """Whether all was read, and nothing else arrived."""
        return self._left == 0 and not self._chunked and self._received.is_empty

    def read1(self, most: int) -> bytes:
        if self._left == 0 and not (self._chunked and self._begin_chunk()):
            return b""
        if self._left is None:
            return self._received.some(most)
        some = self._received.some(min(most, self._left))
        if not some:
            raise IncompleteRead(b"", self._left)
        self._left -= len(some)
        return some

    def _begin_chunk(self) -> bool:
        """Read the size of the next chunk; False after the last one and the trailer."""
        if self._begun and self._received.line():
            raise IncompleteRead(b"")
        self._begun = True
        size = _CHUNK_SIZE.fullmatch(self._received.line())
        if size is None:
            raise IncompleteRead(b"")
        self._left = int(size[1], 16)
        if self._left == 0:
            while self._received.line():
                pass  # a trailer says nothing that is used
            self._chunked = False
        return self._left > 0


def _no_connection(usable: bool) -> None:
    """There is no connection."""


class Response:
    """A response whose body is not read yet; `close` it."""

    def __init__(
        self,
        status: int,
        headers: Headers,
        url: str,
        reason: str = "",
        body: Body | None = None,
        release: Callable[[bool], None] = _no_connection,
    ) -> None:
        """`release` is called once, with whether the connection may have another request."""
        self.status = status
        self.headers = headers
        self.url = url
        self.reason = reason
        self._body = body
        self._release = release

    def read1(self, most: int) -> bytes:
        """At most `most` bytes of the body as soon as there are any; b"" at its end.

        urllib3's HTTPError or HTTPException if the connection fails, or ends before the body does.
        """
        return self._body.read1(most) if self._body is not None else b""

    def read(self) -> bytes:
        """The whole body."""
        return b"".join(iter(lambda: self.read1(RECEIVED_AT_ONCE), b""))

    def close(self) -> None:
        """End the use of the response: its connection stays open if the body was read to its end."""
        body, self._body = self._body, None
        release, self._release = self._release, _no_connection
        release(body is not None and body.is_complete)


def receive(connection: socket, method: str, url: str, release: Callable[[bool], None]) -> Response:
    """The response to a request that was sent; closed, it says to `release` whether the connection may have
    another request.
    """
    received = Received(connection)
    while True:
        version, status, reason, lines = _status_line(received.head())
        if status >= 200 or status == _SWITCHING:
            break  # else an interim response, which another one follows
    headers = Headers(_pairs(lines))
    if method == "HEAD" or status in _WITHOUT_BODY:
        # a server that sends a body all the same would have it read as the next response
        return Response(status, headers, url, reason, release=lambda _: release(False))
    body = _body(received, headers)
    asked = headers.get("connection", "").lower()
    stays = "close" not in asked if version != "1.0" else "keep-alive" in asked
    return Response(status, headers, url, reason, body, lambda complete: release(complete and stays))


def _body(received: Received, headers: Headers) -> Body:
    """Where the body ends (RFC 9112, 6.3)."""
    coding = headers.get("transfer-encoding", "").strip().lower()
    if coding == "chunked":
        return Body(received, None, chunked=True)
    return Body(received, None if coding else _stated_length(headers))


def _status_line(head: str) -> tuple[str, int, str, list[str]]:
    """Version, status, reason, and the lines of the headers."""
    first, *lines = head.split("\n")
    match = _STATUS_LINE.fullmatch(first.rstrip("\r"))
    if match is None or not match[1].startswith("1."):
        raise BadStatusLine(first[:200])
    return match[1], int(match[2]), (match[3] or "").strip(), lines


def _pairs(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Names and values; a line that is no header is left out."""
    if len(lines) > HEADER_LIMIT:
        raise HTTPException(f"got more than {HEADER_LIMIT} headers")
    name = value = ""
    for line in lines:
        if line[:1] in (" ", "\t"):  # the value continues (obs-fold)
            value = f"{value} {line.strip()}"
            continue
        if name:
            yield name, value
        name, colon, value = line.partition(":")
        value = value.strip(" \t\r")
        name = name if colon and _NAME.fullmatch(name) else ""
    if name:
        yield name, value


def _stated_length(headers: Headers) -> int | None:
    """Bytes that Content-Length states; None if it states none that can be read."""
    stated = {length.strip() for length in headers.get("content-length", "").split(",")}
    if len(stated) > 1:
        raise faults.InvalidHeader("Content-Length contained multiple unmatching values")
    (length,) = stated
    readable = length.isascii() and length.isdigit() and len(length) <= _SIZE_DIGITS
    return int(length) if readable else None
