"""The handler that waits with poll(2) answers as kazoo's own does."""

import resource
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from zkstate.direct import DirectHandler, StockHandler

Select = Callable[..., tuple[Sequence[Any], Sequence[Any], Sequence[Any]]]


@pytest.fixture(params=[DirectHandler, StockHandler, SequentialThreadingHandler])
def wait(request: pytest.FixtureRequest) -> Select:
    """The `select` of our handlers, and that of kazoo's own: all have to pass every test."""
    ready: Select = request.param().select
    return ready


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    own, peer = socket.socketpair()
    with own, peer:
        own.setblocking(False)
        yield own, peer


def test_a_socket_with_bytes_is_readable(wait: Select, pair: tuple[socket.socket, socket.socket]) -> None:
    own, peer = pair
    peer.send(b"x")

    assert list(wait([own], [], [], 5)[0]) == [own]


def test_without_bytes_nothing_is_ready_at_the_timeout(
    wait: Select, pair: tuple[socket.socket, socket.socket]
) -> None:
    began = time.monotonic()

    assert [list(ready) for ready in wait([pair[0]], [], [], 0.2)] == [[], [], []]
    assert time.monotonic() - began >= 0.19


def test_a_socket_with_room_is_writable(wait: Select, pair: tuple[socket.socket, socket.socket]) -> None:
    assert list(wait([], [pair[0]], [], 5)[1]) == [pair[0]]


def test_a_full_socket_is_not_writable(wait: Select, pair: tuple[socket.socket, socket.socket]) -> None:
    own, _ = pair
    with suppress(BlockingIOError):
        while own.send(b"x" * 65536):
            pass

    assert list(wait([], [own], [], 0.1)[1]) == []


def test_of_two_sockets_the_ready_one_is_named(
    wait: Select, pair: tuple[socket.socket, socket.socket]
) -> None:
    own, peer = pair
    peer.send(b"x")

    assert list(wait([peer, own], [], [], 5)[0]) == [own]


def test_a_socket_that_the_peer_has_closed_is_readable(
    wait: Select, pair: tuple[socket.socket, socket.socket]
) -> None:
    own, peer = pair
    peer.close()

    assert list(wait([own], [], [], 5)[0]) == [own]
    assert own.recv(1) == b""


def test_a_closed_socket_is_an_error(wait: Select, pair: tuple[socket.socket, socket.socket]) -> None:
    own, _ = pair
    own.close()

    with pytest.raises((ValueError, TypeError)):
        wait([own], [], [], 1)


def test_a_negative_timeout_is_an_error(wait: Select, pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(ValueError, match="timeout"):
        wait([pair[0]], [], [], -1)


def test_a_file_descriptor_that_is_not_open_is_an_error() -> None:
    descriptor = socket.socket().detach()
    socket.socket(fileno=descriptor).close()

    with pytest.raises(ValueError, match="is closed"):
        DirectHandler().select([descriptor], [], [], 1)


def test_more_files_than_select_allows_are_no_problem(pair: tuple[socket.socket, socket.socket]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many: list[socket.socket] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard < 4096 else max(soft, 2048), hard))
        while not many or many[-1].fileno() < 1100:
            many.append(pair[0].dup())
        pair[1].send(b"x")

        assert DirectHandler().select([many[-1]], [], [], 5)[0] == [many[-1]]
    finally:
        for one in many:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
