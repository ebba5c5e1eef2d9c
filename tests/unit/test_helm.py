"""The Helm chart: linted and rendered by the real Helm, and judged by the schema of Kubernetes."""

import hashlib
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema_rs import Draft202012Validator

from entrypoints.cli.command_table import ENTRIES, load
from entrypoints.generate_secrets import RIGHTS
from pipeline.settings import Settings
from pipeline.states import Queue
from plugins.clamav.settings import ClamavSettings
from tests.support.fleet import PROJECT
from tests.support.images import WITHOUT_DIGEST
from tests.support.requirements import unavailable

try:
    import helm_python
except (ImportError, OSError) as error:  # no wheel for this machine
    unavailable(f"{error}: pip install helm-python-sdk")

CHART = str(PROJECT / "deploy" / "helm" / "arkline")
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "every option": {
        "image": {"repository": "registry.example.org/arkline", "digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "pull"}],
        "settings": {
            "ARKLINE_MAIL_FROM": "a@example.org",
            "ARKLINE_IN_FLIGHT": 128,
            "ARKLINE_SMTP_TLS": True,
        },
        "profiles": {"demo.yaml": "owner: ark:/99999/fk4\n"},
        "data": {"storageClass": "fast", "accessModes": ["ReadWriteOnce"]},
        "workers": {
            "all": {"scale": {"min": 1, "max": 8}},
            "bytes": {
                "queues": ["download", "process"],
                "processes": 8,
                "replicas": 3,
                "scale": {"min": 2, "max": 20},
            },
        },
        "drainSeconds": 900,
        "autoscaling": {"enabled": True, "prometheus": "http://prometheus.monitoring:9090"},
        "web": {
            "replicas": 2,
            "service": {"type": "NodePort"},
            "ingress": {
                "enabled": True,
                "className": "nginx",
                "host": "x.example.org",
                "tlsSecret": "tls",
                "annotations": {"a": "b"},
            },
        },
        "flower": {"enabled": True, "urlPrefix": "/flower/"},
        "metrics": {
            "enabled": True,
            "from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        },
        "backup": {"enabled": True, "existingClaim": "own-backups", "keep": 7},
        "zookeeper": {"replicas": 3, "storageClass": "fast"},
        "clamav": {"enabled": True, "storageClass": "fast"},
        "networkPolicy": {"webFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "podAnnotations": {"a": "b"},
    },
    "servers of the site": {
        "existingSecret": "own",
        "existingProfiles": "own",
        "data": {"existingClaim": "own"},
        "zookeeper": {"enabled": False, "hosts": "zk-1:2181,zk-2:2181"},
        "redis": {"enabled": False},
        "flower": {"enabled": True, "existingSecret": "own-flower"},
        "networkPolicy": {"enabled": False},
    },
    "no pages": {"web": {"enabled": False}},
}


def _closed(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """An object with these properties, and no other ones."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


TEXT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
SCALED_OBJECT = _closed(
    {
        "apiVersion": {"const": "keda.sh/v1alpha1"},
        "kind": {"const": "ScaledObject"},
        "metadata": {"type": "object"},
        "spec": _closed(
            {
                "scaleTargetRef": _closed({"name": TEXT}, apiVersion=TEXT, kind=TEXT),
                "triggers": {
                    "type": "array",
                    "minItems": 1,
                    "items": _closed(
                        {
                            "type": {"const": "prometheus"},
                            "metadata": _closed(
                                {"serverAddress": TEXT, "query": TEXT, "threshold": TEXT},
                                ignoreNullValues=TEXT,
                            ),
                        }
                    ),
                },
            },
            minReplicaCount=NUMBER,
            maxReplicaCount=NUMBER,
            pollingInterval=NUMBER,
            fallback=_closed({"failureThreshold": NUMBER, "replicas": NUMBER}),
            advanced=_closed(
                {
                    "horizontalPodAutoscalerConfig": _closed(
                        {"behavior": _closed({"scaleDown": _closed({"stabilizationWindowSeconds": NUMBER})})}
                    )
                }
            ),
        ),
    }
)
"""What the chart uses of KEDA's kind (keda.sh/v1alpha1, KEDA 2); the values in `metadata` are texts."""


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    with helm_python.Chart.load(CHART) as chart:
        texts = chart.render(values, name="site", namespace="ingest")
    documents = (
        document
        for text in sorted(texts)
        for document in yaml.safe_load_all(texts[text])
        if text.endswith(".yaml")
    )
    return [document for document in documents if document]


@pytest.fixture(scope="module", params=OPTIONS)
def manifests(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return rendered(OPTIONS[request.param])


def pods(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in manifests:
        if manifest["kind"] in {"Deployment", "StatefulSet"}:
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]
        elif manifest["kind"] == "CronJob":
            job = manifest["spec"]["jobTemplate"]["spec"]
            yield manifest["metadata"]["name"], job["template"]["spec"]


def test_helm_has_nothing_to_say_about_the_chart() -> None:
    findings = helm_python.lint(CHART)

    assert not findings["errors"]
    assert {message["error"] for message in findings["messages"]} <= {"icon is recommended"}


def test_kubernetes_accepts_every_manifest(manifests: list[dict[str, Any]]) -> None:
    assert manifests
    for manifest in manifests:
        if manifest["kind"] == "ScaledObject":
            Draft202012Validator(SCALED_OBJECT).validate(manifest)
        elif (
            manifest["kind"] != "ServiceMonitor"
        ):  # a kind of the Prometheus operator, which no schema here knows
            kubernetes_validate.validate(manifest, "1.31", strict=True)


def test_no_name_is_used_twice(manifests: list[dict[str, Any]]) -> None:
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests]

    assert len(names) == len(set(names))


def test_every_image_but_ours_is_named_by_version_and_digest(manifests: list[dict[str, Any]]) -> None:
    images = {
        container["image"]
        for _, pod in pods(manifests)
        for container in (*pod["containers"], *pod.get("initContainers", ()))
    }

    ours = {image for image in images if re.fullmatch(r"(.+/)?arkline[:@].+", image)}
    assert ours
    assert all(
        re.search(r":\d[\d.]+[\w-]*@sha256:[0-9a-f]{64}$", image) for image in images - ours - WITHOUT_DIGEST
    )


def test_no_pod_has_more_rights_than_it_needs(manifests: list[dict[str, Any]]) -> None:
    """As the pod security standard `restricted` asks, without a token of the cluster and the variables of
    Services, of which ARKLINE_WEB_PORT would be a setting."""
    for name, pod in pods(manifests):
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False), name
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            read_only = container["securityContext"]["readOnlyRootFilesystem"]
            assert read_only or container["name"] == "zookeeper"
            assert {"livenessProbe", "readinessProbe"} & set(container) or "restartPolicy" in pod


def test_every_secret_and_claim_that_a_pod_mounts_exists(manifests: list[dict[str, Any]]) -> None:
    there = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    for _, pod in pods(manifests):
        for volume in pod["volumes"]:
            needed = {
                ("Secret", volume.get("secret", {}).get("secretName")),
                ("ConfigMap", volume.get("configMap", {}).get("name")),
                ("PersistentVolumeClaim", volume.get("persistentVolumeClaim", {}).get("claimName")),
            }
            unmade = ("own", "site-arkline-certificates-")  # the latter by the job
            assert {one for one in needed if one[1] and not one[1].startswith(unmade)} <= there


def test_a_secret_is_in_no_argument_and_no_config_map(manifests: list[dict[str, Any]]) -> None:
    secrets = {
        value
        for manifest in manifests
        if manifest["kind"] == "Secret"
        for key, value in manifest["stringData"].items()
        if key in {"arkline_zk_password", "redis-password", "password"}
    }
    others = yaml.safe_dump([manifest for manifest in manifests if manifest["kind"] != "Secret"])

    assert all(len(secret) >= 32 and secret not in others for secret in secrets)


def test_flower_gets_neither_zookeeper_nor_the_keys_of_the_fleet() -> None:
    flower = dict(pods(rendered(OPTIONS["every option"])))["site-arkline-flower"]

    assert [volume.get("secret", {}).get("secretName") for volume in flower["volumes"]] == [
        None,
        "site-arkline-flower",
        "site-arkline-certificates-trust",
    ]
    assert "envFrom" not in flower["containers"][0]


def test_every_program_is_a_command_of_arkline_and_every_variable_a_setting(
    manifests: list[dict[str, Any]],
) -> None:
    for _, pod in pods(manifests):
        argv: list[str] = pod["containers"][0].get("args", ["none"])
        assert argv[0] != "arkline" or argv[1] in {entry.name for entry in ENTRIES}
    (settings,) = (manifest for manifest in manifests if manifest["metadata"]["name"].endswith("-settings"))
    names = {name.removeprefix("ARKLINE_").lower() for name in settings["data"]}
    assert names - {"secrets"} <= Settings.model_fields.keys() | ClamavSettings.model_fields.keys()


def test_the_service_monitor_selects_the_port_of_the_exporter() -> None:
    manifests = rendered(OPTIONS["every option"])
    (monitor,) = (one for one in manifests if one["kind"] == "ServiceMonitor")
    (service,) = (
        one
        for one in manifests
        if one["kind"] == "Service"
        and monitor["spec"]["selector"]["matchLabels"].items() <= one["metadata"]["labels"].items()
    )

    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_a_backup_goes_to_a_volume_of_its_own_and_removes_old_ones_only_after_a_new_one() -> None:
    pod = dict(pods(rendered(OPTIONS["every option"])))["site-arkline-backup"]
    (container,) = pod["containers"]

    claims = {one["name"]: one.get("persistentVolumeClaim", {}).get("claimName") for one in pod["volumes"]}
    places = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert (claims["backups"], places["backups"]) == ("own-backups", "/backups")
    shell, flags, script = container["args"]
    assert (shell, flags) == ("sh", "-euc")
    assert script.index("arkline backup") < script.index("rm -r")


def test_the_script_of_the_backup_keeps_the_newest(tmp_path: Path) -> None:
    pod = dict(pods(rendered(OPTIONS["every option"])))["site-arkline-backup"]
    script = pod["containers"][0]["args"][2].replace("/backups", str(tmp_path))
    program = tmp_path / "bin" / "arkline"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nmkdir "$2"\n')
    program.chmod(0o755)
    old = [f"2026-11-{day:02}T03-17-00Z" for day in range(1, 11)]
    for name in (*old, "2026-11-11T03-17-00Z.partial", "2026-notes"):
        (tmp_path / name).mkdir()

    environment = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    subprocess.run(["sh", "-euc", script], env=environment, check=True)

    kept = sorted(path.name for path in tmp_path.iterdir() if path.name.endswith("Z"))
    assert len(kept) == 7
    assert kept[:6] == old[4:]
    assert (tmp_path / "2026-notes").exists()


def test_every_queue_has_a_worker_by_default() -> None:
    workers = [pod for name, pod in pods(rendered({})) if "-worker-" in name]
    commands = [" ".join(pod["containers"][0]["args"]) for pod in workers]

    assert [command for command in commands if "--queues" not in command]
    assert [command for command in commands if command.endswith(f"--queues {Queue.CONTROL}")]
    assert [command for command in commands if command.endswith(f"--queues {Queue.SPLIT}")]
    for pod in workers:
        seconds = pod["terminationGracePeriodSeconds"]
        (drained,) = re.findall(
            r"--wait (\d+)s", pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][2]
        )
        assert seconds > int(drained) + Settings().stop_grace + 31


def test_workers_that_keda_scales_have_no_number_of_their_own_and_the_others_have() -> None:
    manifests = rendered(OPTIONS["every option"])
    scaled = {
        one["spec"]["scaleTargetRef"]["name"]: one for one in manifests if one["kind"] == "ScaledObject"
    }
    workers = {
        name: one
        for one in manifests
        if one["kind"] == "Deployment" and "-worker-" in (name := one["metadata"]["name"])
    }

    assert scaled.keys() == {"site-arkline-worker-all", "site-arkline-worker-bytes"}
    assert {name for name, one in workers.items() if "replicas" not in one["spec"]} == scaled.keys()
    bytes_only = scaled["site-arkline-worker-bytes"]["spec"]
    assert (bytes_only["minReplicaCount"], bytes_only["maxReplicaCount"]) == (2, 20)
    assert bytes_only["fallback"]["replicas"] == 3
    (trigger,) = bytes_only["triggers"]
    assert trigger["metadata"]["threshold"] == "8"
    for metric in ("arkline_queue_waiting", "arkline_queue_working"):
        assert f'{metric}{{queue=~"download|process",namespace="ingest"}}' in trigger["metadata"]["query"]
    off = rendered({"workers": {"all": {"scale": {"min": 1, "max": 8}}}})
    assert all(one["spec"]["replicas"] for one in off if one["kind"] == "Deployment")
    assert not [one for one in off if one["kind"] == "ScaledObject"]


def test_a_worker_is_drained_before_it_is_stopped_by_a_command_of_arkline() -> None:
    for name, pod in pods(rendered(OPTIONS["every option"])):
        if "-worker-" not in name:
            continue
        (container,) = pod["containers"]
        own = container["args"][container["args"].index("--name") + 1]
        shell, flag, script = container["lifecycle"]["preStop"]["exec"]["command"]
        assert (shell, flag) == ("sh", "-c")
        program, *arguments = shlex.split(script.removeprefix("exec ").replace("$(hostname)", "pod-1"))
        assert program == "arkline"
        parsed = load(arguments[0]).make_context("drain", arguments[1:]).params
        assert (parsed["worker"], parsed["until_stop"], parsed["wait"]) == (f"{own}@pod-1", True, 900.0)


def test_three_zookeepers_know_each_other_and_the_fleet_knows_them() -> None:
    manifests = rendered(OPTIONS["every option"])
    (server,) = dict(pods(manifests))["site-arkline-zookeeper"]["containers"]
    known = next(variable["value"] for variable in server["env"] if variable["name"] == "ZOO_SERVERS")
    (settings,) = (manifest for manifest in manifests if manifest["metadata"]["name"].endswith("-settings"))

    hosts = [f"site-arkline-zookeeper-{number}.site-arkline-zookeeper" for number in range(3)]
    assert known.split() == [f"server.{n}={host}:2888:3888;127.0.0.1:2181" for n, host in enumerate(hosts, 1)]
    assert settings["data"]["ARKLINE_ZK_HOSTS"] == ",".join(f"{host}:2281" for host in hosts)


def test_workers_find_the_virus_scanner_at_the_port_of_its_service() -> None:
    manifests = rendered(OPTIONS["every option"])
    (settings,) = (one for one in manifests if one["metadata"]["name"].endswith("-settings"))
    (service,) = (
        one
        for one in manifests
        if one["kind"] == "Service" and one["metadata"]["name"] == "site-arkline-clamav"
    )
    clamd, freshclam = dict(pods(manifests))["site-arkline-clamav"]["containers"]

    assert settings["data"]["ARKLINE_CLAMD"] == "tcp:site-arkline-clamav:3310"
    assert [port["port"] for port in service["spec"]["ports"]] == [3310]
    assert (clamd["command"], freshclam["command"][0]) == (["clamd"], "freshclam")
    (mounted,) = (
        one["data"]
        for one in manifests
        if one["metadata"]["name"] == "site-arkline-clamav" and one["kind"] == "ConfigMap"
    )
    for name, text in mounted.items():
        assert text == (Path(CHART) / "files" / "clamav" / name).read_text()
    assert "ARKLINE_CLAMD" not in yaml.safe_dump_all(rendered({}))


def test_the_users_of_redis_have_the_rights_and_passwords_of_the_fleet() -> None:
    secrets = {
        manifest["metadata"]["name"]: manifest["stringData"]
        for manifest in rendered(OPTIONS["every option"])
        if manifest["kind"] == "Secret"
    }
    users = secrets["site-arkline-redis"]["users.acl"].splitlines()

    assert users[0] == "user default off"
    renewal = hashlib.sha256(secrets["site-arkline-redis"]["certificates"].encode()).hexdigest()
    assert users.pop() == f"user certificates on #{renewal} -@all +config|set"
    for line, user, owner in zip(users[1:], ("arkline", "flower"), ("fleet", "flower"), strict=True):
        own = secrets[f"site-arkline-{owner}"]
        match = re.match(rf"rediss://{user}:(\w+)@site-arkline-redis:6379/0\?", own["arkline_broker_url"])
        assert match
        assert line == f"user {user} on #{hashlib.sha256(match[1].encode()).hexdigest()} {RIGHTS}"


def test_servers_of_the_chart_have_the_tls_of_the_compose_file() -> None:
    every = dict(pods(rendered(OPTIONS["every option"])))
    compose = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())["services"]
    (zookeeper,) = every["site-arkline-zookeeper"]["containers"]
    (redis,) = every["site-arkline-redis"]["containers"]
    environment = {variable["name"]: variable["value"] for variable in zookeeper["env"]}

    assert (
        environment["ZOO_CFG_EXTRA"].split() == compose["zookeeper"]["environment"]["ZOO_CFG_EXTRA"].split()
    )
    assert zookeeper["args"][0].endswith(" ".join(compose["zookeeper"]["command"]))
    assert redis["args"] == compose["redis"]["command"]
    assert redis["readinessProbe"]["exec"]["command"][-1] == compose["redis"]["healthcheck"]["test"][-1]


