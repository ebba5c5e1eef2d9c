"""Where a response ends, and when its connection may have another request."""

import socket
import threading
from contextlib import suppress
from http.client import HTTPException, IncompleteRead, LineTooLong, RemoteDisconnected

import pytest

from pipeline.http.response import HEAD_LIMIT, HEADER_LIMIT, Headers, NotUnderstood, Response, receive

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH_5 = OK + b"Content-Length: 5\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def _send(peer: socket.socket, sent: bytes) -> None:
    with peer, suppress(OSError):
        peer.sendall(sent)


def _send_singly(peer: socket.socket, sent: bytes) -> None:
    for byte in sent:
        peer.sendall(bytes([byte]))


class Answered:
    """The response to a request that a peer answered with `sent`, and then closed the connection."""

    def __init__(self, sent: bytes, method: str = "GET") -> None:
        self.kept: list[bool] = []
        self._own, peer = socket.socketpair()
        self._own.settimeout(5)
        try:
            threading.Thread(target=_send, args=(peer, sent), daemon=True).start()
            self.response: Response = receive(self._own, method, "http://example.org/a", self.kept.append)
        except BaseException:
            self._own.close()
            raise

    def body(self) -> bytes:
        try:
            body = self.response.read()
            self.response.close()
            return body
        finally:
            self._own.close()

    def leave(self) -> None:
        self.response.close()
        self._own.close()


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (LENGTH_5 + b"hello", b"hello"),
        (b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", b"hello"),
        (b"\r\n" + LENGTH_5 + b"hello", b"hello"),
        (OK + b"Content-Length:  5 \t\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length : 5\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length: 5, 05\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length:\r\n 5\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length: 5\r\nTransfer-Encoding: identity\r\n\r\nhello", b"hello"),
        (OK + b" continues: nothing\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length: 5\r\nConnection: upgrade\r\nUpgrade: h2,h2c\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 200 Tr\xe8s bien: \x01\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1  200\tOK\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 299 Own Status\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (CHUNKED.replace(b"\r", b"") + b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n", b"hello"),
        (CHUNKED + b"2;a=b\r\nhe\r\n00003\r\nllo\r\n0\r\nX-Trailer: x\r\n\r\n", b"hello"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH_5 + b"hello", b"hello"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + LENGTH_5 + b"hello", b"hello"),
    ],
)
def test_a_body_that_is_read_to_its_stated_end_leaves_the_connection_open(sent: bytes, body: bytes) -> None:
    answered = Answered(sent)

    assert answered.body() == body
    assert answered.kept == [True]


@pytest.mark.parametrize(
    "sent",
    [
        OK + b"\r\nhello",
        OK + b"Connection: keep-alive\r\n\r\nhello",
        OK + b"Transfer-Encoding: identity\r\n\r\nhello",
        OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: Chunked\r\nContent-Length: five\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        OK + b"Content-Length: 5\r\nConnection: Close\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        LENGTH_5 + b"hello, and more",
        LENGTH_5 + b"hello" + LENGTH_5 + b"other",
        CHUNKED + b"5\r\nhello\r\n0\r\n\r\nmore",
    ],
)
def test_a_connection_is_closed_where_the_end_is_not_stated_or_more_follows(sent: bytes) -> None:
    answered = Answered(sent)

    assert answered.body() == b"hello"
    assert answered.kept == [False]


@pytest.mark.parametrize(
    "sent",
    [
        LENGTH_5 + b"hell",
        CHUNKED + b"5\r\nhell",
        CHUNKED + b"f" * 16 + b"\r\nhello",
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\n",
    ],
)
def test_a_body_that_ends_early_is_a_fault(sent: bytes) -> None:
    answered = Answered(sent)

    with pytest.raises(IncompleteRead):
        answered.body()
    answered.leave()
    assert answered.kept == [False]


@pytest.mark.parametrize(
    "sent",
    [
        CHUNKED + b"5\r\nhellooo\r\n0\r\n\r\n",
        CHUNKED + b"-1\r\nhello",
        CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"f" * 17 + b"\r\nhello",
        CHUNKED + b"5\r\nhello0\r\n\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\nno trailer\r\n\r\n",
    ],
)
def test_a_body_that_is_not_in_chunks_is_not_understood(sent: bytes) -> None:
    answered = Answered(sent)

    with pytest.raises(NotUnderstood, match="not in chunks"):
        answered.body()
    answered.leave()
    assert answered.kept == [False]


@pytest.mark.parametrize("follows", [b"0\r\n" + b"X-A: a\r\n" * HEAD_LIMIT, b"5;" + b"a" * (HEAD_LIMIT << 2)])
def test_lines_between_the_bytes_of_a_body_have_an_end(follows: bytes) -> None:
    answered = Answered(CHUNKED + b"5\r\nhello\r\n" + follows)

    with pytest.raises(LineTooLong):
        answered.body()


