"""Running the command line in a test: as a process of its own, as people and scripts do."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.settings import Settings
from tests.fleet import PROJECT, environment

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


def start(settings: Settings, *arguments: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env=variables(settings, **more),
        cwd=_folder(settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(settings: Settings, *arguments: str, **more: str) -> Finished:
    """Run `arkline ARGUMENTS` with these settings; `more`: further environment variables."""
    with start(settings, *arguments, **more) as process:
        out, err = process.communicate(timeout=60)
    return Finished(process.returncode, out, err)


def _folder(settings: Settings) -> Path:
    settings.home.mkdir(parents=True, exist_ok=True)
    return settings.home
