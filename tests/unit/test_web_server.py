"""What the web server itself refuses and ends, before the application has a request or its body."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import Queue
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import StreamingResponse

from entrypoints.web.server import ClientLimits, server

MOST = 1 << 24
"""Bytes; a head that is received so far has no limit."""

SHORT = ClientLimits(head=0.5, window=0.5, body=50, unread=0.5)

GET = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"


@contextmanager
def _serving(limits: ClientLimits, proxies: str = "") -> Iterator[int]:
    """The port of a server whose paths need nothing of this project."""
    application = FastAPI()
    nothing = SimpleNamespace(close=lambda *_: None)
    application.state.context = SimpleNamespace(streams=nothing, events=nothing)

    @application.get("/health")
    async def health() -> bool:
        return True

    @application.get("/pause")
    async def pause() -> None:
        time.sleep(0.5)  # the server accepts nothing meanwhile

    @application.post("/length")
    async def length(request: Request) -> int:
        return len(await request.body())

    @application.get("/endless")
    async def endless() -> StreamingResponse:
        async def pieces() -> Iterator[bytes]:  # type: ignore[misc]
            while not running.should_exit:
                yield b"x" * (1 << 20)

        return StreamingResponse(pieces())

    ports: Queue[int] = Queue()
    running = server(application, "127.0.0.1", 0, ports.put, proxies, limits)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        yield ports.get(timeout=30)
    finally:
        running.should_exit = True
        thread.join(timeout=30)


@pytest.fixture(scope="module")
def impatient() -> Iterator[int]:
    """The port of a server with short limits."""
    with _serving(SHORT) as port:
        yield port


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def _is_ended(connection: socket.socket) -> bool:
    """Whether the server has ended the connection, whatever it answered before."""
    with suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass
    return True


def _answers(port: int) -> float:
    """Seconds until the server has answered a new client."""
    began = time.monotonic()
    with _connect(port) as connection:
        connection.sendall(GET)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    return time.monotonic() - began


def _drip(connection: socket.socket, piece: bytes, pause: float, times: int) -> bool:
    """Whether the server took all pieces."""
    with suppress(ConnectionError):
        for _ in range(times):
            connection.sendall(piece)
            time.sleep(pause)
        return True
    return False


def test_a_head_without_an_end_is_refused() -> None:
    sent = 0
    with _serving(ClientLimits()) as port, _connect(port) as connection, suppress(ConnectionError):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: ")
        while sent < MOST:
            connection.sendall(b"a" * (1 << 16))
            sent += 1 << 16

    assert sent < MOST


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n"])
def test_a_client_that_does_not_end_its_head_is_ended(impatient: int, begun: bytes) -> None:
    with _connect(impatient) as connection:
        connection.sendall(begun)
        assert _is_ended(connection)


@pytest.mark.parametrize("before", [b"", GET])
def test_the_bytes_of_a_head_do_not_prolong_its_time(impatient: int, before: bytes) -> None:
    """... also of the second request of a connection."""
    with _connect(impatient) as connection:
        connection.sendall(before + b"GET / HTTP/1.1\r\nHost: a\r\nX-A: ")
        assert not _drip(connection, b"a", 0.1, 100)


@pytest.mark.parametrize("before", [b"", GET])
def test_a_body_that_drips_is_ended(impatient: int, before: bytes) -> None:
    with _connect(impatient) as connection:
        connection.sendall(before + POST)
        assert not _drip(connection, b"a", 0.1, 100)


def test_a_body_that_is_slow_and_steady_arrives() -> None:
    """... also on a busy machine, whose server reads nothing for most of a window."""
    with _serving(ClientLimits(window=2, body=50)) as port, _connect(port) as connection:
        connection.sendall(POST)
        assert _drip(connection, b"a" * 1000, 0.05, 100)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_does_not_read_its_answer_is_ended(impatient: int) -> None:
    with _connect(impatient) as connection:
        connection.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(3)  # the client's pause is what is tested
        assert _is_ended(connection)


def test_half_open_connections_of_many_leave_room_for_a_new_one() -> None:
    """`127.0.0.1` counts as a proxy here: only the sum is limited."""
    with _serving(ClientLimits(head=60, most=500), "127.0.0.1") as port:
        half_open = [_connect(port) for _ in range(1200)]
        try:
            for connection in half_open:
                with suppress(ConnectionError):
                    connection.sendall(b"GET / HTTP/1.1\r\n")
            assert min(_answers(port) for _ in range(5)) < 0.2
        finally:
            for connection in half_open:
                connection.close()


def test_one_address_has_only_so_many_connections_at_a_time() -> None:
    with _serving(ClientLimits(head=60, of_address=5, fresh=0.1)) as port:
        connections = [_connect(port) for _ in range(5)]
        time.sleep(0.2)  # the clients' silence is what is tested
        connections.append(_connect(port))
        assert _is_ended(connections[0])
        connections[-1].sendall(GET)
        assert connections[-1].recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        for connection in connections:
            connection.close()


def test_requests_that_arrive_together_from_one_address_are_all_answered() -> None:
    with _serving(ClientLimits(of_address=5)) as port, ExitStack() as stack:
        busy = stack.enter_context(_connect(port))
        busy.sendall(b"GET /pause HTTP/1.1\r\nHost: a\r\n\r\n")  # nothing is accepted in the pause
        connections = [stack.enter_context(_connect(port)) for _ in range(50)]
        for connection in connections:
            connection.sendall(GET)
        for connection in connections:
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_a_connection_whose_answer_is_in_progress_leaves_the_count_of_its_address() -> None:
    with _serving(ClientLimits(of_address=5, fresh=0.0)) as port, ExitStack() as stack:
        for _ in range(20):
            reading = stack.enter_context(_connect(port))
            reading.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
            assert reading.recv(1) == b"H"
        silent = [stack.enter_context(_connect(port)) for _ in range(5)]
        _answers(port)
        assert _is_ended(silent[0])
        assert reading.recv(1) == b"T"
