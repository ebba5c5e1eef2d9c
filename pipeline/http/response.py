"""The response to one request: its head, and its body piece by piece, as httptools parses that (RFC 9112).

Rule: a body ends where its head says, or the response is a fault. A connection is used again only after a
body that was read to the end that its length or its last chunk states. A head is read as browsers and curl
read it: what is odd about a line and moves no end of a body is no fault.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException, IncompleteRead, LineTooLong, RemoteDisconnected
from socket import socket

import urllib3.exceptions as faults
from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from pipeline.names import quote_name

HEAD_LIMIT = 1 << 16
"""Bytes of a head with the interim ones before it, and of what may arrive at most without a byte of the
body: sizes of chunks, trailers. nginx accepts heads of 32 KiB.

As much is read at once with a head: enough for a small file, which then takes one call.
"""

HEADER_LIMIT = 100
"""Headers of a response; as in http.client."""

LARGEST_BODY = (1 << 63) - 1
"""Bytes: the largest offset that Linux knows."""

_DIGITS = 30
"""Digits of a length that are read, leading zeros included: int() refuses numbers of thousands of digits."""

_SWITCHING = 101
_WITHOUT_BODY = frozenset({_SWITCHING, 204, 304})
_FRAMING = frozenset({"content-length", "transfer-encoding"})
_PROTOCOL = b"HTTP/1."
_STATUS_LINE = re.compile(r"HTTP/1\.(\d)[ \t]+([1-9]\d\d)(?:[ \t](.*))?", re.DOTALL | re.ASCII)
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")


IS_TLS = "this port speaks https: write https:// instead of http://"


class NotUnderstood(faults.HTTPError):
    """What a server sends does not follow HTTP, or TLS; it would not with a second request either.

    Its message is for people, after the URL.
    """


def _odd(what: str) -> NotUnderstood:
    return NotUnderstood(f"the source's answer cannot be understood: {what}; have the source corrected")


class Headers(Mapping[str, str]):
    """The headers of a response by their names in any case; those of one name are joined by commas."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._values: dict[str, str] = {}
        for name, value in pairs:
            key = name.lower()
            if key not in self._values:
                self._values[key] = value
            elif key != "location" or self._values[key] != value:  # some servers repeat it
                self._values[key] = f"{self._values[key]}, {value}"

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True)
class _Head:
    """The head of a response as it was read: what its lines say, and nothing about its body."""

    status: int
    reason: str
    minor: int
    """Of the version: 0 for HTTP/1.0."""
    headers: Headers

    @property
    def is_interim(self) -> bool:
        return 100 <= self.status < 200 and self.status != _SWITCHING

    @cached_property
    def is_chunked(self) -> bool:
        """Whether the body is in chunks; NotUnderstood if it is coded in another way for its transfer."""
        codings = [coding for coding in _members(self.headers, "transfer-encoding") if coding != "identity"]
        if codings in ([], ["chunked"]):
            return bool(codings)
        raise _odd(
            f"its body is coded for the transfer as {quote_name(', '.join(codings))} (Transfer-Encoding), "
            "although no coding was accepted"
        )

    @cached_property
    def length(self) -> int | None:
        """Bytes of the body, None if its end is stated in another way (RFC 9112, 6.3)."""
        stated = set(_members(self.headers, "content-length"))
        if self.is_chunked or "content-length" not in self.headers:
            return None
        if not all(number.isascii() and number.isdigit() and len(number) <= _DIGITS for number in stated):
            raise _odd(_no_length(self.headers))
        lengths = {int(number) for number in stated}
        if len(lengths) != 1 or max(lengths) > LARGEST_BODY:
            raise _odd(_no_length(self.headers))
        return lengths.pop()

    @property
    def stays(self) -> bool:
        """Whether the connection may have another request after the body."""
        wishes = _members(self.headers, "connection")
        if self.is_chunked and "content-length" in self.headers:
            return False  # a proxy on the way may have believed the length
        return "close" not in wishes and (self.minor > 0 or "keep-alive" in wishes)

    def settled(self) -> Headers:
        """The headers, with no other end of the body than the one that counts."""
        left = {name: value for name, value in self.headers.items() if name not in _FRAMING}
        if self.is_chunked:
            left["transfer-encoding"] = "chunked"
        elif self.length is not None:
            left["content-length"] = str(self.length)
        return Headers(left.items())


def _members(headers: Headers, name: str) -> list[str]:
    """The members of a list in a header, in lower case."""
    return [member for part in headers.get(name, "").split(",") if (member := part.strip().lower())]


def _no_length(headers: Headers) -> str:
    return f"it states {quote_name(headers['content-length'], 60)} as its length (Content-Length)"


class _Message:
    """The body of a response, as the parser passes it to the methods `on_...`."""

    def __init__(self, headers: Headers, stays: bool) -> None:
        self.pieces: list[bytes] = []
        """Not read yet."""
        self.is_complete = False
        self.stays = False
        """The connection may have another request."""
        self.fault: Exception | None = None
        """What follows cannot be understood."""
        self._stays = stays
        self._parser = HttpResponseParser(self)
        # how lines end; nothing that moves the end of a body
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._parser.feed_data(_canonical(headers))

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if isinstance(error, HttpParserCallbackError) and not self.is_complete:
                raise error.__context__ or error from None  # a signal, which is no fault of the source
            self.fault, self.stays = error, False

    def end(self) -> None:
        """Nothing more is fed. Until then message and parser refer to each other."""
        del self._parser

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise ValueError("bytes that nobody asked for")

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.is_complete, self.stays = True, self._stays


