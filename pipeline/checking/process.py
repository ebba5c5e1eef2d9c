"""The worker's side of checks: one resident process for each check, which is killed if it does not end.

Rule: the process is not trusted to end, to answer, or to answer with findings. One that dies, hangs or
answers nonsense costs the file at hand its check, and no other file: a new process continues after it.
"""

import inspect
import json
import logging
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from pipeline.attempt import Attempt
from pipeline.checking import server
from pipeline.checks import (
    BYTES_PER_SECOND,
    CODE_LIMIT,
    FINDINGS_OF_A_FILE,
    MESSAGE_LIMIT,
    Check,
    CheckedFile,
    CheckFinding,
    CheckRule,
    CheckVerdict,
    Obstacle,
    configured,
    installed,
)
from pipeline.decoding import child
from pipeline.decoding.child import Channel, Process
from pipeline.errors import ArklineError, UsageRefused
from pipeline.names import one_line
from pipeline.outcome import Service, ServiceDown

DEATHS = 5
"""Processes of a check that may die in one run; files after that are not checked."""

SETTINGS_SECONDS = 60.0
"""For so long the settings of a check are used that were read for an earlier job."""

ENDING = 1.0
"""Seconds between the end of a process's output and its own end."""

_SERVER = "pipeline.checking.server"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opening:
    """A check and how its process is opened; equal openings share a process."""

    name: str
    kind: type[Check]
    settings: str = "{}"
    """As JSON."""
    reads: tuple[str, ...] = ()
    """What its process may read besides."""

    @classmethod
    def of(cls, rule: CheckRule, kind: type[Check]) -> "Opening":
        """As the profile's rule asks for it; UsageRefused if its settings are wrong."""
        settings = configured(rule, kind)
        given = json.dumps(settings.model_dump() if settings else {}, default=_plain)
        programs = (str(Path(rule.command[0]).resolve().parent),) if rule.command else ()
        return cls(rule.name, kind, given, programs)

    def request(self, reads: Sequence[str]) -> dict[str, Any]:
        access = asdict(self.kind.access)
        return {
            "check": f"{self.kind.__module__}:{self.kind.__qualname__}",
            "settings": json.loads(self.settings),
            "access": access,
            "reads": [*reads, *self.reads, *_modules(self.kind)],
        }


