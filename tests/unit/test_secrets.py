"""Which process has which secret: docs/operators/trust.md says it, and every way to run a fleet does it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from entrypoints.generate_secrets import VOLUMES, generate
from tests.support.all_settings import FIELDS
from tests.support.fleet import PROJECT
from tests.support.requirements import unavailable

DOCUMENTED = re.compile(r"^\| (?:worker of `(\w+)` alone|(\w+)) \| ((?:`\w+` ?)+)\|$", re.MULTILINE)
MORE_THAN_PASSWORDS = {"broker_url", "inventory_url"}
"""Settings that may contain a password."""


def documented() -> dict[str, set[str]]:
    """Process -> its secrets; a worker of one queue has the queue's name."""
    text = (PROJECT / "docs" / "operators" / "trust.md").read_text()
    return {queue or name: set(re.findall(r"\w+", row)) for queue, name, row in DOCUMENTED.findall(text)}


TABLE = documented()
UNITS = PROJECT / "deploy" / "systemd"
COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())


def test_the_table_has_every_secret_setting() -> None:
    secret = {name for name, field in FIELDS.items() if field.annotation is SecretStr}

    assert set.union(*TABLE.values()) == secret | MORE_THAN_PASSWORDS
    assert set(TABLE) == {"worker", "control", "split", "beat", "web", "exporter", "flower"}


@pytest.mark.parametrize("name", TABLE)
def test_a_service_of_the_compose_file_has_no_other_secret(name: str, tmp_path: Path) -> None:
    for volume in VOLUMES:
        (tmp_path / volume).mkdir()
    generate(tmp_path)
    service = COMPOSE["services"][name]
    (mounted,) = (mount.split(":")[0] for mount in service["volumes"] if mount.startswith("secrets-"))
    generated = {path.name for path in (tmp_path / mounted.removeprefix("secrets-")).iterdir()}

    files = [row["path"] for row in service["env_file"]]
    settings = {secret.removeprefix("arkline_") for secret in generated if secret.startswith("arkline_")}
    assert settings == TABLE[name] & {"zk_password", "broker_url", "callback_secret"}
    assert ("pgpass" in generated) == ("inventory_url" in TABLE[name])
    assert ("ARKLINE_INVENTORY_URL" in service["environment"]) == ("inventory_url" in TABLE[name])
    own = [f"arkline-{name}.env"] if TABLE[name] - settings else []
    assert files == ([] if name == "flower" else ["arkline.env", *own])


def test_a_pod_has_no_other_secret() -> None:
    try:
        import helm_python
    except (ImportError, OSError) as error:  # no wheel for this machine
        unavailable(f"{error}: pip install helm-python-sdk")
    values = {
        "flower": {"enabled": True},
        "workers": {"bytes": {"queues": ["download", "process"], "processes": 1, "replicas": 1}},
    }
    with helm_python.Chart.load(str(PROJECT / "deploy" / "helm" / "arkline")) as chart:
        texts = chart.render(values, name="site", namespace="ingest")
    documents = [one for text in texts.values() for one in yaml.safe_load_all(text) if isinstance(one, dict)]
    mounted = {
        one["metadata"]["name"].removeprefix("site-arkline-").removeprefix("worker-"): {
            item["key"].removeprefix("arkline_")
            for volume in one["spec"]["template"]["spec"]["volumes"]
            for item in volume.get("secret", {}).get("items", ())
        }
        for one in documents
        if one.get("kind") == "Deployment"
    }

    assert mounted.pop("flower") - {"flowerconfig.py"} == TABLE["flower"]
    assert mounted.pop("bytes") == TABLE["split"] | {"ezid_password"}
    assert mounted.pop("all") == TABLE["worker"]
    assert mounted.pop("redis") == set()
    assert mounted == {name: TABLE[name] for name in ("control", "split", "beat", "web")}


@pytest.mark.parametrize("name", TABLE)
def test_a_unit_of_systemd_has_no_other_secret(name: str) -> None:
    queue = name if name in ("control", "split") else ""
    unit = UNITS / f"arkline-{'worker@' if queue or name == 'worker' else name}.service"
    text = unit.read_text()
    if queue:
        text += (UNITS / f"arkline-worker@{queue}.service.d" / "10-secrets.conf").read_text()
    named = re.findall(r"^LoadCredential=(?:arkline_(\w+)(?::\w+)?)?$", text, re.MULTILINE)
    last_reset = len(named) - named[::-1].index("") if "" in named else 0

    assert set(named[last_reset:]) == TABLE[name]
    common = (UNITS / "arkline-.service.d" / "10-common.conf").read_text()
    assert re.findall(r"ARKLINE_SECRETS=(.*)", common) == ["%d"]
