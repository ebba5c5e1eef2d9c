"""Checks of a site as they may be: honest, slow, broken and hostile ones."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from pipeline.checks import (
    Access,
    CheckContext,
    CheckedFile,
    CheckFinding,
    CheckVerdict,
    ServiceAway,
    ServiceDied,
)


class WordSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    word: str = "virus"
    away: str = ""
    """The service is away while this file is missing."""


class WordCheck:
    """Finds a word; what a file says besides makes the check misbehave."""

    name: ClassVar[str] = "word"
    event: ClassVar[str] = "virus check"
    access: ClassVar[Access] = Access(seconds=2.0, memory=1 << 29)
    settings: ClassVar[type[BaseModel] | None] = WordSettings

    def __init__(self, settings: WordSettings) -> None:
        self._settings = settings

    @property
    def version(self) -> str:
        return "1.0"

    def run(self, files: Iterable[CheckedFile], context: CheckContext) -> Iterator[Any]:
        for file in files:
            text = file.source.read_text(encoding="utf-8")
            yield from self._findings(file, text, context)

    def _findings(self, file: CheckedFile, text: str, context: CheckContext) -> Iterator[Any]:
        do = text.partition(":")[0]
        if do in MISDEEDS:
            yield from MISDEEDS[do](file, context)
        elif self._settings.word in text:
            yield CheckFinding(
                path=file.path, verdict=CheckVerdict.FOUND, code="Test.Word", message="it has the word"
            )
        else:
            yield CheckFinding(path=file.path, verdict=CheckVerdict.FINE)


def _hang(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    while True:
        context.alive()
        yield from ()
        time.sleep(0.05)


def _stall(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    """Hang without a sign of life."""
    yield from ()
    time.sleep(3600)


def _crash(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    yield from ()
    os.kill(os.getpid(), signal.SIGSEGV)


def _fail(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    yield from ()
    raise RuntimeError("the check has a bug")


def _eat(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    yield len(b"x" * (1 << 30))


def _lie(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    yield {"verdict": "clean"}


def _say_nothing(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    yield from ()


def _print(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    os.write(1, b'["done"]\n')
    yield CheckFinding(path=file.path, verdict=CheckVerdict.FINE)


def _leave(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    yield from ()
    raise ServiceAway("the service has gone")


def _kill(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    yield from ()
    raise ServiceDied("the service ended in the middle of the file")


def _list(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    """A finding for each of many parts of the file, the last of which is bad, or at which the check fails."""
    for number in range(100):
        yield CheckFinding(path=file.path, verdict=CheckVerdict.FINE, code=f"part-{number}")
    if "fail" in file.source.read_text(encoding="utf-8"):
        yield from _fail(file, context)
    yield CheckFinding(path=file.path, verdict=CheckVerdict.FOUND, code="Test.Part")


def tried(file: CheckedFile, attempts: dict[str, Any]) -> Iterator[Any]:
    """What a hostile check gets for each of its attempts."""
    for name, attempt in attempts.items():
        try:
            attempt()
        except (OSError, RuntimeError) as error:
            yield CheckFinding(
                path=file.path, verdict=CheckVerdict.FINE, code=name, message=type(error).__name__
            )
        else:
            yield CheckFinding(path=file.path, verdict=CheckVerdict.FOUND, code=name, message="it can")


def _attack(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    source = file.source
    yield from tried(
        file,
        {
            "truncate": lambda: os.truncate(source, 0),
            "change-file": lambda: source.write_text("changed"),
            "remove-file": source.unlink,
            "make-file": lambda: (source.parent / "new").write_text("new"),
            "read-secrets": lambda: Path("/etc/passwd").read_text(encoding="utf-8"),
            "socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
            "program": lambda: subprocess.run(("/bin/true",), check=True),
            "fork": _fork,
            "signal": lambda: os.kill(os.getppid(), 0),
            "trace": lambda: _system_call(101),
            "attribute": lambda: source.chmod(0o777),
        },
    )


def _exit(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    yield from ()
    sys.exit(3)


def _forge(file: CheckedFile, context: CheckContext) -> Iterator[Any]:
    """Write to the worker what no check says."""
    yield from ()
    for descriptor in range(3, 20):
        with suppress(OSError):
            os.write(descriptor, b'["finding"]\n')


def _fork() -> None:
    """And wait: the signal of a child's end stops a process for ever that asked to be traced before it."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _system_call(number: int) -> None:
    if ctypes.CDLL(None, use_errno=True).syscall(number, 0, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "refused")


