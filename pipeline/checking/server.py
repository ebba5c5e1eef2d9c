"""The process of one check: it gives up its rights, opens the check, and answers one request after another.

A request is two lengths, JSON, and a body: the files; without files it asks for the version. The answer is a
line of JSON for the version unless an earlier answer had the same, for each file that the check takes, for
each finding, and for the end. The process ends when its worker has ended.
"""

import importlib
import json
import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.checks import (
    Access,
    Check,
    CheckedFile,
    CheckFinding,
    CheckVerdict,
    Obstacle,
    ServiceAway,
    ServiceDied,
)
from pipeline.decoding import limits
from pipeline.decoding.wire import ALIVE_INTERVAL, HEADER, INPUT, line, read

READY, OPEN, VERSION, FILE, FINDING, ALIVE, DIED, AWAY, FAULT, DONE = (
    "ready",
    "open",
    "version",
    "file",
    "finding",
    "alive",
    "died",
    "away",
    "fault",
    "done",
)

FAULT_LIMIT = 2000
"""Characters of a traceback that are passed on: its end."""


def main() -> None:
    output = _keep_output()
    opening, _ = _request()
    # its folder is found now; what it needs besides is imported with the limits
    importlib.import_module(opening["check"].partition(":")[0].partition(".")[0])
    limit = Access(**{**opening["access"], "reads": tuple(opening["access"]["reads"])})
    if missing := limits.apply_access(limit, opening["reads"]):
        output.line(OPEN, *missing)
    threading.Thread(target=_end_with_worker, daemon=True).start()
    try:
        check = _opened(opening)
        output.line(READY)
        version = None
        while True:
            _, body = _request()
            files = [
                CheckedFile(path, Path(source), size, sha) for path, source, size, sha in json.loads(body)
            ]
            version = _Run(check, files, output, version).all_files()
            output.line(DONE)
    except ServiceAway as away:
        if isinstance(away, ServiceDied):
            output.line(DIED)
        output.line(AWAY, str(away))
    except EOFError:
        pass
    except BaseException:  # noqa: BLE001 - the worker raises it
        output.line(FAULT, traceback.format_exc()[-FAULT_LIMIT:])


def _opened(opening: dict[str, Any]) -> Check:
    module, _, name = opening["check"].partition(":")
    kind = getattr(importlib.import_module(module), name)
    given = opening["settings"]
    return kind(None if kind.settings is None else kind.settings.model_validate(given))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Output:
    descriptor: int
    waiting: bytearray = field(default_factory=bytearray)

    def later(self, kind: str, *values: Any) -> None:
        """Keep the line, and write it with the next one: each write wakes the worker."""
        self.waiting.extend(line(kind, *values))

    def line(self, kind: str, *values: Any) -> None:
        self.later(kind, *values)
        while self.waiting:
            del self.waiting[: os.write(self.descriptor, self.waiting)]


def _keep_output() -> _Output:
    """What a check or its programs print is no answer, and is dropped: no file may grow, not the worker's log
    either.
    """
    answers = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return _Output(answers)


def _request() -> tuple[dict[str, Any], bytes]:
    """EOFError at the end of the input."""
    size, body_size = HEADER.unpack(read(HEADER.size))
    return json.loads(read(size)), read(body_size)


def _end_with_worker() -> None:
    """Kill this process and its programs once the worker's end of the input is closed."""
    poll = select.poll()
    poll.register(INPUT, 0)  # the end of a pipe is reported without being asked for
    poll.poll()
    with suppress(PermissionError):  # a process that may start no programs may signal nobody else
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


class _Run:
    """One request: it drives the check over the files, and passes on what it yields."""

    def __init__(self, check: Check, files: list[CheckedFile], output: _Output, version: str | None) -> None:
        """`version`: the version of the check that the worker knows."""
        self._check = check
        self._files = files
        self._output = output
        self._taken = 0
        """Files that the check has taken."""
        self._version = version
        self._spoken = time.monotonic()

    def alive(self) -> None:
        if time.monotonic() - self._spoken >= ALIVE_INTERVAL:
            self._output.line(ALIVE)
            self._spoken = time.monotonic()

    def all_files(self) -> str | None:
        """The version of the check, as the worker knows it in the end.

        A check that raises an error continues with the file after the one at hand, or, if it failed before it
        took a file, after the one that comes next.
        """
        self._say_version()
        while self._taken < len(self._files):
            before = self._taken
            try:
                for finding in self._check.run(self._next_files(), self):
                    self._pass_on(finding)
            except ServiceAway:
                raise
            except MemoryError:
                self._fail(before, Obstacle.OUT_OF_MEMORY, "the check needs more memory than it may use")
            except BaseException as error:  # noqa: BLE001 - of the guest; a library may end with SystemExit
                self._fail(before, Obstacle.CRASHED, f"{type(error).__name__}: {error}")
            if self._taken == before:
                break  # it takes no more files: they have no finding
        return self._version

    def _next_files(self) -> Iterator[CheckedFile]:
        while self._taken < len(self._files):
            if not self._taken:
                self._say_version()  # a check may learn it where its run begins
            self._take()
            yield self._files[self._taken - 1]

    def _take(self) -> None:
        # until it hears more, the worker assumes that the check reads the first file
        write = self._output.line if self._taken else self._output.later
        write(FILE, self._taken)
        self._taken += 1

    def _fail(self, before: int, obstacle: Obstacle, message: str) -> None:
        if self._taken == before:
            self._take()
        self._output.line(FINDING, CheckVerdict.UNCHECKED, obstacle, message)

    def _say_version(self) -> None:
        if (version := self._check.version) != self._version:
            self._version = version
            self._output.line(VERSION, version)

    def _pass_on(self, finding: object) -> None:
        at_hand = self._files[self._taken - 1].path if self._taken else None
        if isinstance(finding, CheckFinding) and finding.path == at_hand:
            # a file at which the process dies now is not checked, whatever is fine in it
            write = self._output.later if finding.verdict is CheckVerdict.FINE else self._output.line
            write(FINDING, finding.verdict, finding.code, finding.message)
        else:
            message = f"the check answered {finding!r:.200}"
            self._output.line(FINDING, CheckVerdict.UNCHECKED, Obstacle.INVALID_ANSWER, message)
