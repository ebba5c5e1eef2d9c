"""A process whose step continues after its attempt ends soon, whatever the step waits for."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from pipeline.attempt import CheckedAttempt
from pipeline.outcome import AttemptOver
from pipeline.settings import Settings
from tasks.interruption import EXIT_OVERDUE, GRACE, Interruption

LONG = 60.0
"""Seconds of the library's own timeout."""

RETURNED = 3
"""The exit code of a child process whose work ended."""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A connection to a server that answers nothing."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), LONG) as connection,
    ):
        yield connection


def over() -> None:
    raise AttemptOver("an operator has failed the job")


OVER = CheckedAttempt(over)


def nothing(_: AttemptOver) -> None:
    """There is nothing to release."""


def exit_code_of(work: Callable[[Interruption], object]) -> int:
    """Of a child process that does the work in its main thread."""
    began = time.monotonic()
    child = os.fork()
    if not child:
        try:
            work(Interruption(Settings()))
        finally:
            os._exit(RETURNED)
    _, status = os.waitpid(child, 0)
    assert time.monotonic() - began < LONG / 2
    return os.waitstatus_to_exitcode(status)


def test_a_process_whose_step_waits_for_an_answer_after_its_attempt_releases_the_job_and_ends(
    silent: socket.socket,
) -> None:
    read, write = os.pipe()

    def wait(watch: Interruption) -> None:
        with watch.when_over(OVER, lambda reason: os.write(write, str(reason).encode())):
            silent.recv(1)

    assert exit_code_of(wait) == EXIT_OVERDUE
    assert os.read(read, 100) == b"an operator has failed the job"
    os.close(read)
    os.close(write)


def test_a_library_that_catches_every_exception_does_not_keep_its_process(silent: socket.socket) -> None:
    def insist(watch: Interruption) -> None:
        with watch.when_over(OVER, nothing):
            while True:
                try:
                    silent.recv(1)
                except BaseException:  # noqa: BLE001 - as some library does
                    continue

    assert exit_code_of(insist) == EXIT_OVERDUE


def test_a_job_that_cannot_be_released_does_not_keep_the_process(silent: socket.socket) -> None:
    def wait(watch: Interruption) -> None:
        with watch.when_over(OVER, lambda _: threading.Event().wait()):
            silent.recv(1)

    assert exit_code_of(wait) == EXIT_OVERDUE


def test_a_step_that_ends_by_itself_keeps_its_process() -> None:
    def end(watch: Interruption) -> None:
        with watch.when_over(OVER, nothing):
            pass
        threading.Event().wait(1.5 * GRACE)

    assert exit_code_of(end) == RETURNED


def test_a_step_in_another_thread_is_left_to_itself() -> None:
    def work(watch: Interruption) -> None:
        def step() -> None:
            with watch.when_over(OVER, nothing):
                threading.Event().wait(1.5 * GRACE)

        thread = threading.Thread(target=step)
        thread.start()
        thread.join()

    assert exit_code_of(work) == RETURNED


def test_the_next_attempt_is_watched_after_one_that_could_not_be_checked(silent: socket.socket) -> None:
    def work(watch: Interruption) -> None:
        checked = threading.Event()

        def check() -> None:
            checked.set()
            raise RuntimeError("a fault of the check itself")

        with watch.when_over(CheckedAttempt(check), nothing):
            checked.wait(10)
        with watch.when_over(OVER, nothing):
            silent.recv(1)

    assert exit_code_of(work) == EXIT_OVERDUE


def test_the_thread_of_a_worker_context_that_is_gone_ends() -> None:
    before = set(threading.enumerate())
    interruption = Interruption(Settings())
    (thread,) = set(threading.enumerate()) - before

    del interruption
    thread.join(10)

    assert not thread.is_alive()
