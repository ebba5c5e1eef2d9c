"""The decoding server of one worker process: it forks a process for each request, and decodes nothing itself.

A fork costs a few milliseconds, a new interpreter some 200. A request is two lengths, the request in JSON,
and a body, which only the forked process reads. The server ends, and ends that process, when its worker has
ended.
"""

import gc
import json
import os
import select
import signal
import struct
import sys
import time
import traceback
from contextlib import suppress

from pipeline.attempt import Progress
from pipeline.decoding import limits, messages
from pipeline.decoding.functions import FUNCTIONS

HEADER = struct.Struct(">IQ")
"""Bytes of the request, and bytes of its body."""

ALIVE_INTERVAL = 1.0
"""Seconds between two signs of life."""

BUFFERED = 1 << 16
"""Bytes of results that are sent together."""

_INPUT, _OUTPUT = 0, 1


def main() -> None:
    gc.freeze()
    while header := _read(HEADER.size):
        size, body_size = HEADER.unpack(header)
        request = _read(size)
        ended, lives = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ended)
            _decode(request, body_size)
        os.close(lives)
        _await(child, ended)
        os.close(ended)
        _, status = os.waitpid(child, 0)
        os.write(_OUTPUT, messages.line(messages.ENDED, os.waitstatus_to_exitcode(status)))


def _read(size: int) -> bytes:
    """`size` bytes of the input; empty at its end."""
    data = bytearray()
    while len(data) < size:
        piece = os.read(_INPUT, size - len(data))
        if not piece:
            return b""
        data += piece
    return bytes(data)


def _await(child: int, ended: int) -> None:
    """Until the child has ended; kill it if the worker has ended, whose end of the input is then closed."""
    poll = select.poll()
    for descriptor in (_INPUT, ended):
        poll.register(descriptor, 0)  # the end of a pipe is reported without being asked for
    if any(descriptor == _INPUT for descriptor, _ in poll.poll()):
        os.kill(child, signal.SIGKILL)
        sys.exit()


class _Results:
    """The results on their way to the worker, and the attempt as the decoder sees it."""

    def __init__(self, limit: limits.Limits) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._sent = 0.0
        self._admitted = 0 if limit.asks else sys.maxsize

    def add(self, line: bytes) -> None:
        self._buffer += line
        if len(self._buffer) >= BUFFERED:
            self.send()

    def send(self) -> None:
        while self._buffer:
            del self._buffer[: os.write(_OUTPUT, self._buffer)]
        self._sent = time.monotonic()

    def check(self) -> None:
        if time.monotonic() - self._sent >= ALIVE_INTERVAL:
            self.add(messages.line(messages.ALIVE))
            self.send()

    def report(self, progress: Progress) -> None:
        limits.allow(self._limit, progress)
        if progress.bytes > self._admitted:
            self.add(messages.line(messages.ADMIT, progress.bytes))
            self.send()
            answer = _read(messages.ANSWER.size)
            if not answer:
                sys.exit("the worker has ended")
            (self._admitted,) = messages.ANSWER.unpack(answer)

    def yields(self) -> bool:
        return False


def _decode(data: bytes, body_size: int) -> None:
    """Carry out the request and end this process."""
    last, all_read = messages.line(messages.DONE), False
    # composed while there is memory: the frames of a MemoryError hold the rest
    no_memory = messages.line(messages.MEMORY)
    sys.dont_write_bytecode = True
    request = json.loads(data)
    limit = limits.Limits(**request["limits"])
    results = _Results(limit)
    try:
        if missing := limits.apply(limit):
            results.add(messages.line(messages.OPEN, *missing))
        body = _read(body_size)
        all_read = True
        decoded = FUNCTIONS[request["function"]](request["arguments"], body, results)
        del body  # the function may drop it as well
        for result in decoded:
            results.add(messages.line(messages.ITEM, result))
    except MemoryError:
        last = no_memory
    except BaseException as error:  # noqa: BLE001 - raised where the request waits
        last = messages.of_error(error, traceback.format_exc)
    with suppress(BrokenPipeError):  # the worker has ended
        results.add(last)
        results.send()
    os._exit(0 if all_read else 1)  # the rest of a body would be taken for the next request