@pytest.mark.parametrize(
    "sent", [LENGTH_5 + b"hello", CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\nX-A: a\r\n\r\n"]
)
def test_a_response_may_arrive_byte_by_byte(sent: bytes) -> None:
    own, peer = socket.socketpair()
    with own, peer:
        own.settimeout(5)
        sender = threading.Thread(target=_send_singly, args=(peer, sent))
        sender.start()
        response = receive(own, "GET", "http://example.org/a", lambda usable: None)
        pieces = list(iter(lambda: response.read1(1), b""))
        sender.join()

    assert pieces == [b"h", b"e", b"l", b"l", b"o"]
    assert response.headers.keys() <= {"content-length", "transfer-encoding"}


def test_a_response_that_is_left_unread_closes_its_connection() -> None:
    answered = Answered(LENGTH_5 + b"hello")
    answered.response.read1(2)

    answered.leave()
    answered.leave()
    assert answered.kept == [False]


@pytest.mark.parametrize(
    ("sent", "method"),
    [
        (LENGTH_5, "HEAD"),
        (CHUNKED, "HEAD"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "GET"),
        (b"HTTP/1.1 204 No Content\r\n\r\nhello", "GET"),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "GET"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\nhello", "GET"),
        (b"HTTP/1.1 101 x\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello", "GET"),
    ],
)
def test_some_responses_have_no_body_whatever_their_headers_say_and_end_their_connection(
    sent: bytes, method: str
) -> None:
    answered = Answered(sent, method)

    assert answered.body() == b""
    assert answered.kept == [False]


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"", RemoteDisconnected),
        (b"HTTP/1.1 200 OK\r\nContent-Le", IncompleteRead),
        (b"hello\r\n\r\n", NotUnderstood),
        (b"HTTP/1.1 1000 x\r\n\r\n", NotUnderstood),
        (b"HTTP/1.1 000 x\r\n\r\n", NotUnderstood),
        (b"HTTP/2 200 OK\r\n\r\n", NotUnderstood),
        (b"HTTP/2.0 200 OK\r\n\r\n", NotUnderstood),
        (b"HTTP/0.9 200 OK\r\n\r\n", NotUnderstood),
        (OK + b"X-A: " + b"a" * HEAD_LIMIT + b"\r\n\r\n", LineTooLong),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * HEAD_LIMIT, LineTooLong),
        (OK + b"X-A: a\r\n" * (HEADER_LIMIT + 1) + b"\r\n", HTTPException),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length: five\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length: " + b"9" * 40 + b"\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length: -1\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length:\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length: 5, 6\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length: 9223372036854775808\r\n\r\nhello", NotUnderstood),
        (OK + b"Transfer-Encoding: gzip\r\n\r\nhello", NotUnderstood),
        (OK + b"Transfer-Encoding: chunked, gzip\r\n\r\nhello", NotUnderstood),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\nhello", NotUnderstood),
        (
            OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\nhello",
            NotUnderstood,
        ),
        (OK + b"X-A: a\0\r\n\r\n", NotUnderstood),
        (OK + b": a\r\n\r\n", NotUnderstood),
        (b"220 ftp.example.org ready\r\n", NotUnderstood),
        (b"\x15\x03\x03\x00\x02\x02\x46", NotUnderstood),
        (b"<!DOCTYPE HTML>", NotUnderstood),
        (OK + b"Transfer-Encoding: gzip\r\nContent-Length: 3\r\n\r\nhello", NotUnderstood),
        (OK + b"no header\r\n\r\n", NotUnderstood),
        (OK + b"X B: 3\r\n\r\n", NotUnderstood),
    ],
)
def test_a_head_that_cannot_be_understood_is_a_fault(sent: bytes, fault: type[Exception]) -> None:
    with pytest.raises(fault):
        Answered(sent)


def test_headers_have_names_in_any_case_and_may_continue_or_be_repeated() -> None:
    answered = Answered(
        OK + b'ETag: "a"\r\nX-Long: one\r\n two\r\nX-A: 1\r\nx-a: 2\r\nX-Odd: a\x01 \t\r\nX-Empty:\r\n\r\n'
    )
    headers = answered.response.headers
    answered.leave()

    assert headers == {"etag": '"a"', "x-long": "one two", "x-a": "1, 2", "x-odd": "a\x01", "x-empty": ""}
    assert headers["Etag"] == headers.get("ETAG") == '"a"'
    assert "eTag" in headers
    assert headers.get("X-B", "none") == "none"


def test_a_location_that_is_repeated_is_one() -> None:
    assert Headers([("Location", "/x"), ("location", "/x")])["Location"] == "/x"


def test_headers_are_read_as_latin_1() -> None:
    assert Headers([("A", "\u00e9")])["a"] == "\u00e9"
    answered = Answered(OK + b"X-A: \xe9\xa0 \r\n\r\n")
    assert answered.response.headers["X-A"] == "\u00e9\u00a0"
    answered.leave()
