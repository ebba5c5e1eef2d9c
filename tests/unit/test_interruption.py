"""A step that waits inside a library ends soon after its attempt, whatever the library waits for."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from pipeline.attempt import CheckedAttempt
from pipeline.outcome import AttemptOver
from pipeline.settings import Settings
from tasks.interruption import GRACE, Interruption

LONG = 60.0
"""Seconds of the library's own timeout."""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A connection to a server that answers nothing."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), LONG) as connection,
    ):
        yield connection


@pytest.fixture(scope="module")
def watch() -> Interruption:
    """One for all attempts, as in a process of a worker."""
    return Interruption(Settings())


def attempt_until(over: threading.Event) -> CheckedAttempt:
    def check() -> None:
        if over.is_set():
            raise AttemptOver("an operator has failed the job")

    return CheckedAttempt(check)


def test_what_waits_for_an_answer_ends_when_the_attempt_is_over(
    watch: Interruption, silent: socket.socket
) -> None:
    over = threading.Event()
    threading.Timer(0.1, over.set).start()
    began = time.monotonic()

    with pytest.raises(AttemptOver, match="an operator"), watch.when_over(attempt_until(over)):
        silent.recv(1)

    assert time.monotonic() - began < LONG / 2


def test_a_library_that_takes_the_first_exception_for_a_fault_is_interrupted_again(
    watch: Interruption, silent: socket.socket
) -> None:
    over = threading.Event()
    over.set()
    faults: list[AttemptOver] = []

    def repeat_once() -> None:
        try:
            silent.recv(1)
        except AttemptOver as fault:
            faults.append(fault)
            silent.recv(1)

    with pytest.raises(AttemptOver), watch.when_over(attempt_until(over)):
        repeat_once()

    assert len(faults) == 1


def test_a_step_that_ends_by_itself_is_not_interrupted(watch: Interruption) -> None:
    over = threading.Event()
    over.set()

    with watch.when_over(attempt_until(over)):
        pass

    assert not threading.Event().wait(1.5 * GRACE)


def test_a_step_in_another_thread_is_left_to_itself(watch: Interruption) -> None:
    over = threading.Event()
    over.set()
    results = []

    def step() -> None:
        with watch.when_over(attempt_until(over)):
            results.append("done")

    thread = threading.Thread(target=step)
    thread.start()
    thread.join()

    assert results == ["done"]


def test_the_next_attempt_is_watched_after_one_that_could_not_be_checked(
    watch: Interruption, silent: socket.socket
) -> None:
    checked, over = threading.Event(), threading.Event()
    over.set()

    def check() -> None:
        checked.set()
        raise RuntimeError("a fault of the check itself")

    with watch.when_over(CheckedAttempt(check)):
        assert checked.wait(10)

    with pytest.raises(AttemptOver), watch.when_over(attempt_until(over)):
        silent.recv(1)
