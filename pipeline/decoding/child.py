"""A child process that reads foreign bytes: started with nothing of the worker's, and killed alone."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from pipeline.attempt import POLL_INTERVAL, Attempt
from pipeline.decoding import wire
from pipeline.decoding.server import ANSWER

LINE_LIMIT = 8 << 20
"""Bytes of one result; the largest is a description."""

READ_SIZE = 1 << 16

_PROGRAM = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "importlib.import_module(sys.argv[1]).main()"
)
_ROOT = str(Path(__file__).resolve().parents[2])


class Process:
    """A child process; a process that is forked from its owner leaves it alone."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        """Run `main` of the module in a session of its own, so that the process and its children are killed
        together, and with nothing that belongs to the worker: neither its environment nor its open files.
        """
        path = [_ROOT, *(str(Path(entry).absolute()) for entry in sys.path if entry)]
        self.running = subprocess.Popen(  # noqa: S603 - this interpreter, with a constant program
            [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM, module, json.dumps(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment or {},
            cwd="/",
            start_new_session=True,
        )
        assert self.running.stdin is not None, "it is started with pipes"
        os.set_blocking(self.running.stdin.fileno(), False)
        self._owner = os.getpid()
        self.stop = weakref.finalize(self, _kill, self.running, self._owner)
        """Kills the process and its children, as the end of this object does."""

    def is_usable(self) -> bool:
        return self._owner == os.getpid() and self.running.poll() is None


def _kill(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


@contextmanager
def turn(mutex: threading.Lock, attempt: Attempt) -> Iterator[None]:
    """Hold the mutex, one request at a time; the attempt is checked while another thread holds it."""
    while not mutex.acquire(timeout=POLL_INTERVAL):
        attempt.check()
    try:
        yield
    finally:
        mutex.release()


class Channel:
    """The pipes to the server: a request on its way out, and lines that arrive."""

    def __init__(self, server: Process, request: object, body: bytes) -> None:
        running = server.running
        assert running.stdin is not None, "it is started with pipes"
        assert running.stdout is not None, "it is started with pipes"
        self._input: IO[bytes] = running.stdin
        self._output: IO[bytes] = running.stdout
        self._unsent = [memoryview(piece) for piece in (wire.request(request, body), body) if piece]
        self._poll = select.poll()  # for two pipes and one request, epoll needs more calls
        self._poll.register(self._output, select.POLLIN)
        self._send()
        if self._unsent:
            self._poll.register(self._input, select.POLLOUT)

    def lines(self, attempt: Attempt, watch: Callable[[float], None]) -> Iterator[bytes]:
        """The lines until the process ends.

        The attempt is checked while nothing arrives; `watch` is called with the seconds since something did.
        """
        rest = bytearray()
        heard = time.monotonic()
        while True:
            attempt.check()
            watch(time.monotonic() - heard)
            for descriptor, _ in self._poll.poll(1000 * POLL_INTERVAL):
                if descriptor == self._input.fileno():
                    self._send()
                    if not self._unsent:
                        self._poll.unregister(self._input)
                    continue
                data = os.read(descriptor, READ_SIZE)
                if not data:
                    return
                heard = time.monotonic()
                *lines, end = (bytes(rest) + data).split(b"\n")
                rest = bytearray(end)
                if len(rest) > LINE_LIMIT:
                    raise RuntimeError(f"a result of more than {LINE_LIMIT} bytes")
                yield from lines

    def answer(self, number: int) -> None:
        """The decoder waits for this answer; its request has been sent."""
        with suppress(BrokenPipeError):  # the server has ended, as its output will say
            os.write(self._input.fileno(), ANSWER.pack(number))

    def _send(self) -> None:
        try:
            sent = os.writev(self._input.fileno(), self._unsent)
        except BlockingIOError:
            return
        except BrokenPipeError:  # the server has ended, as its output will say
            self._unsent.clear()
        else:
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.pop(0))
            if sent:
                self._unsent[0] = self._unsent[0][sent:]