def _canonical(headers: Headers) -> bytes:
    """A head that states nothing but the end of the body: the parser judges no other line."""
    end = "".join(f"{name}: {headers[name]}\r\n" for name in _FRAMING if name in headers)
    return f"HTTP/1.1 200 OK\r\n{end}\r\n".encode()


class Body:
    """The body of a response, read once."""

    def __init__(self, connection: socket, message: _Message, *, until_closed: bool) -> None:
        """`until_closed`: it ends when the connection is closed, as its head states no other end."""
        self._connection = connection
        self._message = message
        self._until_closed = until_closed

    @property
    def is_complete(self) -> bool:
        """Whether all was read, and the connection may have another request."""
        return self._message.stays and not self._message.pieces

    def read1(self, most: int) -> bytes:
        message, without_body = self._message, 0
        while not message.pieces:
            if message.is_complete:
                return b""
            if message.fault is not None:
                raise _odd(f"its body is not in chunks ({message.fault})") from message.fault
            if without_body > HEAD_LIMIT:
                raise LineTooLong("line of a chunk")
            data = _received(self._connection, most)
            if not data and self._until_closed:
                return b""
            if not data:
                raise IncompleteRead(b"")
            message.feed(data)
            without_body += len(data)
        body = message.pieces[0] if len(message.pieces) == 1 else b"".join(message.pieces)
        message.pieces = [body[most:]] if len(body) > most else []
        return body[:most]


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
        return b"".join(iter(lambda: self.read1(HEAD_LIMIT), b""))

    def close(self) -> None:
        """End the use of the response: its connection stays open if the body was read to its end."""
        body, self._body = self._body, None
        release, self._release = self._release, _no_connection
        release(body is not None and body.is_complete)


def receive(connection: socket, method: str, url: str, release: Callable[[bool], None]) -> Response:
    """The response to a request that was sent; closed, it says to `release` whether the connection may have
    another request.

    NotUnderstood if the head does not follow HTTP.
    """
    head, begun = _receive_head(connection)
    headers = head.settled()
    if method == "HEAD" or head.status in _WITHOUT_BODY:
        # a server that sends a body all the same would have it read as the next response
        return Response(head.status, headers, url, head.reason, release=lambda _: release(False))
    message = _Message(headers, head.stays)
    message.feed(begun)
    body = Body(connection, message, until_closed=_FRAMING.isdisjoint(headers))

    def ended(complete: bool) -> None:
        message.end()
        release(complete)

    return Response(head.status, headers, url, head.reason, body, ended)


def _receive_head(connection: socket) -> tuple[_Head, bytes]:
    """The head of the last response, and as much of its body as arrives with the head."""
    data, left, searched = bytearray(), HEAD_LIMIT, 0
    while True:
        if not searched:
            del data[: len(data) - len(data.lstrip(b"\r\n"))]
        if not data.startswith(_PROTOCOL[: len(data)]):
            raise _no_http(data)
        if end := _END_OF_HEAD.search(data, searched):
            head = _head_of(bytes(data[: end.start()]))
            del data[: end.end()]
            if not head.is_interim:
                return head, bytes(data)
            searched = 0
            continue
        searched = max(0, len(data) - 3)
        if not left:
            raise LineTooLong("header line")
        more = _received(connection, left)
        if not more and left == HEAD_LIMIT:
            raise RemoteDisconnected("Remote end closed connection without response")
        if not more:
            raise IncompleteRead(b"")
        data += more
        left -= len(more)


def _head_of(data: bytes) -> _Head:
    """The head in `data`. Lines end in LF or CR LF; one that begins with a space continues another."""
    first, *lines = [line.removesuffix(b"\r").decode("latin-1") for line in data.split(b"\n")]
    status_line = _STATUS_LINE.fullmatch(first)
    if status_line is None:
        raise _no_http(data)
    if "\0" in first or any("\0" in line for line in lines):
        raise _odd("it has a header with a byte 0")
    minor, status, reason = status_line.groups("")
    pairs = _pairs(lines)
    if len(pairs) > HEADER_LIMIT:
        raise HTTPException(f"got more than {HEADER_LIMIT} headers")
    return _Head(int(status), reason.strip(), int(minor), Headers(pairs))


def _pairs(lines: Iterable[str]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith((" ", "\t")):
            if pairs:  # else nothing is continued: RFC 9112, 2.2 skips the line
                pairs[-1] = pairs[-1][0], f"{pairs[-1][1]} {_trimmed(line)}".strip(" ")
            continue
        name, colon, value = line.partition(":")
        name = name.rstrip(" \t")
        if not colon or not name or " " in name or "\t" in name:
            raise _odd(f"{quote_name(line, 60)} is no header")
        pairs.append((name, _trimmed(value)))
    return pairs


def _trimmed(value: str) -> str:
    return value.strip(" \t\r")


def _no_http(data: bytes | bytearray) -> NotUnderstood:
    """`data` is no status line: what was sent instead, and what to write then."""
    if data.startswith((b"\x15\x03", b"\x16\x03")):
        return NotUnderstood(IS_TLS)
    line = data.partition(b"\n")[0][:200].decode("latin-1").strip()
    return NotUnderstood(
        f"what answers there is no web server of HTTP/1: it says {quote_name(line, 60)}; check host and port"
    )


def _received(connection: socket, most: int) -> bytes:
    try:
        return connection.recv(most)
    except TimeoutError as error:
        raise faults.TimeoutError("timeout while waiting for bytes") from error
    except OSError as error:
        raise faults.ProtocolError("Connection broken", error) from error