def test_only_the_renewal_has_a_token_of_the_cluster_and_only_for_its_own_secrets() -> None:
    manifests = rendered(OPTIONS["every option"])
    (role,) = (one for one in manifests if one["kind"] == "Role")
    named = [f"site-arkline-certificates-{place}" for place in ("authority", "trust", "zookeeper", "redis")]

    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in role["rules"]] == [
        (named, ["get", "update"]),
        (None, ["create"]),
    ]
    projected = {name for name, pod in pods(manifests) if any("projected" in one for one in pod["volumes"])}
    assert projected == {"site-arkline-certificates"}
    mounted = {
        name: {one["secret"]["secretName"].removeprefix("site-arkline-certificates-")}
        for name, pod in pods(manifests)
        for one in pod["volumes"]
        if one.get("secret", {}).get("secretName", "").startswith("site-arkline-certificates-")
    }
    assert mounted.pop("site-arkline-zookeeper") == {"zookeeper"}
    assert mounted.pop("site-arkline-redis") == {"redis"}
    assert set(map(frozenset, mounted.values())) == {frozenset({"trust"})}


def test_the_first_certificates_are_made_before_the_pods_by_the_command_of_the_renewal() -> None:
    manifests = rendered(OPTIONS["every option"])
    (job,) = (one for one in manifests if one["kind"] == "Job")
    renewal = dict(pods(manifests))["site-arkline-certificates"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert job["spec"]["template"]["spec"] == renewal
    hosts = ",".join(f"site-arkline-zookeeper-{number}.site-arkline-zookeeper" for number in range(3))
    assert renewal["containers"][0]["args"][-4:] == [
        "--server", f"zookeeper={hosts}", "--server", "redis=site-arkline-redis",
    ]  # fmt: skip


def test_a_site_may_go_without_tls_and_a_site_with_its_own_servers_has_no_authority() -> None:
    plain, own = rendered({"tls": {"enabled": False}}), rendered(OPTIONS["servers of the site"])

    for manifests in (plain, own):
        assert not {"Role", "Job", "ServiceAccount"} & {one["kind"] for one in manifests}
        assert "/run/trust" not in yaml.safe_dump_all(manifests)
    (settings,) = (one for one in plain if one["metadata"]["name"].endswith("-settings"))
    assert settings["data"]["ARKLINE_ZK_HOSTS"] == "site-arkline-zookeeper-0.site-arkline-zookeeper:2181"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"workers": {"a": {"queues": ["downloads"], "processes": 1, "replicas": 1}}},
            "must be one of",
        ),
        ({"zookeeper": {"replicas": 2}}, "replicas"),
        ({"zookeeper": {"enabled": False}}, "hosts"),
        ({"settings": {"zk_hosts": "a"}}, "zk_hosts|settings"),
        ({"redis": {"enabled": False}}, "arkline_broker_url names your Redis"),
        ({"backup": {"enabled": True}}, "backup.existingClaim"),
        ({"wokers": {}}, "wokers"),
        (
            {"autoscaling": {"enabled": True}, "workers": {"all": {"scale": {"min": 1, "max": 2}}}},
            "autoscaling.prometheus",
        ),
        ({"workers": {"all": {"scale": {"min": 0, "max": 2}}}}, "min"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(helm_python.HelmError, match=message):
        rendered(values)


def test_the_chart_has_the_version_of_the_project() -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((PROJECT / "deploy" / "helm" / "arkline" / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (version, version)
