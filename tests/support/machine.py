"""A person's machine in a test of `arkline login`: no stack, and a folder for the configuration."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.cli import COMMAND, Finished
from tests.support.fleet import PROJECT


class Machine:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "arkline" / "logins.json"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ARKLINE_")},
            "PYTHONPATH": str(PROJECT),
            "XDG_CONFIG_HOME": str(folder),
        }

    def start(self, *arguments: str, **more: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*COMMAND, *arguments],
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **more: str) -> Finished:
        with self.start(*arguments, **more) as process:
            out, err = process.communicate(timeout=60)
        return Finished(process.returncode, out, err)

    def log_in(self, url: str, answer: Callable[[str], object]) -> Finished:
        """Log in at the site; `answer` is called with the code that a person enters."""
        with self.start("login", url) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            code = re.search("code ([A-Z]{4}-[A-Z]{4}) ", line)
            assert code is not None, line + process.stderr.read()
            assert f"{url}/login/device" in line
            answer(code[1])
            out, err = process.communicate(timeout=60)
        return Finished(process.returncode, out, err)
