"""The worker's side of decoding: send a request, read the results, and kill a process that does not end.

A decoder that reaches a limit or crashes is a content failure: the same bytes would fail again.
"""

import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from pipeline.attempt import POLL_INTERVAL, Attempt
from pipeline.decoding.limits import Limits
from pipeline.decoding.server import (
    ADMIT,
    ALIVE,
    ANSWER,
    DONE,
    ENDED,
    HEADER,
    ITEM,
    MEMORY,
    OPEN,
    error_of,
)
from pipeline.outcome import StepFailed, content, system, transient
from pipeline.settings import Settings

SECONDS = 60
"""Seconds of processor time per decoding, plus one per megabyte and one per 1,000 files."""

SILENCE = 600.0
"""Seconds without a sign of life until the decoder is given up. A decoder that computes is ended by its limit
of processor time; one that is silent for so long waits for a disk or for a processor."""

LINE_LIMIT = 8 << 20
"""Maximum bytes of one result; the largest is a description."""

READ_SIZE = 1 << 16

_log = logging.getLogger(__name__)

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from pipeline.decoding.server import main; main()"
)
_ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Request:
    function: str
    """A key of pipeline.decoding.server.FUNCTIONS."""
    subject: str
    """What is decoded, for messages."""
    arguments: Mapping[str, Any]
    body: bytes = b""
    most: tuple[int, int] = (0, 0)
    """The bytes and files that may be read or written; no processor time is granted beyond them."""
    file_bytes: int = 0
    """Maximum bytes of a file that is written."""
    admit: Callable[[int], int] | None = None
    """Called before that many bytes are written; returns how many may be written before the next call."""
    writes: str = ""
    """The existing folder below which files may be written; empty: nowhere."""
    reads: tuple[str, ...] = ()
    """The files and folders of the deposit that may be read."""


class Decoder:
    """Decodes for one process; starts its server with the first request."""

    def __init__(self, settings: Settings, seconds: int = SECONDS) -> None:
        self._settings = settings
        self._seconds = seconds
        self._mutex = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def decode(self, request: Request, attempt: Attempt) -> Iterator[Any]:
        """Yield the results; raises what the decoder raised, or StepFailed if the decoder reached a limit."""
        given = self._settings
        limits = Limits(
            given.decoding_memory,
            self._seconds,
            most=request.most,
            file_bytes=request.file_bytes,
            asks=request.admit is not None,
            writes=request.writes,
            reads=request.reads,
        )
        with self._turn(attempt):
            server = self._running()
            usable = False
            try:
                ended = yield from _exchange(server, request, limits, attempt)
                usable = ended.code == 0
            finally:
                if not usable:
                    self._stop()
        if error := ended.error(request.subject, limits):
            raise error

    def close(self) -> None:
        with self._mutex:
            self._stop()

    @contextmanager
    def _turn(self, attempt: Attempt) -> Iterator[None]:
        while not self._mutex.acquire(timeout=POLL_INTERVAL):
            attempt.check()
        try:
            yield
        finally:
            self._mutex.release()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._server is None or self._pid != os.getpid() or self._server.poll() is not None:
            self._stop()
            self._server, self._pid = _start(), os.getpid()
            weakref.finalize(self, _kill, self._server, self._pid)
        return self._server

    def _stop(self) -> None:
        if self._server is not None:
            _kill(self._server, self._pid)
        self._server = None


