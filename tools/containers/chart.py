"""The chart's pods on this engine: rendered by Helm, taken out of their controllers, played by podman.

podman 4.3 knows neither Services nor controllers: one pod of each Deployment and StatefulSet is played, which
others know by the names of the Services that select it. podman shares volumes by name, and writes a Secret
into a volume without decoding it: `_pod` gives each pod volumes of its own, and ConfigMaps for Secrets.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.containers.engine import Engine, clear, until
from tools.containers.steps import stored_at
from tools.containers.story import NotCovered, StepFailed, Story

RELEASE = "drill"

NETWORK = "arkline-drill-chart"

READY_TIMEOUT = 600
"""Seconds until all probes of the pods hold."""

IGNORED = (
    "TLS: a Job makes the certificates over the API of a cluster; the pods are played without",
    "replicas, Services beyond their names, and the namespace",
    "fsGroup: podman gives a new volume to the user of the first container",
    "Secrets as volumes: podman does not decode them; the drill mounts ConfigMaps with the same files",
    "probes: podman runs none by itself without systemd; the drill runs the chart's",
    "NetworkPolicies, PodDisruptionBudgets, CronJobs and resource requests",
)

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """One pod of a controller, with the documents that only it needs."""

    name: str
    spec: Manifest
    documents: tuple[Manifest, ...]
    maps: tuple[Manifest, ...]
    """Its ConfigMaps."""

    names: tuple[str, ...]
    """Those by which other pods reach it."""


def rendered(project: Path, images: Mapping[str, str]) -> list[Manifest]:
    """The documents of the chart, with the images of the drill and the profile of the examples."""
    profile = project / "examples" / "profiles" / "demo.yaml"
    values = {
        "image": dict(zip(("repository", "tag"), images["ARKLINE_IMAGE"].rsplit(":", 1), strict=True)),
        "zookeeper": {"image": images["ARKLINE_ZOOKEEPER_IMAGE"], "heap": "256m"},
        "redis": {"image": images["ARKLINE_REDIS_IMAGE"]},
        "profiles": {profile.name: profile.read_text()},
        "tls": {"enabled": False},  # a Job makes the certificates over the cluster's API, which is not here
    }
    try:
        import helm_python
    except (ImportError, OSError) as error:  # no wheel for this machine
        raise NotCovered(f"{error}: pip install helm-python-sdk") from error
    with helm_python.Chart.load(str(project / "deploy" / "helm" / "arkline")) as chart:
        texts = chart.render(values, name=RELEASE, namespace="default")
    documents = (
        one for name in sorted(texts) if name.endswith(".yaml") for one in yaml.safe_load_all(texts[name])
    )
    return [document for document in documents if document]


def pods(manifests: list[Manifest]) -> Iterator[Pod]:
    """The first pod of each Deployment and StatefulSet."""
    services = [one for one in manifests if one["kind"] == "Service"]
    secrets = {one["metadata"]["name"]: one for one in manifests if one["kind"] == "Secret"}
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            yield _pod(manifest, services, secrets)


def _pod(manifest: Manifest, services: Iterable[Manifest], secrets: Mapping[str, Manifest]) -> Pod:
    ordered = manifest["kind"] == "StatefulSet"
    name = manifest["metadata"]["name"] + ("-0" if ordered else "")
    template = manifest["spec"]["template"]
    spec, labels = template["spec"], template["metadata"]["labels"]
    maps, claims = [], []
    for volume in spec["volumes"]:
        own = f"{name}-{volume['name']}"
        for mount in (one for container in spec["containers"] for one in container["volumeMounts"]):
            if mount["name"] == volume["name"]:
                mount["name"] = own
        volume["name"] = own
        if "secret" in volume:
            maps.append(_as_map(own, volume, secrets))
    for claim in manifest["spec"].get("volumeClaimTemplates", ()):
        stated = claim["metadata"]["name"]
        own = f"{stated}-{name}"
        claims.append({**_document("PersistentVolumeClaim", own), "spec": claim["spec"]})
        spec["volumes"].append({"name": stated, "persistentVolumeClaim": {"claimName": own}})
    names = [one["metadata"]["name"] for one in services if one["spec"]["selector"].items() <= labels.items()]
    if ordered:
        names.append(f"{name}.{manifest['spec']['serviceName']}")
    pod = {**_document("Pod", name), "spec": spec}
    pod["metadata"]["labels"] = labels
    return Pod(name, spec, (*claims, pod), tuple(maps), tuple(names))


def _document(kind: str, name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


def _as_map(name: str, volume: Manifest, secrets: Mapping[str, Manifest]) -> Manifest:
    """A ConfigMap with what the volume takes of its Secret; the volume names it instead."""
    stated = volume.pop("secret")
    texts = secrets[stated["secretName"]]["stringData"]
    chosen = {one["key"] for one in stated["items"]} if "items" in stated else texts.keys()
    volume["configMap"] = {"name": name}
    return {
        **_document("ConfigMap", name),
        "data": {key: text for key, text in texts.items() if key in chosen},
    }


def run(story: Story) -> None:
    """The pods of the chart become ready; a table of objects is deposited and stored in their volume."""
    engine, folder = story.project.engine, story.folder
    manifests = rendered(story.project.checkout, story.project.variables)
    shared = [one for one in manifests if one["kind"] == "ConfigMap"]
    claims = [one for one in manifests if one["kind"] == "PersistentVolumeClaim"]
    played = list(pods(manifests))
    try:
        engine.run("podman", "network", "create", NETWORK)
        engine.run("podman", "kube", "play", _write(folder, "claims", claims))
        for pod in played:
            aliases = ",".join(f"alias={name}" for name in pod.names)
            network = f"{NETWORK}:{aliases}" if aliases else NETWORK
            maps = [_write(folder, one["metadata"]["name"], [one]) for one in (*shared, *pod.maps)]
            given = [part for file in maps for part in ("--configmap", file)]
            file = _write(folder, pod.name, pod.documents)
            engine.run("podman", "kube", "play", "--network", network, *given, file)
        _await(engine, played)
        _deposit(story)
    finally:
        clear(engine)


def _write(folder: Path, name: str, documents: Iterable[Manifest]) -> str:
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


def _await(engine: Engine, played: list[Pod]) -> None:
    waiting = {
        f"{pod.name}-{container['name']}": container for pod in played for container in pod.spec["containers"]
    }

    def hold() -> bool:
        for name, container in tuple(waiting.items()):
            if all(_holds(engine, name, container, container[kind]) for kind in _PROBES if kind in container):
                del waiting[name]
        return not waiting

    if not until(hold, READY_TIMEOUT):
        logs = (
            f"{name}: {engine.run('podman', 'logs', '--tail', '15', name, check=False)}" for name in waiting
        )
        raise StepFailed("not ready: " + "\n".join(logs))


_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def _holds(engine: Engine, name: str, container: Manifest, probe: Manifest) -> bool:
    if "exec" in probe:
        return engine.succeeds("podman", "exec", name, *probe["exec"]["command"])
    asked = probe["httpGet"]
    port = next(one["containerPort"] for one in container["ports"] if one["name"] == asked["port"])
    question = (
        f"import urllib.request as web; web.urlopen('http://127.0.0.1:{port}{asked['path']}', timeout=5)"
    )
    return engine.succeeds("podman", "exec", name, "python", "-c", question)


def _deposit(story: Story) -> None:
    engine = story.project.engine
    pod = f"{RELEASE}-arkline-web"
    infra = json.loads(engine.run("podman", "pod", "inspect", pod))["InfraContainerID"]
    address = engine.inspect("container", infra)["NetworkSettings"]["Networks"][NETWORK]["IPAddress"]
    story.url = f"http://{address}:8080"
    story.await_ready()
    container = f"{pod}-web"
    created = engine.run(
        "podman", "exec", container, "arkline", "token", "create", "drill", "--role", "admin"
    )
    story.token = created.split()[0]
    table = story.table("chart")
    story.arkline("submit", str(table), "--profile", "demo", "--wait")
    story.deposited(table)
    stored_at(story, Path(engine.inspect("volume", f"{RELEASE}-arkline-data")["Mountpoint"]) / "ocfl")


CHART = (run,)
