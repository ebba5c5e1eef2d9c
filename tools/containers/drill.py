"""The story of a run: start, deposit, kill, restart, back up, restore, upgrade, take down.

A step fails with a sentence; the later steps of the story are then not run, and everything is taken down.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entrypoints.stack.child import free_ports
from pipeline.errors import ArklineError
from tools.checkout import PROJECT
from tools.command_line import say
from tools.containers import claims, images
from tools.containers.engine import CannotRun, Engine, EngineFailed, engine
from tools.containers.project import Project

OBJECTS = 8
"""Of one deposit."""

BEFORE = "v0.2.1"
"""The release from which the drill upgrades, by its tag."""

IGNORED = (
    "healthcheck: podman runs none by itself without systemd; the drill runs the file's checks",
    "depends_on: podman-compose would wait for checks that nobody runs; the drill starts in the file's order",
    "logging.options.max-file: podman keeps one file",
    "stop_grace_period and restart are kept; restart after a kill was seen",
)

NOT_COVERED = (
    "the real images of others: stand-ins made of Debian's packages obey the same file",
    "the profiles monitoring and clamav",
)


class StepFailed(ArklineError):
    """A step of the drill found something wrong; the message says what."""


@dataclass
class Story:
    """What the steps share."""

    project: Project
    folder: Path
    port: int
    token: str = ""
    digests: set[str] = field(default_factory=set)
    """SHA-512 of every file that was deposited and reported as stored."""

    def arkline(self, *arguments: str) -> str:
        """A command of a depositor on this host, over the API."""
        environment = {
            **os.environ,
            "ARKLINE_URL": f"http://127.0.0.1:{self.port}",
            "ARKLINE_TOKEN": self.token,
        }
        done = subprocess.run(
            [Path(sys.executable).parent / "arkline", *arguments],
            env={name: value for name, value in environment.items() if name != "ARKLINE_STACK"},
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        if done.returncode:
            said = done.stderr.strip()[-800:]
            raise StepFailed(f"arkline {' '.join(arguments[:3])} ended with code {done.returncode}: {said}")
        return done.stdout

    def table(self, name: str) -> Path:
        """A table of OBJECTS rows and its files."""
        folder = self.folder / name
        folder.mkdir()
        rows = ["file,title"]
        for number in range(OBJECTS):
            (folder / f"page-{number}.txt").write_bytes(os.urandom(4096) * 16)
            rows.append(f"page-{number}.txt,Page {number} of {name}")
        table = folder / f"{name}.csv"
        table.write_text("\n".join(rows) + "\n")
        return table

    def deposited(self, table: Path) -> None:
        """Remember the files of a table as stored."""
        self.digests |= {
            hashlib.sha512(file.read_bytes()).hexdigest() for file in table.parent.glob("page-*")
        }


def before_healthy(story: Story) -> None:
    """The fleet is started while neither ZooKeeper nor Redis is there, and works once they are."""
    story.project.start("secrets")
    story.project.wait_healthy(["secrets"])
    early = ("worker", "beat", "web")
    story.project.start(*early)
    story.project.wait_until("said that something is missing", _missed_something, early)
    story.project.start(
        "zookeeper", "redis", *(["postgresql"] if "postgresql" in story.project.services else [])
    )
    story.project.wait_healthy(["zookeeper", "redis", "worker", "beat", "web"])


def _missed_something(project: Project, _: str, container: str) -> bool:
    """Whether a container has logged something, or has ended and been started again."""
    return bool(project.log(container)) or project.engine.inspect("container", container)["RestartCount"] > 0


def all_healthy(story: Story) -> None:
    """Every service of the file is healthy."""
    story.project.up()
    story.token = story.project.execute(
        "web", "arkline", "token", "create", "drill", "--role", "admin"
    ).split()[0]


def as_the_file_says(story: Story) -> None:
    """Users, roots, capabilities, networks, mounts and ports are as the file says; no secret is in sight."""
    problems = claims.differences(story.project)
    problems += [
        f"{name}: a secret is in its environment or command"
        for name in claims.secrets_in_sight(story.project)
    ]
    if problems:
        raise StepFailed("\n".join(problems))


def deposit(story: Story) -> None:
    """A table of objects is stored, and every byte is in the storage root."""
    table = story.table(f"deposit-{len(story.digests)}")
    story.arkline("submit", str(table), "--profile", "demo", "--wait")
    story.deposited(table)
    everything_stored(story)


def everything_stored(story: Story) -> None:
    """The storage root has all files that were reported as stored; read here, not by our own reader."""
    root = Path(story.project.engine.inspect("volume", f"{story.project.name}_ocfl")["Mountpoint"])
    digests = {hashlib.sha512(file.read_bytes()).hexdigest() for file in root.rglob("page-*")}
    if missing := story.digests - digests:
        raise StepFailed(
            f"{len(missing)} of {len(story.digests)} deposited files are not in the storage root"
        )


def kills(story: Story) -> None:
    """Containers are killed during a deposit; the engine starts them again, and the deposit completes."""
    for victim in ("worker", "zookeeper", "redis", "control", "web"):
        table = story.table(f"killed-{victim}")
        batch = json.loads(story.arkline("submit", str(table), "--profile", "demo", "--json"))["bid"]
        for name in story.project.containers(victim):
            os.kill(story.project.engine.inspect("container", name)["State"]["Pid"], signal.SIGKILL)
        story.project.wait_healthy([victim, "web"])
        story.arkline("watch", batch)
        story.deposited(table)
    everything_stored(story)


def restart(story: Story) -> None:
    """The whole project is taken down and started again with its volumes."""
    story.project.down(volumes=False)
    story.project.up()
    everything_stored(story)
    deposit(story)


def backup(story: Story) -> None:
    """ZooKeeper's volumes are lost, and a backup brings the record back."""
    folder = story.folder / "backups"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)  # the container writes as its own user
    _beside(story, folder, "backup", "/backups/one")
    before = _objects(story)
    story.project.down(volumes=False)
    for volume in ("zookeeper-data", "zookeeper-log"):
        story.project.engine.run("podman", "volume", "rm", f"{story.project.name}_{volume}")
    story.project.start("secrets")
    story.project.start("zookeeper", "redis")
    story.project.wait_healthy(["zookeeper", "redis"])
    _beside(story, folder, "restore", "/backups/one")
    story.project.up()
    if (after := _objects(story)) != before:
        raise StepFailed(f"{len(before)} objects before the restore, {len(after)} after it")
    deposit(story)


