"""One request and its answer, carried by libcurl; checks twice a second whether it may continue.

Rule: libcurl alone decides where a body ends, whether it is complete and whether its connection is reused. A
head that others could parse differently is refused, or its connection closed.

No callback is Python code, in which an exception raised by a signal would be lost: libcurl appends lines and
pieces to lists during one short call of `perform`, and they are examined afterwards.
"""

import errno
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import pycurl

from pipeline import causes
from pipeline.causes import CauseCode
from pipeline.names import quote_name

CHECK_INTERVAL = 0.5
"""Maximum seconds between two checks."""

HEAD_LIMIT = 1 << 16
"""Maximum bytes of a head, its interim heads and the trailers. nginx accepts heads of 32 KiB."""

HEADER_LIMIT = 100
"""Maximum headers of an answer; as in http.client."""

IS_TLS = "this port speaks https: write https:// instead of http://"

_BUFFER = 1 << 15
"""Bytes that libcurl receives at once, about ten times per call of `perform`: with 256 KiB one call returned
2.7 MB, more than the processor's cache holds until they are used."""

_PIECES = 32
"""Pieces returned by one read, of at most 16 KiB (CURL_MAX_WRITE_SIZE)."""

_DIGITS = 18
"""Maximum digits of a length: libcurl counts in 63 bits, and nobody has a file of 10^18 bytes."""

_PAUSE = 0.02
"""Seconds to sleep if there is no descriptor to wait for."""

_SWITCHING = 101
_STATUS_LINE = re.compile(r"HTTP/1\.\d[ \t]+([1-9]\d\d)(?:[ \t](.*))?", re.DOTALL | re.ASCII)
_FRAMING = frozenset({"content-length", "transfer-encoding"})

_NO_TLS = ("wrong version number", "record layer failure", "packet length too long", "http request")
"""OpenSSL's reasons for a peer that answers a handshake with something other than TLS."""

_NO_COMMON_TLS = (
    "dh key too small",
    "no ciphers available",
    "handshake failure",
    "certificate required",
    "insufficient security",
    "protocol version",
    "unrecognized name",
    "unsafe legacy renegotiation disabled",
    "unsupported protocol",
    "wrong signature type",
)
"""OpenSSL's reasons that persist until somebody changes the server."""

_WORDS = {
    errno.ECONNREFUSED: "the connection was refused",
    errno.ECONNRESET: "the connection was reset",
    errno.EHOSTUNREACH: "the host cannot be reached",
    errno.ENETUNREACH: "the network cannot be reached",
}

_ODD_ANSWERS = {
    "Content-Length": "it states no number, or two, as its length",
    "Transfer-Encoding": "its body is coded for the transfer, although no coding was accepted",
    "chunk": "its body is not in chunks",
    "Header without colon": "a line is no header",
    "NUL byte": "it has a header with a byte 0",
    "HTTP": "it is no answer of HTTP/1",
}
"""Part of libcurl's message about an answer that it rejects -> our words."""

_TOO_LARGE = 100
"""CURLE_TOO_LARGE, for which pycurl has no name."""


class ConnectionFault(Exception):
    """No answer, or no whole one; a second request may have it. The message is for people, after the URL."""


class Unanswered(ConnectionFault):
    """The host was not reached, or sent nothing in time; a connection that broke is neither."""

    def __init__(self, message: str, *, waited: bool) -> None:
        super().__init__(message)
        self.waited = waited
        """A whole timeout passed."""


class Unreached(Unanswered):
    """There is no connection to the host at this address."""


class Dropped(ConnectionFault):
    """The peer closed the connection without an answer."""


class NotUnderstood(ConnectionFault):
    """What a server is, or sends: a second request would meet the same."""

    cause = causes.SOURCE_UNUSABLE

    def __init__(self, message: str, cause: CauseCode | None = None) -> None:
        super().__init__(message)
        self.cause = cause or self.cause


class NotTrusted(NotUnderstood):
    """The server has no certificate that is trusted, or offers no TLS that is still safe."""

    cause = causes.TLS_FAILED


