"""What the steps of a drill share: the project that runs, a depositor on this host, what was deposited."""

import hashlib
import json
import os
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import ArklineError
from tools.containers.engine import until
from tools.containers.project import Project

OBJECTS = 8
"""Of one deposit."""

READY_TIMEOUT = 300
"""Seconds until the pages answer after ZooKeeper was away."""


class StepFailed(ArklineError):
    """A step of the drill found something wrong; the message says what."""


class NotCovered(ArklineError):
    """A step cannot be made on this machine; the message says why."""


@dataclass
class Story:
    """A project under test. Steps change `token` and `digests`; an upgrade `project` and `client`, too."""

    project: Project
    folder: Path
    url: str
    """The address of the pages and the API on this host."""

    short: bool = False
    token: str = ""
    client: str = ""
    """The image whose `arkline` the depositor runs; empty: that of this environment."""

    digests: set[str] = field(default_factory=set)
    """SHA-512 of every file that was deposited and reported as stored."""

    def arkline(self, *arguments: str) -> str:
        """The answer to a depositor's command on this host, over the API; StepFailed."""
        environment = {
            **self.project.engine.environment,
            "ARKLINE_URL": self.url,
            "ARKLINE_TOKEN": self.token,
        }
        environment.pop("ARKLINE_STACK", None)
        program = [str(Path(sys.executable).parent / "arkline")]
        if self.client:
            given = (
                "--env",
                "ARKLINE_URL",
                "--env",
                "ARKLINE_TOKEN",
                "--volume",
                f"{self.folder}:{self.folder}:ro",
            )
            program = ["podman", "run", "--rm", "--network", "host", *given, self.client, "arkline"]
        done = subprocess.run(
            [*program, *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode:
            said = done.stderr.strip()[-800:]
            raise StepFailed(f"arkline {' '.join(arguments[:3])} ended with code {done.returncode}: {said}")
        return done.stdout

    def submit(self, table: Path) -> str:
        """The id of the batch of a table."""
        bid: str = json.loads(self.arkline("submit", str(table), "--profile", "demo", "--json"))["bid"]
        return bid

    def table(self, name: str, objects: int = OBJECTS) -> Path:
        """A table of that many rows, and its files."""
        folder = self.folder / name
        folder.mkdir()
        rows = ["file,title"]
        for number in range(objects):
            (folder / f"page-{number}.txt").write_bytes(os.urandom(4096) * 16)
            rows.append(f"page-{number}.txt,Page {number} of {name}")
        table = folder / f"{name}.csv"
        table.write_text("\n".join(rows) + "\n")
        return table

    def deposited(self, table: Path) -> None:
        """Remember the files of a table as stored."""
        self.digests |= digests_below(table.parent)

    def await_ready(self) -> None:
        """Wait until the web process has its session with ZooKeeper; StepFailed."""
        if not until(self._is_ready, READY_TIMEOUT):
            raise StepFailed(f"{self.url} was not ready within {READY_TIMEOUT} s")

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health/ready", timeout=5):  # noqa: S310 - http
                return True
        except OSError:
            return False


def digests_below(folder: Path) -> set[str]:
    """SHA-512 of every deposited file there; read here, not by a reader of ours."""
    return {hashlib.sha512(file.read_bytes()).hexdigest() for file in folder.rglob("page-*")}