def _beside(story: Story, folder: Path, *command: str) -> None:
    story.project.compose(
        "run", "--rm", "--no-deps", "-T", "--volume", f"{folder}:/backups", "worker", "arkline", *command
    )


def _objects(story: Story) -> list[str]:
    listed = json.loads(story.arkline("objects", "--json"))
    return sorted(item["ark"] for item in (listed["items"] if isinstance(listed, dict) else listed))


SHORT = (before_healthy, all_healthy, as_the_file_says, deposit, kills, restart)
LONG = (*SHORT, backup)


@dataclass
class Result:
    """The end of a drill; `problem` is empty if all steps held."""

    versions: Mapping[str, str]
    steps: dict[str, float] = field(default_factory=dict)
    """Seconds by step."""
    problem: str = ""
    not_run: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": not self.problem and not self.not_run,
            "problem": self.problem,
            "not_run": self.not_run,
            "versions": dict(self.versions),
            "seconds": self.steps,
            "ignored_by_the_engine": IGNORED,
            "not_covered": NOT_COVERED,
        }


def run(*, short: bool, profiles: tuple[str, ...] = ()) -> Result:
    try:
        with engine() as engine_here:
            return _run(engine_here, SHORT if short else LONG, profiles)
    except CannotRun as error:
        return Result({}, not_run=str(error))


def _run(engine: Engine, steps: tuple[Callable[[Story], None], ...], profiles: tuple[str, ...]) -> Result:
    stand_ins, versions = images.stand_ins(engine)
    result = Result({"podman": engine.run("podman", "--version").split()[-1], **versions})
    ours = "localhost/arkline-drill:now"
    with tempfile.TemporaryDirectory(prefix="arkline-containers-") as folder:
        images.build(engine, PROJECT, ours, stand_ins)
        port, flower = free_ports(2)
        variables = {
            **stand_ins,
            "ARKLINE_IMAGE": ours,
            "ARKLINE_WEB_PORT": str(port),
            "ARKLINE_FLOWER_PORT": str(flower),
            "ARKLINE_ZOOKEEPER_HEAP": "256m",
        }
        story = Story(Project(engine, "arkline-drill", PROJECT, variables, profiles), Path(folder), port)
        try:
            for step in steps:
                began = time.monotonic()
                say((step.__doc__ or step.__name__).splitlines()[0])
                step(story)
                result.steps[step.__name__] = round(time.monotonic() - began, 1)
        except (EngineFailed, StepFailed) as error:
            result.problem = f"{step.__name__}: {error}"
        finally:
            story.project.down(volumes=True)
        left = [
            name
            for kind in ("container", "network", "volume")
            for name in engine.names(kind, story.project.name)
        ]
        if left and not result.problem:
            result.problem = f"left behind: {', '.join(left)}"
    return result