MISDEEDS = {
    "hang": _hang,
    "stall": _stall,
    "crash": _crash,
    "fail": _fail,
    "eat": _eat,
    "lie": _lie,
    "say nothing": _say_nothing,
    "print": _print,
    "leave": _leave,
    "list": _list,
    "kill": _kill,
    "attack": _attack,
    "exit": _exit,
    "forge": _forge,
}


class Learns(WordCheck):
    """A check that learns the version of its service where a run begins."""

    _version = "not known"

    @property
    def version(self) -> str:
        return self._version

    def run(self, files: Iterable[CheckedFile], context: CheckContext) -> Iterator[Any]:
        self._version = "signatures 2"
        yield from super().run(files, context)


class DiesOfItsVersion(WordCheck):
    """A check whose process ends when it is asked for its version in a second run."""

    _is_done = False

    @property
    def version(self) -> str:
        if self._is_done:
            os.kill(os.getpid(), signal.SIGSEGV)
        return "1.0"

    def run(self, files: Iterable[CheckedFile], context: CheckContext) -> Iterator[Any]:
        yield from super().run(files, context)
        self._is_done = True


class Renewed(WordCheck):
    """A check whose new versions say more about the same files."""

    renewed: ClassVar[bool] = True

    @property
    def version(self) -> str:
        return "v2"


class NoStart(WordCheck):
    """A check that its host cannot open."""

    def __init__(self, settings: WordSettings) -> None:
        raise ImportError("libscanner.so: cannot open shared object file")


class Patient(WordCheck):
    """With the usual time for a file."""

    access: ClassVar[Access] = Access(memory=1 << 29)


class Dialling(WordCheck):
    """May use sockets of its host and no network; tries to reach the port of the host that a file names."""

    access: ClassVar[Access] = Access(sockets=True)

    def _findings(self, file: CheckedFile, text: str, context: CheckContext) -> Iterator[Any]:
        yield from tried(file, {"network": lambda: socket.create_connection(("127.0.0.1", int(text)), 5)})


class NeverBegins(WordCheck):
    """A check with a mistake that every deposit meets, before the first file."""

    def run(self, files: Iterable[CheckedFile], context: CheckContext) -> Iterator[Any]:
        raise NameError("name 'scaner' is not defined")


class WrongSettings(WordSettings):
    @model_validator(mode="after")
    def _is_known(self) -> "WrongSettings":
        raise NameError("name 'words' is not defined")


class BrokenSettings(WordCheck):
    """A check whose settings have a mistake."""

    settings: ClassVar[type[BaseModel] | None] = WrongSettings


class NoCheck:
    """A class without what a check declares."""


class Away(WordCheck):
    """A check whose service is away until a file appears."""

    access: ClassVar[Access] = Access(reads=("/tmp",))

    def __init__(self, settings: WordSettings) -> None:
        super().__init__(settings)
        if settings.away and not Path(settings.away).exists():
            raise ServiceAway("nobody listens")


def install(folder: Path, **checks: type) -> None:
    """Install the checks as a wheel of a site does: `folder` becomes a place of installed packages."""
    info = folder / "site_checks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: site-checks\nVersion: 1.0\n")
    points = [f"{name} = {kind.__module__}:{kind.__qualname__}" for name, kind in checks.items()]
    (info / "entry_points.txt").write_text("\n".join(("[arkline.checks]", *points)))
