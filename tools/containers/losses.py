"""The further steps of the long form: a lost ZooKeeper, and a release that is replaced."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import yaml

from tests.upgrade import releases
from tests.upgrade.releases import Release
from tools.checkout import PROJECT
from tools.containers import images
from tools.containers.encryption import encrypted
from tools.containers.project import Project
from tools.containers.steps import SHORT, all_healthy, as_the_file_says, deposit, everything_stored
from tools.containers.story import NotCovered, StepFailed, Story

BEFORE = "localhost/arkline-drill:before"
"""The image of the earlier release."""


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


def from_before(story: Story) -> None:
    """The release before, in clear text, is stopped with a deposit in flight; this one continues with TLS."""
    _upgrade(story, releases.BEFORE)


def from_announced(story: Story) -> None:
    """0.2.1 is stopped with a deposit in flight, and this release continues with its volumes."""
    _upgrade(story, releases.ANNOUNCED)


def _upgrade(story: Story, release: Release) -> None:
    present = story.project
    story.project = _earlier(story, release)
    story.client = BEFORE
    all_healthy(story)
    deposit(story)
    table = story.table("in-flight")
    batch = story.submit(table)
    story.project.down(volumes=False)
    story.project, story.client = present, ""
    present.up()
    story.await_ready()
    as_the_file_says(story)
    story.arkline("watch", batch)
    story.deposited(table)
    everything_stored(story)
    deposit(story)


def _earlier(story: Story, release: Release) -> Project:
    """The earlier release under the name of the project: its image, built by its Dockerfile, and its file."""
    checkout = story.folder / "earlier"
    checkout.mkdir()
    archive = subprocess.run(
        ["git", "archive", release.commit], cwd=PROJECT, capture_output=True, check=False
    )
    if archive.returncode:
        raise NotCovered(f"this checkout has no commit {release.commit}: git fetch --unshallow")
    subprocess.run(["tar", "--extract"], cwd=checkout, input=archive.stdout, check=True)
    variables = story.project.variables
    images.build(story.project.engine, checkout, BEFORE, variables["ARKLINE_BASE_IMAGE"])
    path = checkout / "docker-compose.yml"
    file = yaml.safe_load(path.read_text())
    names = {
        "arkline": BEFORE,
        "zookeeper": variables["ARKLINE_ZOOKEEPER_IMAGE"],
        "valkey/valkey": variables["ARKLINE_REDIS_IMAGE"],
        "postgres": variables["ARKLINE_POSTGRESQL_IMAGE"],
    }
    for service in file["services"].values():
        service["image"] = names.get(service["image"].partition(":")[0], service["image"])
    for name in ("web", "flower"):  # its file has no variables for them
        inner = file["services"][name]["ports"][0].rpartition(":")[2]
        file["services"][name]["ports"] = [f"127.0.0.1:{variables[f'ARKLINE_{name.upper()}_PORT']}:{inner}"]
    path.write_text(yaml.safe_dump(file))
    return replace(story.project, checkout=checkout)


LONG = (*SHORT, encrypted, backup)
UPGRADE = (from_before,)
ANNOUNCED = (from_announced,)
