"""The steps of the short form: start early, start all, compare, deposit, kill, restart.

A step takes the story and raises StepFailed, or EngineFailed, with what was wrong. Its first line is printed.
"""

import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

from tools.containers import claims
from tools.containers.project import Project
from tools.containers.story import StepFailed, Story, digests_below

EARLY = ("worker", "beat", "web")
"""Services that are started before the servers that they need."""

NEEDED = ("secrets", "zookeeper", "redis", *EARLY)
"""Services that deposits need; the worker has all queues."""

VICTIMS = ("worker", "beat", "web", "zookeeper", "redis", "postgresql", "control")

SIZES = (8, 40, 200)
"""Objects of a deposit during which a container is killed; the next size if the kill came too late."""


def before_healthy(story: Story) -> None:
    """The fleet is started while neither ZooKeeper nor Redis is there, and works once they are."""
    story.project.start("secrets")
    story.project.wait_healthy(["secrets"])
    story.project.start(*EARLY)
    story.project.wait_until("saying that ZooKeeper is missing", _misses_zookeeper, EARLY)
    servers = story.project.servers
    story.project.start(*servers)
    story.project.wait_healthy([*servers, *EARLY])


def _misses_zookeeper(project: Project, _: str, container: str) -> bool:
    return "zookeeper" in project.log(container).lower()


def all_healthy(story: Story) -> None:
    """Every service of the file is healthy."""
    story.project.up()
    story.await_ready()
    authorize(story)


def authorize(story: Story) -> None:
    """The depositor of the drill gets a token."""
    created = story.project.execute("web", "arkline", "token", "create", "drill", "--role", "admin")
    story.token = created.split()[0]


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
    """The storage root has all files that were reported as stored."""
    stored_at(story, story.project.mountpoint("ocfl"))


def stored_at(story: Story, root: Path) -> None:
    """StepFailed if a file that was reported as stored is not below `root`."""
    if missing := story.digests - digests_below(root):
        raise StepFailed(f"{len(missing)} of {len(story.digests)} deposited files are not below {root}")


def kills(story: Story) -> None:
    """Containers are killed during a deposit; the engine starts them again, and the deposit completes."""
    victims = [name for name in VICTIMS if name in story.project.services]
    for victim in victims[:1] if story.short else victims:
        if not any(_killed_during_deposit(story, victim, size) for size in SIZES):
            raise StepFailed(f"each deposit had ended before {victim} was killed")
    everything_stored(story)


def _killed_during_deposit(story: Story, victim: str, size: int) -> bool:
    """Whether the deposit of `size` objects, which is complete now, was not when containers were killed."""
    table = story.table(f"killed-{victim}-{size}", size)
    running = _running(story.project, victim)
    batch = story.submit(table)
    killed = _kill(story.project, victim, running)
    story.project.wait_healthy({victim, "web"})
    story.await_ready()
    story.arkline("watch", batch)
    story.deposited(table)
    return datetime.fromisoformat(json.loads(story.arkline("status", batch, "--json"))["since"]) > killed


def _running(project: Project, service: str) -> dict[str, tuple[int, int]]:
    """Process and restarts of each container of a service, read before the deposit: the engine is slow."""
    return {
        name: (project.engine.inspect("container", name)["State"]["Pid"], project.restarts(name))
        for name in project.containers(service)
    }


def _kill(project: Project, service: str, running: dict[str, tuple[int, int]]) -> datetime:
    """Kill the containers of a service, and wait until they run again; the time of the kill."""
    for process, _ in running.values():
        os.kill(process, signal.SIGKILL)
    killed = datetime.now(UTC)
    project.wait_until(
        "started again by the engine",
        lambda project, _, container: project.restarts(container) > running[container][1],
        [service],
    )
    return killed


def restart(story: Story) -> None:
    """The project, in short what deposits need, is taken down and started again with its volumes."""
    story.project.down(volumes=False)
    story.project.up(NEEDED if story.short else ())
    story.await_ready()
    everything_stored(story)
    deposit(story)


SHORT = (before_healthy, all_healthy, as_the_file_says, deposit, kills, restart)
