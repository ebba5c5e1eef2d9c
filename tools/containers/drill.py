"""A run: the images, the stories one after the other, and the result. Everything is taken down at the end.

A step fails with a sentence; the later steps of its story are then not run.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entrypoints.stack.child import free_ports
from tools.checkout import PROJECT
from tools.command_line import say
from tools.containers import chart, images, losses, page
from tools.containers.engine import CannotRun, Engine, EngineFailed, engine
from tools.containers.project import Project
from tools.containers.story import NotCovered, StepFailed, Story

NAME = "arkline-drill"
"""Of the project; its containers, networks and volumes begin with it."""

FEWER = {"worker": 1, "beat": 1}
"""Containers of a service in the short form."""

IGNORED = (
    "healthcheck: podman runs none by itself without systemd; the drill runs the file's checks",
    "depends_on: podman-compose would wait for checks that nobody runs; the drill starts in the file's order",
    "logging.options.max-file: podman keeps one file",
)

NOT_COVERED = (
    "Docker, and the real images of others: stand-ins made of Debian's packages obey the same file",
    "the profiles monitoring and clamav",
)

Step = Callable[[Story], None]


@dataclass
class Result:
    """The end of a drill; `problems` is empty if all steps held."""

    versions: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """By step; those of a further story have its name before a colon."""
    problems: list[str] = field(default_factory=list)
    not_run: str = ""
    not_covered: list[str] = field(default_factory=list)
    """Steps that this machine could not make, with the reason."""

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": not self.problems and not self.not_run,
            "problem": "\n".join(self.problems),
            "not_run": self.not_run,
            "versions": self.versions,
            "seconds": self.seconds,
            "ignored_by_the_engine": {"docker-compose.yml": IGNORED, "chart": chart.IGNORED},
            "not_covered": [*NOT_COVERED, *self.not_covered],
        }

    @contextmanager
    def timed(self, name: str, sentence: str) -> Iterator[None]:
        """Say the sentence, and keep the seconds of the block; a failed step becomes the problem."""
        say(sentence)
        began = time.monotonic()
        try:
            yield
        except NotCovered as error:
            self.not_covered.append(f"{name}: {error}")
        except (EngineFailed, StepFailed) as error:
            say(f"  FAILED {error}")
            self.problems.append(f"{name}: {error}")
        self.seconds[name] = round(time.monotonic() - began, 1)
        say(f"  {self.seconds[name]} s")


@dataclass(frozen=True)
class Plan:
    """A story that a run tells: its project is started with `profiles`, and taken down at the end."""

    steps: Sequence[Step]
    profiles: tuple[str, ...] = ()


PLANS = {
    "page": Plan(page.LONG),
    "profiles": Plan(losses.LONG, ("ensemble", "postgresql")),
    "upgrade": Plan(losses.UPGRADE),
    "chart": Plan(chart.CHART),
    "announced": Plan(losses.ANNOUNCED),
}
"""The stories of the long form; `profiles` are those of docker-compose.yml."""


def run(plans: Mapping[str, Plan], *, short: bool) -> Result:
    """Tell the stories one after the other, also those after one that finds a problem."""
    result = Result()
    try:
        with engine() as engine_here, tempfile.TemporaryDirectory(prefix="arkline-containers-") as folder:
            _run(engine_here, Path(folder), result, plans, short=short)
    except CannotRun as error:
        result.not_run = str(error)
    except EngineFailed as error:
        result.problems.append(str(error))
    return result


def _run(engine: Engine, folder: Path, result: Result, plans: Mapping[str, Plan], *, short: bool) -> None:
    variables: dict[str, str] = {}
    with result.timed(
        "images", "The image is built by the Dockerfile, on stand-ins for the images of others."
    ):
        variables, result.versions = images.prepare(engine, PROJECT)
    for name, plan in plans.items() if variables else ():
        place = folder / name
        place.mkdir()
        story = _story(engine, place, variables, plan.profiles, short=short)
        _tell(story, f"{name}: " if len(plans) > 1 else "", plan.steps, result)


def _story(
    engine: Engine, folder: Path, variables: Mapping[str, str], profiles: tuple[str, ...], *, short: bool
) -> Story:
    port, flower = free_ports(2)
    more = {"ARKLINE_WEB_PORT": str(port), "ARKLINE_FLOWER_PORT": str(flower)}
    for profile in profiles:
        more |= _environment(PROJECT / "examples" / "compose" / f"{profile}.env")
    override = None
    if short:
        override = folder / "override.yml"
        fewer = {name: {"deploy": {"replicas": count}} for name, count in FEWER.items()}
        override.write_text(json.dumps({"services": fewer}))  # JSON is YAML
    project = Project(engine, NAME, PROJECT, {**variables, **more}, profiles, override)
    return Story(project, folder, f"http://127.0.0.1:{port}", short=short)


def _environment(file: Path) -> dict[str, str]:
    """The variables of an env file, as `docker compose --env-file` reads them."""
    lines = (line.partition("=") for line in file.read_text().splitlines() if line and line[0] != "#")
    return {name: value.strip('"') for name, _, value in lines}


def _tell(story: Story, name: str, steps: Sequence[Step], result: Result) -> None:
    """Run the steps until one fails, and take everything down."""
    earlier = len(result.problems)
    try:
        for step in steps:
            with result.timed(name + step.__name__, (step.__doc__ or step.__name__).splitlines()[0]):
                step(story)
            if len(result.problems) > earlier:
                return
    finally:
        with result.timed(f"{name}down", "Everything is taken down."):
            story.project.down(volumes=True)
    kinds = ("container", "network", "volume")
    if left := [item for kind in kinds for item in story.project.engine.names(kind, NAME)]:
        result.problems.append(f"{name}down: left behind: {', '.join(left)}")
