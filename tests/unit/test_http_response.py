"""Where a response ends, and when its connection may have another request."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from pipeline.http.session import ContentSession
from pipeline.http.transfer import HEAD_LIMIT, HEADER_LIMIT, ConnectionFault, Dropped, Headers, NotUnderstood
from pipeline.settings import Settings

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH_5 = OK + b"Content-Length: 5\r\n\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Peer(threading.Thread):
    """Answers every request with `sent`, or the first on each connection alone, and then closes it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.sent = b""
        self.singly = False
        """Byte by byte."""
        self.closes = True
        self.requests: list[int] = []
        """Of each connection."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/a"

    def run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.requests.append(0)
                threading.Thread(target=self._serve, args=(connection, len(self.requests) - 1)).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection, suppress(OSError):
            while connection.recv(HEAD_LIMIT):
                self.requests[number] += 1
                for piece in (bytes([byte]) for byte in self.sent) if self.singly else (self.sent,):
                    connection.sendall(piece)
                if self.closes:
                    return

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join()


@pytest.fixture
def peer() -> Iterator[Peer]:
    running = Peer()
    running.start()
    yield running
    running.stop()


@pytest.fixture
def session() -> Iterator[ContentSession]:
    with ContentSession(Settings(allow_networks="127.0.0.0/8").allow_networks, read_timeout=5) as opened:
        yield opened


def fetch(session: ContentSession, url: str) -> bytes:
    with closing(session.request(url)) as response:
        return response.read()


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (LENGTH_5 + b"hello", b"hello"),
        (b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", b"hello"),
        (OK + b"Content-Length:  5 \t\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length: 5, 05\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length:\r\n 5\r\n\r\nhello", b"hello"),
        (OK + b" continues: nothing\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length: 5\r\nConnection: upgrade\r\nUpgrade: h2,h2c\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 200 Tr\xe8s bien: \x01\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 299 Own Status\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (CHUNKED.replace(b"\r", b"") + b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n", b"hello"),
        (CHUNKED + b"2;a=b\r\nhe\r\n00003\r\nllo\r\n0\r\nX-Trailer: x\r\n\r\n", b"hello"),
        (OK + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (OK + b": a\r\nX B: 3\r\nX-C : d\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH_5 + b"hello", b"hello"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + LENGTH_5 + b"hello", b"hello"),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_a_body_that_is_read_to_its_stated_end_leaves_the_connection_open(
    peer: Peer, session: ContentSession, sent: bytes, body: bytes
) -> None:
    peer.sent, peer.closes = sent, False

    assert [fetch(session, peer.url) for _ in range(2)] == [body] * 2
    assert peer.requests == [2]


@pytest.mark.parametrize(
    "sent",
    [
        OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        OK + b"Content-Length: 5\r\nConnection: Close\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: identity\r\n\r\nhello",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: Identity\r\n\r\nhello, and more",
        LENGTH_5 + b"hello, and more",
        LENGTH_5 + b"hello" + LENGTH_5 + b"other",
    ],
)
def test_a_connection_is_closed_where_its_end_is_in_doubt_or_more_follows(
    peer: Peer, session: ContentSession, sent: bytes
) -> None:
    peer.sent, peer.closes = sent, False

    assert [fetch(session, peer.url) for _ in range(2)] == [b"hello"] * 2
    assert peer.requests == [1, 1]


@pytest.mark.parametrize(
    "sent",
    [
        OK + b"\r\nhello",
        OK + b"Connection: keep-alive\r\n\r\nhello",
        OK + b"Transfer-Encoding: identity\r\n\r\nhello",
        CHUNKED + b"5\r\nhello\r\n0\r\n\r\nmore",
    ],
)
def test_a_body_without_a_stated_end_ends_with_its_connection(
    peer: Peer, session: ContentSession, sent: bytes
) -> None:
    peer.sent = sent

    assert [fetch(session, peer.url) for _ in range(2)] == [b"hello"] * 2
    assert peer.requests == [1, 1]


@pytest.mark.parametrize(
    "sent",
    [
        LENGTH_5 + b"hell",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: identity\r\n\r\nhell",
        CHUNKED + b"5\r\nhell",
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\n",
    ],
)
def test_an_answer_that_ends_early_is_a_fault(peer: Peer, session: ContentSession, sent: bytes) -> None:
    peer.sent = sent

    with pytest.raises(ConnectionFault, match="ended early") as fault:
        fetch(session, peer.url)
    assert type(fault.value) is ConnectionFault


@pytest.mark.parametrize(
    "sent",
    [
        CHUNKED + b"5\r\nhellooo\r\n0\r\n\r\n",
        CHUNKED + b"-1\r\nhello",
        CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"f" * 16 + b"\r\nhello",
        CHUNKED + b"f" * 17 + b"\r\nhello",
        CHUNKED + b"5\r\nhello0\r\n\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\nno trailer\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\nhello",
    ],
)
def test_a_body_that_is_not_in_chunks_is_not_understood(
    peer: Peer, session: ContentSession, sent: bytes
) -> None:
    peer.sent = sent

    with pytest.raises(NotUnderstood, match=r"not in chunks|no header"):
        fetch(session, peer.url)


@pytest.mark.parametrize("trailers", [b"X-A: a\r\n" * HEADER_LIMIT * 2, b"X-A: " + b"a" * (HEAD_LIMIT << 2)])
def test_the_lines_after_a_body_have_an_end(peer: Peer, session: ContentSession, trailers: bytes) -> None:
    peer.sent = CHUNKED + b"5\r\nhello\r\n0\r\n" + trailers + b"\r\n\r\n"

    with pytest.raises(ConnectionFault):
        fetch(session, peer.url)


@pytest.mark.parametrize(
    "sent", [LENGTH_5 + b"hello", CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\nX-A: a\r\n\r\n"]
)
def test_a_response_may_arrive_byte_by_byte(peer: Peer, session: ContentSession, sent: bytes) -> None:
    peer.sent, peer.singly = sent, True

    assert fetch(session, peer.url) == b"hello"


def test_a_body_of_no_bytes_ends_though_a_coding_that_is_none_is_stated(
    peer: Peer, session: ContentSession
) -> None:
    peer.sent, peer.closes = OK + b"Content-Length: 0\r\nTransfer-Encoding: identity\r\n\r\n", False

    assert fetch(session, peer.url) == b""


def test_a_response_that_is_left_unread_closes_its_connection(peer: Peer, session: ContentSession) -> None:
    peer.sent, peer.closes = OK + b"Content-Length: 6\r\n\r\nhello", False
    response = session.request(peer.url)
    assert response.read1() == b"hello"
    response.close()
    response.close()

    session.request(peer.url).close()
    assert peer.requests == [1, 1]


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"", Dropped),
        (b"hello\r\n\r\n", NotUnderstood),
        (b"\r\n" + LENGTH_5 + b"hello", NotUnderstood),
        (b"HTTP/1.1  200\tOK\r\nContent-Length: 5\r\n\r\nhello", NotUnderstood),
        (b"HTTP/1.1 1000 x\r\n\r\n", NotUnderstood),
        (b"HTTP/1.1 000 x\r\n\r\n", NotUnderstood),
        (b"HTTP/2 200 OK\r\n\r\n", NotUnderstood),
        (b"HTTP/2.0 200 OK\r\n\r\n", NotUnderstood),
        (b"HTTP/0.9 200 OK\r\n\r\n", NotUnderstood),
        (OK + b"X-A: " + b"a" * HEAD_LIMIT + b"\r\n\r\n", NotUnderstood),
        (OK + b"X-A: " + b"a" * (HEAD_LIMIT << 3) + b"\r\n\r\n", NotUnderstood),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * HEAD_LIMIT, NotUnderstood),
        (OK + b"X-A: a\r\n" * (HEADER_LIMIT + 1) + b"\r\n", NotUnderstood),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length: five\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length: -1\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length:\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length: 5, 6\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length : 5\r\n\r\nhello", NotUnderstood),
        (OK + b"Content-Length: five\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", NotUnderstood),
        (OK + b"Transfer-Encoding: gzip\r\n\r\nhello", NotUnderstood),
        (OK + b"Transfer-Encoding: chunked, gzip\r\n\r\nhello", NotUnderstood),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\nhello", NotUnderstood),
        (OK + b"X-A: a\0\r\n\r\n", NotUnderstood),
        (b"220 ftp.example.org ready\r\n", NotUnderstood),
        (b"\x15\x03\x03\x00\x02\x02\x46", NotUnderstood),
        (b"<!DOCTYPE HTML>", NotUnderstood),
        (OK + b"Transfer-Encoding: gzip\r\nContent-Length: 3\r\n\r\nhello", NotUnderstood),
        (OK + b"no header\r\n\r\n", NotUnderstood),
    ],
)
def test_a_head_that_cannot_be_understood_is_a_fault(
    peer: Peer, session: ContentSession, sent: bytes, fault: type[Exception]
) -> None:
    peer.sent = sent

    with pytest.raises(fault):
        fetch(session, peer.url)


def test_what_is_no_http_is_refused_though_its_connection_stays_open(
    peer: Peer, session: ContentSession
) -> None:
    peer.sent, peer.closes = b"SSH-2.0-OpenSSH_9.6\r\n", False

    with pytest.raises(NotUnderstood, match="it says 'SSH-2"):
        fetch(session, peer.url)


def test_headers_have_names_in_any_case_and_may_continue_or_be_repeated(
    peer: Peer, session: ContentSession
) -> None:
    peer.sent = (
        OK + b'ETag: "a"\r\nX-Long: one\r\n two\r\nX-A: 1\r\nx-a: 2\r\nX-Odd: a\x01 \t\r\nX-Empty:\r\n\r\n'
    )
    with closing(session.request(peer.url)) as response:
        headers = response.headers

    assert headers == {"etag": '"a"', "x-long": "one two", "x-a": "1, 2", "x-odd": "a\x01", "x-empty": ""}
    assert headers["Etag"] == headers.get("ETAG") == '"a"'
    assert "eTag" in headers
    assert headers.get("X-B", "none") == "none"


@pytest.mark.parametrize("name", ["Location", "Content-Length"])
def test_a_header_that_servers_repeat_is_one(name: str) -> None:
    assert Headers([(name, "5"), (name.lower(), "5")])[name] == "5"


def test_headers_are_read_as_latin_1(peer: Peer, session: ContentSession) -> None:
    peer.sent = OK + b"X-A: \xe9\xa0 \r\n\r\n"
    with closing(session.request(peer.url)) as response:
        assert response.headers["X-A"] == "\u00e9\u00a0"
