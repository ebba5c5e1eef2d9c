"""docs/operators/production.md, executed: its commands, in order, in one shell."""

import os
import subprocess
from pathlib import Path

from tests.support.pages import commands
from tools.checkout import PROJECT
from tools.command_line import say
from tools.containers.steps import SIZES, as_the_file_says, authorize, everything_stored, kills, restart
from tools.containers.story import StepFailed, Story

PAGE = PROJECT / "docs" / "operators" / "production.md"

UP = "docker compose up --build --wait"
"""The first command. The image is built by the first step of the drill, which runs the health checks, too."""

TIMEOUT = 1200
"""Seconds for all other commands."""

ELSEWHERE = {
    "docker compose --profile monitoring ": (
        "Debian has no Grafana; the file is read, and the rules are run by promtool",
        ("test_compose", "test_monitoring"),
    ),
    "helm install ": ("needs a cluster; the drill plays the pods of the chart", ("test_helm",)),
    "kubectl ": ("needs a cluster; the drill runs the command in the pod", ("test_helm",)),
    "sudo ARKLINE_SECRETS=": ("needs the units of systemd on a host", ("test_systemd",)),
}
"""The beginning of a command that the drill cannot execute -> the reason, and modules with tests of it."""

STANDS_FOR = {
    # the first argument is `compose`
    "docker": 'shift\nexec podman-compose {project} "$@"',
    "sudo": 'exec "$@"',
}
"""Program that the page calls -> what is done for it here, as a script."""


def executed(page: Path = PAGE) -> list[str]:
    """The commands of the page that the drill executes."""
    return [command for command in commands(page) if not command.startswith(tuple(ELSEWHERE))]


def page(story: Story) -> None:
    """The commands of docs/operators/production.md lead from empty volumes to a deposit and a backup."""
    first, *others = executed()
    if first != UP:
        raise StepFailed(f"the first command is {first!r}, not {UP!r}")
    story.project.up()
    for number in range(SIZES[0]):
        folder = story.folder / "photos"
        folder.mkdir(exist_ok=True)
        (folder / f"page-{number}.tif").write_bytes(os.urandom(65536))
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-exo", "pipefail", "-c", "\n".join(others)],
        stdin=subprocess.DEVNULL,
        cwd=story.folder,
        env={**story.project.engine.environment, **story.project.variables, "PATH": _programs(story)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode:
        raise StepFailed(f"code {done.returncode} of the last command: {done.stdout[-20_000:]}")
    say("\n".join(f"  {line}" for line in done.stdout.splitlines() if line.startswith("+ ")))
    story.deposited(story.folder / "photos" / "page-0.tif")
    everything_stored(story)
    if not list(story.folder.glob("backups/*/*")):
        raise StepFailed("the backup is not in the folder of the host")


def _programs(story: Story) -> str:
    """PATH with the programs of STANDS_FOR first."""
    folder = story.folder / "bin"
    folder.mkdir()
    for name, script in STANDS_FOR.items():
        program = folder / name
        program.write_text("#!/bin/sh\n" + script.format(project=" ".join(story.project.arguments)) + "\n")
        program.chmod(0o755)
    return f"{folder}{os.pathsep}{story.project.engine.environment['PATH']}"


LONG = (page, authorize, as_the_file_says, kills, restart)
