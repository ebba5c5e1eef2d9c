"""A compose file as a running project: started in the file's order, with the file's health checks.

podman runs no health check by itself without systemd, and podman-compose waits for them for ever: so the
order and the checks are carried out here.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from tools.command_line import say
from tools.containers.engine import Engine, EngineFailed, until

HEALTHY_TIMEOUT = 600
"""Seconds for all containers of one step to become healthy; 150 at a load average of 30 on two cores."""

DOWN_TRIES = 3
"""Calls of `podman-compose down` after which a container that is left is reported."""


class Unhealthy(EngineFailed):
    """Containers did not become healthy in time; the message has the last answer of each."""


@dataclass(frozen=True)
class Project:
    """The services of a compose file that the chosen profiles start."""

    engine: Engine
    name: str
    checkout: Path
    variables: Mapping[str, str]
    profiles: tuple[str, ...] = ()
    override: Path | None = None
    """A second file, as docker-compose.override.yml is for an operator."""

    @cached_property
    def files(self) -> tuple[Path, ...]:
        return (self.checkout / "docker-compose.yml", *((self.override,) if self.override else ()))

    @cached_property
    def file(self) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for file in self.files:
            read = merged(read, yaml.safe_load(file.read_text()))
        return read

    @cached_property
    def services(self) -> dict[str, dict[str, Any]]:
        return {
            name: service
            for name, service in self.file["services"].items()
            if not service.get("profiles") or set(service["profiles"]) & set(self.profiles)
        }

    @property
    def arguments(self) -> list[str]:
        """Those of podman-compose that name the project."""
        chosen = [part for profile in self.profiles for part in ("--profile", profile)]
        files = [part for file in self.files for part in ("--file", str(file))]
        return ["--project-name", self.name, *files, *chosen]

    def compose(self, *arguments: str) -> str:
        return self.engine.run("podman-compose", *self.arguments, *arguments, more=self.variables)

    @property
    def servers(self) -> list[str]:
        """The services of others, such as ZooKeeper."""
        return [name for name, service in self.services.items() if "build" not in service]

    def start(self, *services: str) -> None:
        """Start these services, and nothing that they depend on."""
        self.compose("up", "--detach", "--no-build", "--no-deps", *services)

    def up(self, only: Collection[str] = ()) -> None:
        """Start all services, or `only` these, those first that others depend on; Unhealthy."""
        for step in self.steps(only or self.services):
            began = time.monotonic()
            self.start(*step)
            self.wait_healthy(step)
            say(f"  {', '.join(step)}: healthy after {time.monotonic() - began:.0f} s")

    def steps(self, chosen: Collection[str]) -> list[list[str]]:
        """The services in the order of `depends_on`: those of one step need only those of earlier steps."""
        services = {name: service for name, service in self.services.items() if name in chosen}
        steps, started = [], set[str]()
        while len(started) < len(services):
            ready = [
                name
                for name, service in services.items()
                if name not in started and (set(service.get("depends_on", {})) & set(services)) <= started
            ]
            steps.append(ready)
            started.update(ready)
        return steps

    def containers(self, service: str) -> list[str]:
        begins = f"{self.name}_{service}_"
        names = self.engine.names("container", self.name)
        return sorted(name for name in names if name.removeprefix(begins).isdigit())

    def container(self, service: str) -> str:
        return self.containers(service)[0]

    def wait_healthy(self, services: Iterable[str] | None = None) -> None:
        """Run the health checks until all pass; a service without one has to end with code 0."""
        self.wait_until("healthy", is_well, services or self.services)

    def wait_until(
        self, condition: str, holds: Callable[["Project", str, str], bool], services: Iterable[str]
    ) -> None:
        """Ask `holds(project, service, container)` until it is true for all; Unhealthy after a while."""
        waiting = {container: service for service in services for container in self.containers(service)}

        def hold() -> bool:
            for container, service in tuple(waiting.items()):
                if holds(self, service, container):
                    del waiting[container]
            return not waiting

        if not until(hold, HEALTHY_TIMEOUT):
            states = (f"{name} is not {condition}; {self.state(name)}: {self.log(name)}" for name in waiting)
            raise Unhealthy("\n".join(states))

    def state(self, container: str) -> str:
        state = self.engine.inspect("container", container)["State"]
        return f"{state['Status']} with code {state['ExitCode']}"

    def restarts(self, container: str) -> int:
        """How often the engine has started the container again."""
        count: int = self.engine.inspect("container", container)["RestartCount"]
        return count

    def mountpoint(self, volume: str) -> Path:
        """The folder of a volume on this host."""
        return Path(self.engine.inspect("volume", f"{self.name}_{volume}")["Mountpoint"])

    def volumes_of(self, prefix: str) -> list[str]:
        """The volumes whose name in the file begins so."""
        begins = f"{self.name}_{prefix}"
        return [name for name in self.engine.names("volume", self.name) if name.startswith(begins)]

    def execute(self, service: str, *command: str) -> str:
        return self.engine.run("podman", "exec", self.container(service), *command)

    def log(self, container: str, *chosen: str) -> str:
        """Lines of its standard output and standard error; the last ones, if options choose no others."""
        command = 'podman logs "$@" 2>&1'
        options = chosen or ("--tail", "15")
        return self.engine.run("sh", "-c", command, "sh", *options, container, check=False).strip()

    def down(self, *, volumes: bool) -> None:
        """Remove containers and networks: after the file's grace periods, or at once and with `volumes`.

        Repeated while a container is left: one that podman starts again at that moment is not removed, and
        podman-compose ends with success.
        """
        for _ in range(DOWN_TRIES):
            self.compose("down", *(("--volumes", "--timeout", "0") if volumes else ()))
            if not self.engine.names("container", self.name):
                return


def is_well(project: Project, service: str, container: str) -> bool:
    """Whether the file's health check passes, or a service without one has ended with code 0."""
    if "healthcheck" in project.services[service]:
        if project.services[service].get("command", [])[:2] == ["arkline", "worker"]:
            # its check takes seconds of CPU: not before the worker says that it is ready
            started = project.engine.inspect("container", container)["State"]["StartedAt"]
            if " ready." not in project.log(container, "--since", started):
                return False
        return project.engine.succeeds("podman", "healthcheck", "run", container)
    return project.state(container) == "exited with code 0"


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The mappings of two compose files as one: values of the second replace those of the first."""
    both = {
        key: merged(base[key], value)
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        else value
        for key, value in more.items()
    }
    return {**base, **both}
