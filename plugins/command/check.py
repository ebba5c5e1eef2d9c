"""Runs a site's own program on each file: exit code 0 is fine, 1 is a finding, any other is not checked.

The program may print findings, one JSON object in a line with `verdict`, `code` and `message`. Of its other
lines the last one says why the exit code is neither 0 nor 1.
"""

import json
import subprocess
from collections.abc import Iterable, Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pipeline.checks import (
    CODE_LIMIT,
    MESSAGE_LIMIT,
    VALIDATION,
    Access,
    CheckContext,
    CheckedFile,
    CheckFinding,
    CheckVerdict,
    Obstacle,
)

FILE = "{file}"
"""Stands for the path of the file in the arguments; without it, the path comes last."""

OUTPUT_LIMIT = 1 << 20
"""Bytes that are printed about one file; a program that prints more is killed."""

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


class CommandSettings(BaseModel):
    """The program, and how its version is asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    command: tuple[str, ...] = Field(min_length=1)
    version: tuple[str, ...] = ()
    """A command that prints the version; without one, a digest of the program is its version."""

    @field_validator("command", "version")
    @classmethod
    def _is_absolute(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not Path(value[0]).is_absolute():
            raise ValueError(f"write the whole path of {value[0]}, beginning with /")
        return value


class CommandCheck:
    name: ClassVar[str] = "command"
    event: ClassVar[str] = VALIDATION
    access: ClassVar[Access] = Access(programs=True, memory=8 << 30)
    settings: ClassVar[type[BaseModel] | None] = CommandSettings

    def __init__(self, settings: CommandSettings) -> None:
        self._settings = settings

    @cached_property
    def version(self) -> str:
        if self._settings.version:
            output, _ = _run(self._settings.version)
            return output.decode(errors="replace").strip().partition("\n")[0][:CODE_LIMIT]
        return f"sha256:{sha256(Path(self._settings.command[0]).read_bytes()).hexdigest()}"

    def run(self, files: Iterable[CheckedFile], _context: CheckContext) -> Iterator[CheckFinding]:
        for file in files:
            yield from _findings(file, *_run(_arguments(self._settings.command, file)))


def _arguments(command: tuple[str, ...], file: CheckedFile) -> tuple[str, ...]:
    source = str(file.source)
    if any(FILE in argument for argument in command):
        return tuple(argument.replace(FILE, source) for argument in command)
    return (*command, source)


def _run(arguments: tuple[str, ...]) -> tuple[bytes, int]:
    """What it prints, at most OUTPUT_LIMIT and a byte, and the exit code."""
    with subprocess.Popen(  # noqa: S603 - the program that the site's profile names
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=ENVIRONMENT,
    ) as program:
        assert program.stdout is not None, "it is started with a pipe"
        output = program.stdout.read(OUTPUT_LIMIT + 1)
        if len(output) > OUTPUT_LIMIT:
            program.kill()
    return output, program.returncode


def _findings(file: CheckedFile, output: bytes, code: int) -> Iterator[CheckFinding]:
    if len(output) > OUTPUT_LIMIT:
        message = f"the program wrote more than {OUTPUT_LIMIT} bytes and was stopped"
        yield CheckFinding(
            path=file.path, verdict=CheckVerdict.UNCHECKED, code=Obstacle.INVALID_ANSWER, message=message
        )
        return
    verdict = {0: CheckVerdict.FINE, 1: CheckVerdict.FOUND}.get(code, CheckVerdict.UNCHECKED)
    lines = [line for line in output.splitlines() if line.strip()]
    said = [finding for line in lines if (finding := _said(file, verdict, line))]
    yield from said
    if any(finding.verdict is verdict for finding in said):
        return
    if verdict is not CheckVerdict.UNCHECKED:
        yield CheckFinding(path=file.path, verdict=verdict)
        return
    last = lines[-1].decode(errors="replace")[:MESSAGE_LIMIT] if lines and not said else ""
    exited = f"exit-{code}" if code > 0 else f"signal-{-code}"
    yield CheckFinding(path=file.path, verdict=verdict, code=exited, message=last)


def _said(file: CheckedFile, verdict: CheckVerdict, line: bytes) -> CheckFinding | None:
    """The finding of a line of JSON; its verdict is that of the exit code if it has none."""
    try:
        values: Any = json.loads(line)
        if not isinstance(values, dict):
            return None
        return CheckFinding(
            path=file.path,
            verdict=CheckVerdict(values.get("verdict", verdict)),
            code=str(values.get("code", ""))[:CODE_LIMIT],
            message=str(values.get("message", ""))[:MESSAGE_LIMIT],
        )
    except (ValueError, ValidationError, RecursionError):
        return None