class Headers(Mapping[str, str]):
    """The headers of a response by case-insensitive name; values of the same name are joined by commas."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._values: dict[str, str] = {}
        for name, value in pairs:
            key = name.lower()
            if key not in self._values:
                self._values[key] = value
            elif key not in _REPEATED or self._values[key] != value:
                self._values[key] = f"{self._values[key]}, {value}"

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


_REPEATED = ("content-length", "location")
"""Headers that some servers repeat with the same value."""


@dataclass(frozen=True)
class Head:
    status: int
    reason: str
    headers: Headers
    ends_after: int | None = None
    """Bytes of a body whose length libcurl ignores because the head declares the coding `identity`."""

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> Self:
        status_line = _STATUS_LINE.fullmatch(_text(lines[0])) if lines else None
        if status_line is None:
            raise _no_http(b"".join(lines))
        headers = Headers(_pair(_text(line)) for line in lines[1:])
        length = headers.get("content-length", "")
        if len(length.lstrip("0")) > _DIGITS and length.isdigit():  # libcurl would ignore it
            raise _odd(f"it states {quote_name(length, 60)} as its length")
        status, reason = status_line.groups("")
        if headers.get("transfer-encoding", "").lower() != "identity" or not length.isdigit():
            return cls(int(status), reason.strip(), headers)
        left = Headers((name, value) for name, value in headers.items() if name != "transfer-encoding")
        return cls(int(status), reason.strip(), left, int(length))

    @property
    def is_interim(self) -> bool:
        return 100 <= self.status < 200 and self.status != _SWITCHING


class Channel:
    """libcurl for one request at a time, with its open connections and its trusted authorities."""

    def __init__(self, authorities: str) -> None:
        self.server = ""
        """The last server: a connection to it may be open."""
        self._lines: list[bytes] = []
        """The lines of heads and trailers."""
        self._pieces: list[bytes] = []
        """The unread pieces of the body."""
        self._easy = pycurl.Curl()
        self._multi = pycurl.CurlMulti()
        for option, value in (
            (pycurl.HEADERFUNCTION, self._lines.append),
            (pycurl.WRITEFUNCTION, self._pieces.append),
            (pycurl.CAINFO, authorities),
            (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
            (pycurl.HTTP09_ALLOWED, 1),  # an answer that is not HTTP is read, to be quoted
            (pycurl.PROXY, ""),  # none, even if the environment names one
            (pycurl.BUFFERSIZE, _BUFFER),
            (pycurl.NOSIGNAL, 1),
        ):
            self._easy.setopt(option, value)

    def begin(
        self, server: str, address: str, check: Callable[[], None], timeouts: tuple[float, float]
    ) -> None:
        """Start a request to the server at this address only, whatever the server's name resolves to.

        An exception from `check` ends the request. `timeouts`: seconds for connecting, TLS included, and
        for a wait without a byte.
        """
        connect_timeout, self._read_timeout = timeouts
        self.server = server
        self._check = check
        self._lines.clear()
        self._pieces.clear()
        self._lines_read = self._bytes_read = self._first_of_head = 0
        self._head: Head | None = None
        self._ended = False
        self._fault: ConnectionFault | None = None
        self._left: int | None = None
        """Remaining bytes of the body, if this class counts them."""
        self._easy.setopt(pycurl.URL, f"{server}/")
        self._easy.setopt(pycurl.CONNECT_TO, [f"::[{address}]:" if ":" in address else f"::{address}:"])
        self._easy.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(connect_timeout * 1000)))
        self._multi.add_handle(self._easy)

    def send(self, target: str, headers: Iterable[tuple[str, str]], body: bytes | None) -> Head:
        """Send a GET, or a POST of `body`; returns the head of the answer."""
        lines = [f"{name}: {value}".encode("latin-1") for name, value in headers]
        joined = b"".join(lines)
        if b"\r" in joined or b"\n" in joined:
            raise ValueError("a request cannot have a line break in a header")
        self._easy.setopt(pycurl.REQUEST_TARGET, target)
        self._easy.setopt(pycurl.HTTPHEADER, lines)
        if body is None:
            self._easy.setopt(pycurl.HTTPGET, 1)
        else:
            self._easy.setopt(pycurl.POSTFIELDS, body)
        self._advance(lambda: self._head is not None or bool(self._pieces))
        if self._head is not None:
            self._left = self._head.ends_after
            self._ended = self._ended or self._left == 0
            return self._head
        if self._pieces:
            raise _no_http(b"".join(self._pieces))
        raise self._fault or ConnectionFault("the connection ended early")

    def connect(self) -> None:
        """Connect without verifying certificates; nothing is sent."""
        for option, value in (
            (pycurl.CONNECT_ONLY, 1),
            (pycurl.SSL_VERIFYPEER, 0),
            (pycurl.SSL_VERIFYHOST, 0),
        ):
            self._easy.setopt(option, value)
        self._advance(lambda: False)
        if self._fault is not None:
            raise self._fault

    def read(self) -> bytes:
        """Wait for bytes of the body and return them; empty at its end."""
        self._advance(lambda: bool(self._pieces))
        data = b"".join(self._pieces[:_PIECES])
        del self._pieces[:_PIECES]
        if not data and self._fault is not None:
            raise self._fault
        return data if self._left is None else self._counted(data)

    def _counted(self, data: bytes) -> bytes:
        """The part of `data` that belongs to the body, whose end this class detects itself."""
        assert self._left is not None
        if self._left and not data:
            raise ConnectionFault("the connection ended early")
        data = data[: self._left]
        self._left -= len(data)
        if not self._left:
            self._ended = True
            self._pieces.clear()
        return data

    def end(self) -> bool:
        """Leave the request; its connection is closed unless the answer has ended.

        False if the connections must not be used again: a proxy may have seen the body end elsewhere.
        """
        self._multi.remove_handle(self._easy)
        return self._head is None or not all(name in self._head.headers for name in _FRAMING)

    def close(self) -> None:
        self._multi.close()
        self._easy.close()

    def _advance(self, arrived: Callable[[], bool]) -> None:
        quiet_since = time.monotonic()
        while not (self._ended or arrived()):
            self._check()
            _, running = self._multi.perform()
            self._judge_lines()
            if not running:
                self._finish()
            elif arrived():
                return
            elif self._wait():
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since >= self._read_timeout and self._is_sent():
                raise Unanswered("timeout while waiting for bytes", waited=True)

    def _wait(self) -> bool:
        """Whether a socket is ready; waits CHECK_INTERVAL at most, or until libcurl has something to do."""
        due = self._multi.timeout()  # milliseconds; -1: nothing
        seconds = CHECK_INTERVAL if due < 0 else min(CHECK_INTERVAL, due / 1000)
        ready: int = self._multi.select(seconds)
        if ready < 0:  # no socket yet, or a descriptor too large for select
            time.sleep(min(seconds, _PAUSE))
        return ready > 0

    def _is_sent(self) -> bool:
        """Whether the request has been sent; until then libcurl enforces the timeout itself."""
        return bool(self._easy.getinfo(pycurl.PRETRANSFER_TIME))

    def _judge_lines(self) -> None:
        for index in range(self._lines_read, len(self._lines)):
            line = self._lines[index]
            self._bytes_read += len(line)
            if self._bytes_read > HEAD_LIMIT or index - self._first_of_head > HEADER_LIMIT + 1:
                raise _too_large(f"more than {HEAD_LIMIT} bytes or {HEADER_LIMIT} lines")
            if self._head is None and not line.strip(b"\r\n"):
                head = Head.of(self._lines[self._first_of_head : index])
                self._first_of_head = index + 1
                self._head = None if head.is_interim else head
        self._lines_read = len(self._lines)

    def _finish(self) -> None:
        self._ended = True
        _, _, failed = self._multi.info_read()
        for easy, code, text in failed:
            self._fault = _fault_of(code, text, easy.getinfo(pycurl.OS_ERRNO))


class Response:
    """The head of an answer, and its body as it arrives; must be closed."""

    def __init__(
        self,
        status: int,
        headers: Headers,
        url: str,
        reason: str = "",
        channel: Channel | None = None,
        release: Callable[[Channel], None] = lambda channel: None,
    ) -> None:
        self.status = status
        self.headers = headers
        self.url = url
        self.reason = reason
        self._channel = channel
        self._release = release

    def read1(self) -> bytes:
        """Wait for further bytes and return them; empty at the end of the body.

        ConnectionFault if the connection fails, or ends before the body does.
        """
        return self._channel.read() if self._channel is not None else b""

    def read(self) -> bytes:
        """The whole body."""
        return b"".join(iter(self.read1, b""))

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            self._release(channel)


def _text(line: bytes) -> str:
    return line.decode("latin-1").rstrip("\r\n")


def _pair(line: str) -> tuple[str, str]:
    written, _, value = line.partition(":")
    name = written.rstrip(" \t")
    if name != written and name.lower() in _FRAMING:  # libcurl would not recognize it
        raise _odd(f"{quote_name(line, 60)} has a space before its colon")
    return name, value.strip(" \t")


def _odd(what: str) -> NotUnderstood:
    return NotUnderstood(f"the source's answer cannot be understood: {what}; have the source corrected")


def _too_large(what: str) -> NotUnderstood:
    return NotUnderstood(f"the source sends headers that are too large ({what})")


def _no_http(data: bytes) -> NotUnderstood:
    """The fault of an answer without a status line: what was sent instead, and the remedy."""
    if data.startswith((b"\x15\x03", b"\x16\x03")):
        return NotUnderstood(IS_TLS, causes.TLS_FAILED)
    line = _text(data.partition(b"\n")[0][:200]).strip()
    return NotUnderstood(
        f"what answers there is no web server of HTTP/1: it says {quote_name(line, 60)}; check host and port"
    )


def _fault_of(code: int, text: str, number: int) -> ConnectionFault:
    """Translate libcurl's fault for depositors; OSError if this machine lacks resources for a connection.

    `text`: the message of libcurl or OpenSSL; `number`: the system's error number, or 0.
    """
    failed = _WORDS.get(number, f"the connection failed ({quote_name(text)})")
    odd = next((words for sign, words in _ODD_ANSWERS.items() if sign in text), "")
    if code == pycurl.E_COULDNT_CONNECT:
        if not number:  # libcurl got no socket: the system's error says why
            socket.socket().close()
        fault: ConnectionFault = Unreached(failed, waited=number == errno.ETIMEDOUT)
    elif code == pycurl.E_OPERATION_TIMEDOUT:
        fault = Unreached("timeout while connecting", waited=True)
    elif code in (pycurl.E_SSL_CONNECT_ERROR, pycurl.E_PEER_FAILED_VERIFICATION):
        fault = _tls_fault(code, text) or ConnectionFault(failed)
    elif code == pycurl.E_URL_MALFORMAT:
        fault = NotUnderstood(f"this is not a URL that can be fetched ({text})", causes.URL_INVALID)
    elif "Too large" in text or code == _TOO_LARGE:
        fault = _too_large(text or "a line is too long")
    elif odd:
        fault = _odd(f"{odd} ({text})")
    elif code == pycurl.E_GOT_NOTHING or number == errno.ECONNRESET:
        fault = Dropped(_WORDS.get(number, "the source closed the connection without an answer"))
    else:
        fault = ConnectionFault("the connection ended early" if code == pycurl.E_PARTIAL_FILE else failed)
    return fault


def _tls_fault(code: int, text: str) -> NotTrusted | None:
    """The fault of TLS if it is permanent; None if it is transient."""
    if code == pycurl.E_PEER_FAILED_VERIFICATION:
        problem = text.removeprefix("SSL certificate problem: ").removeprefix("SSL: ")
        return NotTrusted(f"the source's certificate is not valid: {problem}")
    said = text.lower()
    if any(reason in said for reason in _NO_TLS):
        return NotTrusted(
            "this port does not speak https: check it, or write http:// if the source offers that"
        )
    if reason := next((reason for reason in _NO_COMMON_TLS if reason in said), ""):
        return NotTrusted(
            f"the source offers no https that is still safe, or none for this host ({reason}): "
            "have the source corrected"
        )
    return None
