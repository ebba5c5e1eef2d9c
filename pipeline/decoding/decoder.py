"""The worker's side of decoding: send a request, read the results, and kill a process that does not end.

A decoder that reaches a limit or crashes is a content failure: the same bytes would fail again.
"""

import json
import logging
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from pipeline import causes
from pipeline.attempt import Attempt
from pipeline.decoding import child
from pipeline.decoding.child import Channel, Process
from pipeline.decoding.limits import Limits
from pipeline.decoding.server import (
    ADMIT,
    ALIVE,
    DONE,
    ENDED,
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

_SERVER = "pipeline.decoding.server"

_log = logging.getLogger(__name__)


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
    memory: int = 0
    """Maximum bytes of memory; 0: as the settings say."""


class Decoder:
    """Decodes for one process; starts its server with the first request."""

    def __init__(self, settings: Settings, seconds: int = SECONDS) -> None:
        self._settings = settings
        self._seconds = seconds
        self._mutex = threading.Lock()
        self._server: Process | None = None

    def decode(self, request: Request, attempt: Attempt) -> Iterator[Any]:
        """Yield the results; raises what the decoder raised, or StepFailed if the decoder reached a limit."""
        given = self._settings
        limits = Limits(
            request.memory or given.decoding_memory,
            self._seconds,
            most=request.most,
            file_bytes=request.file_bytes,
            asks=request.admit is not None,
            writes=request.writes,
            reads=request.reads,
        )
        with child.turn(self._mutex, attempt):
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

    def _running(self) -> Process:
        if self._server is None or not self._server.is_usable():
            self._stop()
            self._server = Process(_SERVER)
        return self._server

    def _stop(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._server = None


@cache
def _warn_of(*missing: str) -> None:
    """Warn once per worker process."""
    _log.warning(
        "content is decoded without %s: this kernel gives none; what a decoder may do then is in "
        "docs/security.md; use Linux 5.13 or later, and a container runtime that allows it",
        " and without ".join(missing),
    )


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
            ).because(causes.LIMIT_EXCEEDED(limit="ARKLINE_DECODING_MEMORY"))
        return error_of(self.kind, self.values)


def _killed(number: int, subject: str, limits: Limits) -> StepFailed:
    match number:
        case signal.SIGXCPU:
            return content(
                f"reading {subject} needs more than {limits.seconds} seconds of processor time beside those "
                "for its size: pack or write it in another way, and submit it again"
            ).because(causes.LIMIT_EXCEEDED(limit="of processor time"))
        case signal.SIGKILL | signal.SIGTERM:
            return transient(f"the process that was reading {subject} was killed from outside")
        case signal.SIGABRT:
            return content(
                f"the process that was reading {subject} gave up (SIGABRT), probably because it needs more "
                f"than {limits.memory // 1_000_000} MB of memory: divide the object, or ask the operator to "
                "raise ARKLINE_DECODING_MEMORY"
            )
        case _:
            name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
            return content(
                f"the process that was reading {subject} crashed ({name}): pack or write it in another way, "
                "and submit it again"
            )


def _exchange(
    server: Process, request: Request, limits: Limits, attempt: Attempt
) -> Generator[Any, None, _Ended]:
    """Yield the results and return _Ended; any exception leaves the server unusable."""
    asked = {"function": request.function, "arguments": request.arguments, "limits": asdict(limits)}

    def watch(silent: float) -> None:
        if silent > SILENCE:
            raise transient(
                f"the process that was reading {request.subject} gave no sign of life for {SILENCE:.0f} s"
            )

    channel = Channel(server, asked, request.body)
    last: list[Any] = [DONE]
    for message in channel.lines(attempt, watch):
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
    code = server.running.wait()
    if code > 0:
        raise system(
            f"{request.subject} cannot be read: the decoding server does not start on this host "
            f"(exit code {code}); its error is in the worker's log"
        )
    raise transient(f"the process that was reading {request.subject} was killed from outside")
