"""Running the command line in a test: as a separate process, as people and scripts do."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from typer.testing import CliRunner, Result

from entrypoints.cli.main import app
from pipeline.settings import Settings
from tests.support.command_forks import forks
from tests.support.fleet import PROJECT, environment

COMMAND_SECONDS = 120.0

READ_LATE = ("ARKLINE_", "COLUMNS", "XDG_CONFIG_HOME")
"""How the variables begin that nothing reads before the command runs."""

COMMAND = (sys.executable, "-c", "from entrypoints.cli.main import main; main()")


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def variables(settings: Settings, **more: str) -> dict[str, str]:
    return {**os.environ, **environment(settings), "PYTHONPATH": str(PROJECT), **more}


def arkline(*arguments: str, code: int = 0) -> Result:
    """Run the command in this process, with the settings of its environment; it has to end with `code`."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result


@contextmanager
def start(settings: Settings, *arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """The command, running; it ends with the block at the latest."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        env=variables(settings, **more),
        cwd=_folder(settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell's background jobs, and so their children, ignore Ctrl-C by default
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(settings: Settings, *arguments: str, **more: str) -> Finished:
    """Run `arkline ARGUMENTS` with these settings; `more`: further environment variables.

    The command is a process of its own, with the libraries loaded already. A variable that the interpreter or
    a library may read at its start needs a new interpreter.
    """
    if all(name.startswith(READ_LATE) for name in more):
        environment = variables(settings, **more)
        return Finished(*forks().run(arguments, environment, _folder(settings), COMMAND_SECONDS))
    with start(settings, *arguments, **more) as process:
        out, err = process.communicate(timeout=COMMAND_SECONDS)
    return Finished(process.returncode, out, err)


def run_all(
    settings: Settings, commands: Sequence[Sequence[str]], *more: str, **environment: str
) -> list[Finished]:
    """Run many commands in this process, each with `more` at its end, one after another.

    What they print does not depend on a process of their own, which would take most of their time.
    """
    given = variables(settings, **environment)
    with _other_threads_log_nothing():
        done = [CliRunner().invoke(app, [*command, *more], env=given) for command in commands]
    return [Finished(result.exit_code, result.stdout, result.stderr) for result in done]


@contextmanager
def _other_threads_log_nothing() -> Iterator[None]:
    """The output of this process is the command's: a server's line would be in it, or meet its closed end."""
    configured = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**configured)


def _folder(settings: Settings) -> Path:
    settings.home.mkdir(parents=True, exist_ok=True)
    return settings.home