def _start() -> subprocess.Popen[bytes]:
    """Start the server in a session of its own, so that the server and its child are killed together.

    The server inherits neither the worker's environment nor its open files.
    """
    path = [_ROOT, *(str(Path(entry).absolute()) for entry in sys.path if entry)]
    return subprocess.Popen(  # noqa: S603 - this interpreter, with a constant program
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM, json.dumps(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env={},
        cwd="/",
        start_new_session=True,
    )


@cache
def _warn_of(*missing: str) -> None:
    """Warn once per worker process."""
    _log.warning(
        "content is decoded without %s: this kernel gives none; what a decoder may do then is in "
        "docs/security.md; use Linux 5.13 or later, and a container runtime that allows it",
        " and without ".join(missing),
    )


def _kill(server: subprocess.Popen[bytes], owner: int) -> None:
    """Kill the server and the decoding process; does nothing in a process forked from the owner."""
    if os.getpid() != owner:
        return
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    for stream in (server.stdin, server.stdout):
        if stream is not None:
            stream.close()


@dataclass(frozen=True)
class _Ended:
    """How a request ended."""

    kind: str
    """The kind of the last message."""
    values: list[Any]
    code: int
    """The exit code of the decoding process, or minus the signal that ended it."""

    def error(self, subject: str, limits: Limits) -> Exception | None:
        if self.code < 0:
            return _killed(-self.code, subject, limits)
        if self.kind == DONE:
            return None
        if self.kind == MEMORY:
            return content(
                f"reading {subject} needs more than {limits.memory // 1_000_000} MB of memory: divide the "
                "object, or ask the operator to raise ARKLINE_DECODING_MEMORY"
            )
        return error_of(self.kind, self.values)


def _killed(number: int, subject: str, limits: Limits) -> StepFailed:
    match number:
        case signal.SIGXCPU:
            return content(
                f"reading {subject} needs more than {limits.seconds} seconds of processor time beside those "
                "for its size: pack or write it in another way, and submit it again"
            )
        case signal.SIGKILL | signal.SIGTERM:
            return transient(f"the process that was reading {subject} was killed from outside")
        case _:
            name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
            return content(
                f"the process that was reading {subject} crashed ({name}): pack or write it in another way, "
                "and submit it again"
            )


def _exchange(
    server: subprocess.Popen[bytes], request: Request, limits: Limits, attempt: Attempt
) -> Generator[Any, None, _Ended]:
    """Yield the results and return _Ended; any exception leaves the server unusable."""
    asked = {"function": request.function, "arguments": request.arguments, "limits": asdict(limits)}
    data = json.dumps(asked).encode()
    with _Channel(server, HEADER.pack(len(data), len(request.body)) + data, request.body) as channel:
        last: list[Any] = [DONE]
        for message in channel.lines(attempt, request.subject):
            kind, *values = json.loads(message)
            if kind == ITEM:
                yield values[0]
            elif kind == ADMIT and request.admit is not None:
                channel.answer(request.admit(values[0]))
            elif kind == OPEN:
                _warn_of(*values)
            elif kind == ENDED:
                return _Ended(last[0], last[1:], values[0])
            elif kind != ALIVE:
                last = [kind, *values]
    code = server.wait()
    if code > 0:
        raise system(
            f"{request.subject} cannot be read: the decoding server does not start on this host "
            f"(exit code {code}); its error is in the worker's log"
        )
    raise transient(f"the process that was reading {request.subject} was killed from outside")


class _Channel:
    """The pipes to the server: sends a request and receives lines."""

    def __init__(self, server: subprocess.Popen[bytes], head: bytes, body: bytes) -> None:
        assert server.stdin is not None, "the server is started with pipes"
        assert server.stdout is not None, "the server is started with pipes"
        self._input: IO[bytes] = server.stdin
        self._output: IO[bytes] = server.stdout
        self._unsent = [memoryview(piece) for piece in (head, body) if piece]
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> "_Channel":
        os.set_blocking(self._input.fileno(), False)
        self._selector.register(self._input, selectors.EVENT_WRITE)
        self._selector.register(self._output, selectors.EVENT_READ)
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def lines(self, attempt: Attempt, subject: str) -> Iterator[bytes]:
        """The lines until the server ends; the attempt is checked while nothing arrives."""
        rest = bytearray()
        heard = time.monotonic()
        while True:
            attempt.check()
            for key, _ in self._selector.select(POLL_INTERVAL):
                if key.fileobj is self._input:
                    self._send()
                    continue
                data = os.read(key.fd, READ_SIZE)
                if not data:
                    return
                heard = time.monotonic()
                *lines, end = (bytes(rest) + data).split(b"\n")
                rest = bytearray(end)
                if len(rest) > LINE_LIMIT:
                    raise RuntimeError(f"a result of more than {LINE_LIMIT} bytes")
                yield from lines
            if time.monotonic() - heard > SILENCE:
                raise transient(
                    f"the process that was reading {subject} gave no sign of life for {SILENCE:.0f} s"
                )

    def answer(self, number: int) -> None:
        """Answer the waiting decoder, whose request has been sent completely."""
        with suppress(BrokenPipeError):  # the server has ended, as its output will show
            os.write(self._input.fileno(), ANSWER.pack(number))

    def _send(self) -> None:
        try:
            sent = os.write(self._input.fileno(), self._unsent[0])
        except BlockingIOError:
            return
        except BrokenPipeError:  # the server has ended, as its output will show
            self._unsent.clear()
        else:
            self._unsent[0] = self._unsent[0][sent:]
            if not self._unsent[0]:
                del self._unsent[0]
        if not self._unsent:
            self._selector.unregister(self._input)