def _plain(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _modules(kind: type[Check]) -> Sequence[str]:
    """Where the check's own modules are, which may be outside of the folders of installed packages."""
    top = sys.modules[kind.__module__.partition(".")[0]]
    # a package without __init__.py has no file, and maybe several folders
    return tuple(getattr(top, "__path__", ())) or (inspect.getfile(top),)


def _opening(rule: CheckRule) -> Opening:
    try:
        kind = installed(rule)
        if kind is not None:
            return Opening.of(rule, kind)
    except UsageRefused as refusal:
        raise ServiceDown(Service.CHECK, str(refusal), instance=rule.name, of_host=True) from refusal
    message = f"the check {rule.name} is not installed on this host: install it, or let another host do it"
    raise ServiceDown(Service.CHECK, message, instance=rule.name, of_host=True)


class _Died(ArklineError):
    """The process of a check ended, or was killed for a reason."""

    def __init__(self, obstacle: Obstacle, message: str) -> None:
        super().__init__(message)
        self.obstacle = obstacle


class Checker:
    """The checks of one worker process; a process is started with the first request for its check."""

    def __init__(self, reads: Sequence[Path]) -> None:
        """`reads`: the folders that have the files of deposits."""
        self._reads = tuple(map(str, reads))
        self._mutex = threading.Lock()
        self._processes: dict[Opening, _Process] = {}
        self._openings: dict[str, tuple[float, Opening]] = {}
        """A rule's name, program and settings -> when its opening was made, and the opening."""

    def opening(self, rule: CheckRule) -> Opening:
        """ServiceDown, of this host alone, if the check is not installed here, or is broken.

        The site's own settings, and their secrets, are read again after SETTINGS_SECONDS.
        """
        key, now = f"{rule.name} {rule.command} {rule.settings}", time.monotonic()
        made_at, opening = self._openings.get(key, (-math.inf, None))
        if opening is None or now >= made_at + SETTINGS_SECONDS:
            opening = _opening(rule)
            self._openings[key] = now, opening
        return opening

    def version(self, opening: Opening, attempt: Attempt) -> str:
        """The check's version now; ServiceDown as `run`."""
        progress = _Progress((), lambda _file, _finding: None)
        with child.turn(self._mutex, attempt), self._kept(opening):
            try:
                self._running(opening, attempt).check((), attempt, progress)
            except _Died as death:
                raise no_start(opening.name, str(death)) from death
        return progress.version or ""

    def run(
        self,
        opening: Opening,
        files: Sequence[CheckedFile],
        attempt: Attempt,
        on_finding: Callable[[CheckedFile, CheckFinding], None],
        on_death: Callable[[CheckedFile], None] = lambda _file: None,
        on_version: Callable[[str], None] = lambda _version: None,
    ) -> None:
        """Check the files in their order; every file has a finding in the end.

        ServiceDown if the check's service is away, or if the check does not start on this host. `on_death` is
        called first if the service has ended at a file; `on_version` before the first finding, and again if
        the check learns of another version.
        """
        rest, last, version = files, "", None
        with child.turn(self._mutex, attempt):
            for _ in range(DEATHS):
                progress = _Progress(rest, on_finding, on_death, on_version)
                try:
                    with self._kept(opening):
                        self._running(opening, attempt).check(rest, attempt, progress)
                except _Died as death:
                    version = progress.version if version is None else version
                    if version is not None:
                        rest, last = progress.after_death(death), str(death)
                    elif progress.supposed is None:
                        raise no_start(opening.name, str(death)) from death
                    # its version or a file ended it: the next process reports its version first
                else:
                    rest = ()
                if not rest:
                    return
        _Progress(rest, on_finding).give_up(f"the process of the check died {DEATHS} times, at last: {last}")

    @contextmanager
    def _kept(self, opening: Opening) -> Iterator[None]:
        """Stop the process if the block fails: its answers would be taken for those to the next request."""
        try:
            yield
        except BaseException:
            self._stop(opening)
            raise

    def close(self) -> None:
        with self._mutex:
            for opening in tuple(self._processes):
                self._stop(opening)

    def _running(self, opening: Opening, attempt: Attempt) -> "_Process":
        process = self._processes.get(opening)
        if process is None or not process.is_usable():
            self._stop(opening)
            process = self._processes[opening] = _Process(opening, self._reads)
            process.open(attempt)
        return process

    def _stop(self, opening: Opening) -> None:
        if (process := self._processes.pop(opening, None)) is not None:
            process.stop()


class _Progress:
    """What a process has said about its files."""

    def __init__(
        self,
        files: Sequence[CheckedFile],
        on_finding: Callable[[CheckedFile, CheckFinding], None],
        on_death: Callable[[CheckedFile], None] = lambda _file: None,
        on_version: Callable[[str], None] = lambda _version: None,
    ) -> None:
        self._files = files
        self._on_finding = on_finding
        self._on_death = on_death
        self._on_version = on_version
        self._current = -1
        self._found = 0
        self._said: set[CheckVerdict] = set()
        self.version: str | None = None
        self.supposed: str | None = None
        """The version from an earlier request; the process reports a new version before it takes a file."""

    def take(self, number: int) -> None:
        """The process has taken this file, so it is done with the one before."""
        self._make_sure_of_version()
        self._complete()
        if number != self._current + 1 or number >= len(self._files):
            raise _Died(Obstacle.INVALID_ANSWER, f"the check took file {number} after file {self._current}")
        self._begin(number)

    def _begin(self, number: int) -> None:
        self._current, self._found, self._said = number, 0, set()

    def learn(self, version: str) -> None:
        if self._current >= 0:
            raise _Died(Obstacle.INVALID_ANSWER, "the check changed its version after it took a file")
        self.version = one_line(str(version))[:MESSAGE_LIMIT]
        self._on_version(self.version)

    def find(self, verdict: str, code: str, message: str) -> None:
        if self._current < 0:
            raise _Died(Obstacle.INVALID_ANSWER, "the check reported a finding before it took a file")
        file = self._files[self._current]
        try:
            finding = CheckFinding(
                path=file.path,
                verdict=CheckVerdict(verdict),
                code=one_line(code)[:CODE_LIMIT],
                message=one_line(message)[:MESSAGE_LIMIT],
            )
        except (ValueError, ValidationError) as error:
            raise _Died(Obstacle.INVALID_ANSWER, f"no finding: {verdict!r:.100}") from error
        if finding.verdict in self._said:
            # each verdict that the file does not have yet has a place: the worst one must not be dropped
            room = FINDINGS_OF_A_FILE - self._found - (len(CheckVerdict) - len(self._said))
            if room <= 0:
                return
            if room == 1:
                message = one_line(f"and further findings, which are not kept: {message}")[:MESSAGE_LIMIT]
                finding = finding.model_copy(update={"message": message})
        self._said.add(finding.verdict)
        self._found += 1
        self._on_finding(file, finding)

    def service_died(self) -> None:
        if self._current >= 0:
            self._on_death(self._files[self._current])

    def after_death(self, died: _Died) -> Sequence[CheckedFile]:
        """The files that the next process checks; the one at hand is not checked."""
        if self._current < 0:  # the death is of the file that would have come first
            self._current = 0
        self.find(CheckVerdict.UNCHECKED, died.obstacle, str(died))
        return self._files[self._current + 1 :]

    def give_up(self, message: str) -> None:
        """No file is checked any more."""
        for number in range(len(self._files)):
            self._begin(number)
            self.find(CheckVerdict.UNCHECKED, Obstacle.CRASHED, message)

    def end(self) -> None:
        """The check is done; files that it did not take have no answer."""
        self._make_sure_of_version()
        self._complete()
        while self._current + 1 < len(self._files):
            self._begin(self._current + 1)
            self._complete()

    def _make_sure_of_version(self) -> None:
        if self.version is None:
            if self.supposed is None:
                raise _nonsense()
            self.learn(self.supposed)

    def _complete(self) -> None:
        if self._current >= 0 and not self._found:
            self.find(CheckVerdict.UNCHECKED, Obstacle.NO_ANSWER, "the check said nothing about this file")


class _Process(Process):
    def __init__(self, opening: Opening, reads: Sequence[str]) -> None:
        super().__init__(_SERVER, dict(opening.kind.access.environment))
        self._opening = opening
        self._reads = reads
        self._version: str | None = None
        """The version that the process reported last."""

    def open(self, attempt: Attempt) -> None:
        """ServiceDown if the check does not start, on this host or because its service is away."""
        limit = self._opening.kind.access.start_seconds
        began = time.monotonic()

        def watch(_silent: float) -> None:
            if time.monotonic() - began > limit:
                raise no_start(self._opening.name, f"it was not ready after {limit:.0f} s")

        request = self._opening.request(self._reads)
        for answer in self._answers(request, b"", attempt, watch):
            match answer:
                case [server.READY]:
                    return
                case [server.OPEN, *missing]:
                    _warn_of(self._opening.name, *missing)
                case _:
                    raise _nonsense()
        raise no_start(self._opening.name, f"its process ended with {self._end()}")

    def check(self, files: Sequence[CheckedFile], attempt: Attempt, progress: _Progress) -> None:
        """Learn the version, and check the files, if any. _Died if the process has to be replaced."""
        access = self._opening.kind.access

        def limit_at(number: int) -> float:
            """The deadline for the next answer while the check reads this file."""
            size = files[number].size if files else 0
            return time.monotonic() + access.seconds + size / BYTES_PER_SECOND

        progress.supposed = self._version
        deadline = limit_at(0) if self._version is not None else time.monotonic() + access.start_seconds

        def watch(_silent: float) -> None:
            if time.monotonic() > deadline:
                raise _Died(Obstacle.TIMED_OUT, "the check did not end in time and was stopped")

        body = json.dumps([(file.path, str(file.source), file.size, file.sha512) for file in files]).encode()
        for answer in self._answers({}, body, attempt, watch):
            match answer:
                case [server.VERSION, version]:
                    progress.learn(version)
                    self._version = progress.version
                    deadline = limit_at(0)
                case [server.FILE, int(number)]:
                    progress.take(number)
                    deadline = limit_at(number)
                case [server.FINDING, str(verdict), str(code), str(message)]:
                    progress.find(verdict, code, message)
                case [server.DIED]:
                    progress.service_died()
                case [server.DONE]:
                    progress.end()
                    return
                case _:
                    raise _nonsense()
        raise _Died(Obstacle.CRASHED, f"the process of the check ended with {self._end()}")

    def _end(self) -> str:
        """How the process ended, which has closed its output."""
        try:
            code = self.running.wait(ENDING)
        except subprocess.TimeoutExpired:
            return "its output closed"
        return f"signal {-code}" if code < 0 else f"code {code}"

    def _answers(
        self, request: Mapping[str, Any], body: bytes, attempt: Attempt, watch: Callable[[float], None]
    ) -> Iterator[list[Any]]:
        """The answers to the request, without signs of life and those that say why there is no other."""
        for line in Channel(self, request, body).lines(attempt, watch):
            try:
                answer = json.loads(line)
            except ValueError as error:
                raise _nonsense() from error
            match answer:
                case [server.FAULT, str(reason)]:
                    raise no_start(self._opening.name, reason)
                case [server.AWAY, str(reason)]:
                    name = self._opening.name
                    message = f"the service of the check {name} does not answer: {one_line(reason)}"
                    raise ServiceDown(Service.CHECK, message, instance=name)
                case [server.ALIVE]:
                    pass
                case [*_]:
                    yield answer
                case _:
                    raise _nonsense()


def _nonsense() -> _Died:
    return _Died(Obstacle.INVALID_ANSWER, "the process of the check answered nonsense")


def no_start(name: str, reason: str) -> ServiceDown:
    """An outage of this host alone: another host may have the check."""
    _log.error("check %s does not start: %s", name, reason)
    last = one_line(reason.strip().rpartition("\n")[2])
    message = (
        f"the check {name} does not start on this host: {last}; repair it (the worker's log has the "
        "details), or let another host do it"
    )
    return ServiceDown(Service.CHECK, message, instance=name, of_host=True)


@cache
def _warn_of(name: str, *missing: str) -> None:
    """Once in each worker process."""
    _log.warning(
        "check %s runs without %s: this host gives none; docs/security.md says what it may do then",
        name,
        " and without ".join(missing),
    )
