"""The further steps of the long form: a lost ZooKeeper, and a release that is replaced."""

import json
from pathlib import Path

from tools.containers.steps import SHORT, deposit
from tools.containers.story import StepFailed, Story


def backup(story: Story) -> None:
    """The volumes of ZooKeeper are lost, and a backup brings the record back."""
    folder = story.folder / "backups"
    folder.mkdir()
    folder.chmod(0o777)  # the container writes as its own user
    _beside(story, folder, "backup", "/backups/one")
    before = _objects(story)
    story.project.down(volumes=False)
    for volume in story.project.volumes_of("zookeeper"):
        story.project.engine.run("podman", "volume", "rm", volume)
    story.project.start("secrets")
    story.project.wait_healthy(["secrets"])
    story.project.start(*story.project.servers)
    story.project.wait_healthy(story.project.servers)
    _beside(story, folder, "restore", "--yes", "/backups/one")
    story.project.up()
    story.await_ready()
    if (after := _objects(story)) != before:
        raise StepFailed(f"{len(before)} objects before the restore, {len(after)} after it")
    deposit(story)


def _beside(story: Story, folder: Path, *command: str) -> None:
    """Run a command of arkline in a container of its own, with the volumes of a worker."""
    story.project.compose(
        "run", "--rm", "--no-deps", "-T", "--volume", f"{folder}:/backups", "worker", "arkline", *command
    )


def _objects(story: Story) -> list[str]:
    return sorted(item["ark"] for item in json.loads(story.arkline("objects", "--json"))["objects"])


LONG = (*SHORT, backup)
