"""The check `clamav`: each file goes to clamd in a stream, and clamd's answer becomes a finding."""

import io
import math
import re
import time
from collections.abc import Iterable, Iterator
from typing import ClassVar

from pydantic import BaseModel

from pipeline.checks import (
    BYTES_PER_SECOND,
    VIRUS_CHECK,
    Access,
    CheckContext,
    CheckedFile,
    CheckFinding,
    Obstacle,
    ServiceAway,
    ServiceDied,
)
from plugins.clamav.answer import findings, unchecked
from plugins.clamav.clamd import POLL, Alive, Clamd, ConnectionLost, NoAnswer, Unreachable
from plugins.clamav.samples import LARGEST, complaint
from plugins.clamav.settings import ClamavSettings

QUICK = 10.0
"""Seconds in which clamd answers what is not a file."""

SAMPLE_SECONDS = 50.0
"""For a small file, which may wait for a thread of clamd."""

FILE_SECONDS = 150.0
"""For one file, and a second more for each megabyte; clamd's own limit (MaxScanTime) is 120 by default."""

RETURN_SECONDS = 60.0
"""In which a clamd that was lost in the middle of a file may come back: it loads its signatures first."""

CURRENT_SECONDS = 1.0
"""For so long the version counts that clamd has reported: small deposits are scanned in less."""

TRUSTED_SECONDS = 3600.0
"""A clamd that has not changed its version is tried again after this: its configuration may have changed."""

UNREADABLE = "unreadable"

_RESOLVER = ("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf")

_NEVER = -math.inf

_FAILED = (Unreachable, ConnectionLost, NoAnswer)


class ClamavCheck:
    name: ClassVar[str] = "clamav"
    event: ClassVar[str] = VIRUS_CHECK
    access: ClassVar[Access] = Access(
        sockets=True,
        network=True,
        memory=1 << 28,
        seconds=FILE_SECONDS + 30,
        start_seconds=180,
        reads=_RESOLVER,
    )
    settings: ClassVar[type[BaseModel] | None] = ClamavSettings

    def __init__(self, settings: ClamavSettings) -> None:
        self._clamd = Clamd(settings.clamd)
        self._version = ""
        self._asked_at = self._tried_at = _NEVER
        self._make_sure(lambda: None)

    @property
    def version(self) -> str:
        """Of the engine and its signatures, as clamd reported it in the last CURRENT_SECONDS."""
        if time.monotonic() >= self._asked_at + CURRENT_SECONDS:
            self._make_sure(lambda: None)
        return self._version

    def run(self, files: Iterable[CheckedFile], context: CheckContext) -> Iterator[CheckFinding]:
        for file in files:
            yield from self._checked(file, context.alive)

    def _make_sure(self, keep_alive: Alive) -> None:
        """ServiceAway unless clamd answers, finds a test virus, and reports what it does not read."""
        asked_at = time.monotonic()
        version = self._ask("VERSION", keep_alive)
        if not re.match(r"ClamAV \d", version):
            raise ServiceAway(f"what answers at {self._clamd.address} is no clamd: {version[:100]!r}")
        if version != self._version or asked_at >= self._tried_at + TRUSTED_SECONDS:
            try:
                said = complaint(
                    lambda sample: self._clamd.scan(io.BytesIO(sample), SAMPLE_SECONDS, keep_alive)
                )
            except _FAILED as error:
                raise self._away(error) from error
            if said:
                raise ServiceAway(f"clamd at {self._clamd.address} {said}")
            self._version, self._tried_at = version, time.monotonic()
        self._asked_at = asked_at

    def _checked(self, file: CheckedFile, keep_alive: Alive) -> tuple[CheckFinding, ...]:
        """ServiceDied if clamd was lost and does not come back.

        A clamd that is restarted loses a file once. One that a file kills, and that is started again, loses
        it twice: others need not wait for what would go on for ever.
        """
        if file.size > LARGEST:
            why = f"the scanner reads files of at most {LARGEST:,} bytes"
            return (unchecked(file.path, Obstacle.TOO_LARGE, why),)
        deadline = time.monotonic() + FILE_SECONDS + file.size / BYTES_PER_SECOND
        try:
            try:
                return self._scanned(file, deadline, keep_alive)
            except ConnectionLost as error:
                self._await_return(error, deadline, keep_alive)
                return self._scanned(file, deadline, keep_alive)
        except NoAnswer:
            self._ask("PING", keep_alive)
            return (unchecked(file.path, Obstacle.TIMED_OUT, "the scanner did not finish in time"),)
        except ConnectionLost:
            why = "the scanner ended twice while it read the file"
            return (unchecked(file.path, Obstacle.CRASHED, why),)
        except Unreachable as error:
            raise self._away(error) from error
        except OSError as error:
            return (unchecked(file.path, UNREADABLE, f"it cannot be read: {error.strerror}"),)

    def _scanned(self, file: CheckedFile, deadline: float, keep_alive: Alive) -> tuple[CheckFinding, ...]:
        with file.source.open("rb") as stream:
            answers = self._clamd.scan(stream, deadline - time.monotonic(), keep_alive)
        return findings(file.path, answers)

    def _await_return(self, error: ConnectionLost, deadline: float, keep_alive: Alive) -> None:
        deadline = min(deadline, time.monotonic() + RETURN_SECONDS)
        while True:
            try:
                self._clamd.ask("PING", QUICK, keep_alive)
            except _FAILED:
                if time.monotonic() > deadline:
                    raise ServiceDied(str(self._away(error))) from error
                keep_alive()
                time.sleep(POLL)
            else:
                break
        self._tried_at = _NEVER
        self._make_sure(keep_alive)

    def _ask(self, command: str, keep_alive: Alive) -> str:
        try:
            return self._clamd.ask(command, QUICK, keep_alive)
        except _FAILED as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> ServiceAway:
        self._tried_at = _NEVER
        hangs = f"clamd at {self._clamd.address} does not answer: it hangs, or is overloaded"
        return ServiceAway(str(error) or hangs)
