"""When a connection to a source has a second request."""

import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from io import BufferedIOBase

import pytest

from pipeline.http.session import ContentSession
from pipeline.http.transfer import Unanswered
from pipeline.settings import Settings

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Server(threading.Thread):
    """Answers the requests of one connection after the other, `answers_each` of them on each."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.answers_each = 100
        self.answer = ANSWER
        self.before_closing: threading.Event | None = None
        """Set once a connection that has had its answers may be closed."""
        self.requests: list[list[bytes]] = []
        """Of each connection."""
        self.closed = threading.Semaphore(0)
        """Released whenever the server has closed a connection."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/a"

    def run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.requests.append([])
                with connection, connection.makefile("rb") as received, suppress(OSError):
                    while len(self.requests[-1]) < self.answers_each and (head := self._head(received)):
                        self.requests[-1].append(head)
                        connection.sendall(self.answer)
                    if self.before_closing:
                        self.before_closing.wait(30)
                self.closed.release()

    @staticmethod
    def _head(received: BufferedIOBase) -> bytes:
        head = b""
        while (line := received.readline()).strip():
            head += line
        return head

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    running.start()
    yield running
    running.stop()


@pytest.fixture
def session() -> Iterator[ContentSession]:
    with ContentSession(Settings(allow_networks="127.0.0.0/8").allow_networks) as opened:
        yield opened


def fetch(session: ContentSession, url: str) -> bytes:
    with closing(session.request(url)) as response:
        return response.read()


def test_requests_in_turn_have_one_connection(server: Server, session: ContentSession) -> None:
    assert [fetch(session, server.url) for _ in range(3)] == [b"hello"] * 3

    assert [len(requests) for requests in server.requests] == [3]


def test_a_connection_that_its_server_has_closed_has_no_second_request(
    server: Server, session: ContentSession
) -> None:
    server.answers_each = 1
    for _ in range(2):
        assert fetch(session, server.url) == b"hello"
        assert server.closed.acquire(timeout=30)

    assert [len(requests) for requests in server.requests] == [1, 1]


def test_bytes_that_nobody_asked_for_end_the_use_of_a_connection(
    server: Server, session: ContentSession
) -> None:
    server.answer = ANSWER + ANSWER.replace(b"hello", b"other")

    assert [fetch(session, server.url) for _ in range(2)] == [b"hello", b"hello"]


def test_a_redirect_that_states_no_end_leads_on_by_another_connection(
    server: Server, session: ContentSession
) -> None:
    server.answer = b"HTTP/1.1 302 Found\r\nLocation: /b\r\n\r\n"
    with closing(session.request(server.url, body=b"")) as response:
        assert response.status == 302
    server.answer = ANSWER

    assert fetch(session, server.url) == b"hello"
    assert [len(requests) for requests in server.requests] == [1, 1]


def test_a_request_names_its_host_as_servers_expect_it(server: Server, session: ContentSession) -> None:
    fetch(session, f"http://user:word@LOCALHOST:{server.port}/a%20b?c=d")

    (head,) = server.requests[0]
    assert head.startswith(b"GET /a%20b?c=d HTTP/1.1\r\nHost: localhost:" + str(server.port).encode())
    assert b"word" not in head
    assert b"\r\nAuthorization: Basic dXNlcjp3b3Jk\r\n" in head


def test_a_header_of_two_lines_is_not_sent(server: Server, session: ContentSession) -> None:
    with pytest.raises(ValueError, match="line break"):
        session.request(server.url, {"If-Range": '"a"\r\nX-B: c'})

    assert server.requests == []


def test_a_kept_connection_that_falls_silent_is_left_after_the_time_without_a_byte(server: Server) -> None:
    server.answers_each = 1
    silent = threading.Event()
    allowed = Settings(allow_networks="127.0.0.0/8").allow_networks
    with ContentSession(allowed, read_timeout=0.2) as session:
        server.before_closing = silent
        assert fetch(session, server.url) == b"hello"

        with pytest.raises(Unanswered, match="timeout while waiting for bytes"):
            fetch(session, server.url)
        silent.set()


def test_a_process_with_more_open_files_than_select_can_wait_for_fetches_as_well(
    server: Server, session: ContentSession
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1400), hard))
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))

        assert [fetch(session, server.url) for _ in range(3)] == [b"hello"] * 3


def test_a_host_is_fetched_from_the_address_that_answers_and_then_asked_there_first(server: Server) -> None:
    allowed = Settings(allow_networks="127.0.0.0/8, ::1").allow_networks
    with ContentSession(allowed) as session:
        for _ in range(3):  # nothing listens on ::1
            assert fetch(session, f"http://localhost:{server.port}/a") == b"hello"

    assert [len(requests) for requests in server.requests] == [3]
