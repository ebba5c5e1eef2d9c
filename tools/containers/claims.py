"""What docker-compose.yml says about each container, asked of the engine and of the container itself."""

import re
from collections.abc import Iterator
from typing import Any

from tools.containers.project import Project

UNCHECKED = ("logging", "build", "image", "depends_on", "healthcheck", "profiles", "env_file")
"""Keys that the drill follows or shows in another way, or that say nothing about a running container."""


def differences(project: Project) -> list[str]:
    """One sentence for each thing that is not as the file says."""
    problems = list(_networks(project))
    for name, service in project.services.items():
        for container in project.containers(name):
            facts = project.engine.inspect("container", container)
            problems += [f"{container}: {problem}" for problem in _container(project, service, facts)]
        replicas = service.get("deploy", {}).get("replicas", 1)
        if len(project.containers(name)) != replicas:
            problems.append(f"{name}: {len(project.containers(name))} containers, {replicas} in the file")
    return problems


def _container(project: Project, service: dict[str, Any], facts: dict[str, Any]) -> Iterator[str]:
    host = facts["HostConfig"]
    if (user := service.get("user", "10001:10001")) != facts["Config"]["User"]:
        yield f"runs as {facts['Config']['User']}, not {user}"
    if facts["Config"]["User"] in ("", "0", "root", "0:0"):
        yield "runs as root"
    for key, fact in (("read_only", host.get("ReadonlyRootfs")), ("init", host.get("Init"))):
        if bool(service.get(key)) != bool(fact):
            yield f"{key} is {fact}"
    if service.get("cap_drop") == ["ALL"] and facts.get("EffectiveCaps"):
        yield f"keeps the capabilities {facts['EffectiveCaps']}"
    if "no-new-privileges" not in (host.get("SecurityOpt") or ()):
        yield "may gain privileges"
    if host["RestartPolicy"]["Name"] != service["restart"]:
        yield f"restarts {host['RestartPolicy']['Name']!r}, not {service['restart']!r}"
    yield from _mounts(project, service, facts)
    yield from _reach(project, service, facts)


def _reach(project: Project, service: dict[str, Any], facts: dict[str, Any]) -> Iterator[str]:
    """Its networks and published ports."""
    networks = {f"{project.name}_{network}" for network in service.get("networks", ())}
    if networks and set(facts["NetworkSettings"]["Networks"]) != networks:
        yield f"is in the networks {sorted(facts['NetworkSettings']['Networks'])}, not {sorted(networks)}"
    published = {
        f"{item['HostIp']}:{inner}"
        for inner, ports in (facts["HostConfig"]["PortBindings"] or {}).items()
        for item in ports
    }
    if published != {f"127.0.0.1:{port.rpartition(':')[2]}/tcp" for port in service.get("ports", ())}:
        yield f"publishes {sorted(published)}"


def _mounts(project: Project, service: dict[str, Any], facts: dict[str, Any]) -> Iterator[str]:
    stated = {}
    for mount in service.get("volumes", ()):
        source, target, *options = mount.split(":")
        stated[target] = (
            "ro" not in options,
            source if source.startswith(".") else f"{project.name}_{source}",
        )
    mounted = {mount["Destination"]: (mount["RW"], mount.get("Name")) for mount in facts["Mounts"]}
    for target, (writable, source) in stated.items():
        if target not in mounted:
            yield f"has nothing mounted at {target}"
        elif mounted[target][0] != writable:
            yield f"{target} is {'writable' if mounted[target][0] else 'read-only'}"
        elif not source.startswith(".") and mounted[target][1] != source:
            yield f"{target} is the volume {mounted[target][1]}, not {source}"
    if more := mounted.keys() - stated.keys() - _scratch(service):
        yield f"has more mounts: {', '.join(sorted(more))}"


def _scratch(service: dict[str, Any]) -> set[str]:
    return {entry.split(":")[0] for entry in service.get("tmpfs", ())}


def _networks(project: Project) -> Iterator[str]:
    used = {network for service in project.services.values() for network in service.get("networks", ())}
    for name in sorted(used):
        internal = bool((project.file["networks"][name] or {}).get("internal"))
        if project.engine.inspect("network", f"{project.name}_{name}")["internal"] != internal:
            yield f"network {name}: internal is not {internal}"


def secrets_in_sight(project: Project) -> list[str]:
    """The containers whose environment or command line shows the content of a file of their secrets."""
    secrets, showing = _secrets(project), []
    for name in project.services:
        for container in project.containers(name):
            config = project.engine.inspect("container", container)["Config"]
            shown = "\n".join([*config.get("Env", ()), *(config.get("Cmd") or ())])
            showing += [container for secret in secrets if secret in shown]
    return sorted(set(showing))


def _secrets(project: Project) -> set[str]:
    """The words of at least 20 letters and digits in the volumes of secrets."""
    folders = [project.mountpoint(name) for name in project.file["volumes"] if name.startswith("secrets-")]
    texts = [file.read_text() for folder in folders for file in folder.iterdir()]
    return {word for text in texts for word in re.findall(r"[A-Za-z0-9_-]{20,}", text)}
