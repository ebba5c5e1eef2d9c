"""What the schema cannot say about docker-compose.yml; `./dev check` asks the schema."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoints.stack.services import StackConfig, reserved_workers
from pipeline.settings import Settings

PROJECT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}

READY_FILE = "ARKLINE_READY_FILE"
"""Read by tasks/app.py and tasks/beat_leader.py; not a setting, because it is one process's own."""

POOL_STALL = 31
"""Seconds that billiard may take to notice that a pool's processes have ended."""


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_only_for_services_that_exist_and_can_be_healthy(name: str) -> None:
    for target, wanted in SERVICES[name].get("depends_on", {}).items():
        assert wanted["condition"] == "service_healthy"
        assert "healthcheck" in SERVICES[target]


@pytest.mark.parametrize("name", SERVICES)
def test_every_named_volume_is_declared_and_every_folder_exists(name: str) -> None:
    for source in (mount.split(":")[0] for mount in SERVICES[name].get("volumes", ())):
        assert source in COMPOSE["volumes"] or (PROJECT / source).is_dir()


def test_every_declared_volume_is_used() -> None:
    used = {mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", ())}

    assert set(COMPOSE["volumes"]) <= used


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_to_this_host_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", ()))


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_has_a_tag_that_stays(name: str) -> None:
    _, _, tag = SERVICES[name]["image"].rpartition(":")

    assert re.match(r"\d", tag)


def test_our_image_has_the_version_of_the_project() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]

    assert {service["image"] for service in OURS.values()} == {f"{project['name']}:{project['version']}"}


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_has_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    user = service.get("user") or re.findall(r"^USER (.+)$", (PROJECT / "Dockerfile").read_text(), re.M)[-1]

    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not user.startswith(("0", "root"))


def test_flower_has_a_password_without_a_default() -> None:
    flower = SERVICES["flower"]

    assert flower["environment"]["FLOWER_BASIC_AUTH"].endswith(":${ARKLINE_FLOWER_PASSWORD:?set it}")
    assert "--read-only" in flower["command"]


@pytest.mark.parametrize("name", OURS)
def test_every_variable_of_ours_is_a_setting(name: str) -> None:
    ours = {key for key in OURS[name]["environment"] if key.startswith("ARKLINE_")} - {READY_FILE}

    assert {key.removeprefix("ARKLINE_").lower() for key in ours} <= set(Settings.model_fields)


def test_a_worker_has_time_to_end_its_steps() -> None:
    seconds = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))

    assert seconds > Settings().stop_grace + POOL_STALL


@pytest.mark.parametrize("queue", ["control", "split"])
def test_every_reserved_queue_has_a_worker_of_its_own(queue: str, tmp_path: Path) -> None:
    started = {service.command.name: service for service in reserved_workers(StackConfig(home=tmp_path), {})}

    assert SERVICES[queue]["command"][-2:] == ["-Q", queue]
    assert f"-Q {queue} " in " ".join(started[queue].command.argv)


def test_there_is_more_than_one_worker_and_a_stand_by_for_beat() -> None:
    assert SERVICES["worker"]["deploy"]["replicas"] >= 2
    assert SERVICES["beat"]["deploy"]["replicas"] >= 2
