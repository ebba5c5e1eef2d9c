"""The response to one request: its head, and its body piece by piece, as httptools parses them (RFC 9112).

Rule: a body ends where its head says, or the response is a fault. A connection is used again only after a
body that was read to the end that its length or its last chunk states.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import BadStatusLine, HTTPException, IncompleteRead, LineTooLong, RemoteDisconnected
from socket import socket

import urllib3.exceptions as faults
from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

HEAD_LIMIT = 1 << 16
"""Bytes of a head with the interim ones before it, and of what may arrive at most without a byte of the
body: sizes of chunks, trailers. nginx accepts heads of 32 KiB.

As much is read at once with a head: enough for a small file, which then takes one call.
"""

HEADER_LIMIT = 100
"""Headers of a response; as in http.client."""

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


class _Message:
    """One response, whose parts the parser passes to the methods `on_...`."""

    def __init__(self) -> None:
        self.status = 0
        self.reason = b""
        self.version = ""
        self.pairs: list[tuple[str, str]] = []
        self.has_head = False
        self.pieces: list[bytes] = []
        """Of the body, not read yet."""
        self.is_complete = False
        self.stays = False
        """The connection may have another request."""
        self.fault: Exception | None = None
        """What follows cannot be understood."""
        self._parser = HttpResponseParser(self)
        # how lines end, and what a value has; nothing that moves the end of a body
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

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

    def on_status(self, reason: bytes) -> None:
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:  # a trailer says nothing that is used
            self.pairs.append((name.strip().decode("latin-1"), value.strip().decode("latin-1")))

    def on_headers_complete(self) -> None:
        self.status, self.version = self._parser.get_status_code(), self._parser.get_http_version()
        if 100 <= self.status < 200 and self.status != _SWITCHING:
            self.reason, self.pairs = b"", []  # an interim response, which another one follows
        else:
            self.has_head = True

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        if self.has_head:
            self.is_complete, self.stays = True, self._parser.should_keep_alive()


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
                raise IncompleteRead(b"") from message.fault
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
    """
    message = _Message()
    _receive_head(connection, message)
    headers, reason = Headers(message.pairs), message.reason.strip().decode("latin-1")
    if method == "HEAD" or message.status in _WITHOUT_BODY:
        # a server that sends a body all the same would have it read as the next response
        message.end()
        return Response(message.status, headers, url, reason, release=lambda _: release(False))
    stated = "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
    body = Body(connection, message, until_closed=not stated)

    def ended(complete: bool) -> None:
        message.end()
        release(complete)

    return Response(message.status, headers, url, reason, body, ended)


def _receive_head(connection: socket, message: _Message) -> None:
    """Feed the message until it has its head, and as much of its body as arrives with that."""
    first, left = b"", HEAD_LIMIT
    while not message.has_head:
        if not left:
            raise LineTooLong("header line")
        data = _received(connection, left)
        if not data and not first:
            raise RemoteDisconnected("Remote end closed connection without response")
        if not data:
            raise IncompleteRead(b"")
        first, left = first or data, left - len(data)
        message.feed(data)
        if message.fault is not None and not message.has_head:
            if message.reason or message.pairs:
                raise faults.InvalidHeader(str(message.fault))
            raise _bad_status_line(first)
    if message.status < 100 or not message.version.startswith("1."):
        raise _bad_status_line(first)
    if len(message.pairs) > HEADER_LIMIT:
        raise HTTPException(f"got more than {HEADER_LIMIT} headers")


def _bad_status_line(first: bytes) -> BadStatusLine:
    return BadStatusLine(first.lstrip().partition(b"\n")[0][:200].decode("latin-1").strip())


def _received(connection: socket, most: int) -> bytes:
    try:
        return connection.recv(most)
    except TimeoutError as error:
        raise faults.TimeoutError("timeout while waiting for bytes") from error
    except OSError as error:
        raise faults.ProtocolError("Connection broken", error) from error
