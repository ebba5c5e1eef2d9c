"""What the schema cannot say about docker-compose.yml; `./dev check` asks the schema."""

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from entrypoints import programs
from entrypoints.generate_secrets import RIGHTS, VOLUMES, generate
from entrypoints.stack.services import StackConfig, reserved_workers
from operations.certificates import authority
from pipeline.settings import SECRETS, Settings
from plugins.clamav.settings import ClamavSettings
from tests.support.images import WITHOUT_DIGEST

PROJECT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}

READY_FILE = "ARKLINE_READY_FILE"
"""Read by tasks/worker.py and tasks/beat_leader.py; not a setting, because it is one process's own."""

VERSION_AND_DIGEST = r"[a-z]+(/[a-z]+)?:v?\d+(\.\d+){1,2}([-_][a-z]+)?@sha256:[0-9a-f]{64}"
"""Of an image; PostgreSQL's versions have two numbers."""

POOL_STALL = 31
"""Seconds that billiard may take to notice that a pool's processes have ended."""


def image(service: str) -> str:
    """The image of a service while its variable is not set."""
    variable = re.fullmatch(r"\$\{ARKLINE_(?:[A-Z]+_)?IMAGE:-(.+)\}", SERVICES[service]["image"])
    assert variable is not None, SERVICES[service]["image"]
    return variable[1]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_only_for_services_that_exist_and_can_be_healthy(name: str) -> None:
    profiles = set(SERVICES[name].get("profiles", ()))
    for target, wanted in SERVICES[name].get("depends_on", {}).items():
        assert set(SERVICES[target].get("profiles", ())) <= profiles or wanted["required"] is False
        if wanted["condition"] == "service_completed_successfully":
            assert SERVICES[target]["restart"] == "no"
        else:
            assert wanted["condition"] == "service_healthy"
            assert "healthcheck" in SERVICES[target]


@pytest.mark.parametrize("name", SERVICES)
def test_every_named_volume_is_declared_and_every_folder_exists(name: str) -> None:
    for source in (mount.split(":")[0] for mount in SERVICES[name].get("volumes", ())):
        assert source in COMPOSE["volumes"] or (PROJECT / source).exists()


def test_every_declared_volume_is_used() -> None:
    used = {mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", ())}

    assert set(COMPOSE["volumes"]) <= used


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_to_this_host_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", ()))


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - OURS.keys()))
def test_every_image_of_others_is_named_by_version_and_digest(name: str) -> None:
    default = image(name)
    assert re.fullmatch(VERSION_AND_DIGEST, default) or default in WITHOUT_DIGEST


def test_the_image_begins_with_one_that_is_named_by_version_and_digest() -> None:
    first, *others = re.findall(r"^FROM (.+)$", (PROJECT / "Dockerfile").read_text(), re.M)
    foreign = re.findall(r"--from=(\S+)", (PROJECT / "Dockerfile").read_text())

    base, _, name = first.rpartition(" AS ")
    default = re.fullmatch(r"\$\{BASE_IMAGE:-(.+)\}", base)
    assert default
    assert re.fullmatch(VERSION_AND_DIGEST, default[1])
    assert [stage.split()[0] for stage in others] == [name, "libraries", name]
    assert foreign == ["libraries", "build"]


def test_the_chart_has_the_same_servers_as_the_compose_file() -> None:
    values = yaml.safe_load((PROJECT / "deploy" / "helm" / "arkline" / "values.yaml").read_text())

    assert values["zookeeper"]["image"] == image("zookeeper")
    assert values["redis"]["image"] == image("redis")
    assert values["clamav"]["image"] == image("clamav") == image("freshclam")


def test_our_image_has_the_version_of_the_project() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]

    assert {image(name) for name in OURS} == {f"{project['name']}:{project['version']}"}


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_has_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    user = service.get("user") or re.findall(r"^USER (.+)$", (PROJECT / "Dockerfile").read_text(), re.M)[-1]

    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not user.startswith(("0", "root"))


def test_flower_has_a_generated_password_and_no_right_to_change() -> None:
    assert "--conf=/run/arkline/flowerconfig.py" in SERVICES["flower"]["command"]
    assert "--read-only" in programs.flower("127.0.0.1", 5555)


TRUST = "/run/trust/authority.pem"
ZOOKEEPERS = ("zookeeper", "zookeeper-2", "zookeeper-3")


def example_variables(name: str) -> dict[str, str]:
    lines = (PROJECT / "examples" / "compose" / name).read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {variable: value.strip('"') for variable, _, value in pairs}


def test_the_example_of_an_ensemble_names_every_zookeeper() -> None:
    example = example_variables("ensemble.env")

    assert example["ARKLINE_ZK_HOSTS"] == ",".join(f"{name}:2281" for name in ZOOKEEPERS)
    assert example["ZOO_SERVERS"].split() == [
        f"server.{SERVICES[name]['environment']['ZOO_MY_ID']}={name}:2888:3888;127.0.0.1:2181"
        for name in ZOOKEEPERS
    ]
    assert [SERVICES[name].get("profiles") for name in ZOOKEEPERS] == [None, ["ensemble"], ["ensemble"]]
    data = {m for name in ZOOKEEPERS for m in SERVICES[name]["volumes"] if m.startswith("zookeeper-")}
    assert len(data) == 2 * len(ZOOKEEPERS)


def test_the_example_of_postgresql_names_the_service_and_the_file_of_its_password(tmp_path: Path) -> None:
    for name in VOLUMES:
        (tmp_path / name).mkdir()
    generate(tmp_path)
    server = SERVICES["postgresql"]["environment"]
    host, port, base, user, password = (tmp_path / "fleet" / "pgpass").read_text().strip().split(":")

    url = example_variables("postgresql.env")["ARKLINE_INVENTORY_URL"]
    files = f"passfile=/run/arkline/pgpass&sslmode=verify-full&sslrootcert={TRUST}"
    assert url == f"postgresql+psycopg://{user}@{host}/{base}?{files}"
    assert (host, port) == ("postgresql", "5432")
    assert (user, base) == (server["POSTGRES_USER"], server["POSTGRES_DB"])
    assert password == (tmp_path / "postgresql" / "password").read_text()


@pytest.mark.parametrize("name", ["postgresql.env", "ensemble.env"])
def test_the_compose_file_asks_for_every_variable_of_an_example(name: str) -> None:
    text = (PROJECT / "docker-compose.yml").read_text()

    assert all(f"${{{variable}:-" in text for variable in example_variables(name))


def test_prometheus_asks_the_exporter_and_grafana_asks_prometheus() -> None:
    folder = PROJECT / "deploy" / "monitoring" / "compose"
    (scraped,) = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"]
    (source,) = yaml.safe_load((folder / "datasource.yml").read_text())["datasources"]

    assert scraped["static_configs"] == [{"targets": ["exporter:9464"]}]
    assert "--port=9464" in SERVICES["exporter"]["command"]
    assert source["url"] == "http://prometheus:9090"


def networks(name: str) -> set[str]:
    return set(SERVICES[name].get("networks", ()))


def test_only_who_needs_zookeeper_or_redis_reaches_it() -> None:
    workers = {"worker", "control", "split"}
    fleet = {*workers, "beat", "web", "exporter"}

    assert {name for name in SERVICES if "record" in networks(name)} == {*ZOOKEEPERS, *fleet}
    assert {name for name in SERVICES if "messages" in networks(name)} == {"redis", "flower", *fleet}
    assert {name for name in SERVICES if "outside" in networks(name)} == {"freshclam", *workers}
    assert {name for name in SERVICES if "scanner" in networks(name)} == {"clamav", "worker"}
    assert {name for name in SERVICES if "database" in networks(name)} == {"postgresql", "web", *workers}
    assert {name for name in SERVICES if "browser" in networks(name)} == {
        "flower",
        "web",
        "prometheus",
        "grafana",
    }
    assert {name for name in SERVICES if "metrics" in networks(name)} == {"exporter", "prometheus", "grafana"}
    assert {name for name, each in COMPOSE["networks"].items() if each.get("internal")} == {
        "record",
        "messages",
        "database",
        "metrics",
        "scanner",
    }
    assert SERVICES["secrets"]["network_mode"] == "none"


def test_each_service_gets_only_the_secrets_that_it_needs() -> None:
    def secret_volumes(service: dict[str, Any]) -> set[str]:
        return {mount.split(":")[0] for mount in service.get("volumes", ()) if mount.startswith("secrets-")}

    found = {name: secret_volumes(service) for name, service in SERVICES.items() if secret_volumes(service)}

    made = found.pop("secrets")
    assert made == {volume for volume in COMPOSE["volumes"] if volume.startswith("secrets-")}
    assert found == {
        **{name: {"secrets-fleet"} for name in ("control", "split")},
        **{name: {"secrets-signing"} for name in ("worker", "web")},
        **{name: {f"secrets-{name}"} for name in ("beat", "exporter")},
        "postgresql": {"secrets-postgresql"},
        "grafana": {"secrets-grafana"},
        "flower": {"secrets-flower"},
        "redis": {"secrets-redis"},
    }
    for name in found:
        assert all(m.endswith(":ro") for m in SERVICES[name]["volumes"] if m.startswith("secrets-"))
    assert not SERVICES["flower"]["env_file"]
    named = re.sub("ARKLINE_SECRETS|\\w+_PASSWORD_+FILE", "", yaml.safe_dump(SERVICES))
    assert not re.search("PASSWORD|KEY|SECRET:", named)


def test_the_secrets_are_made_once_and_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VOLUMES:
        (tmp_path / name).mkdir()
    generate(tmp_path)
    first = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    generate(tmp_path)

    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == first
    monkeypatch.setenv("ARKLINE_SECRETS", str(tmp_path / "signing"))
    monkeypatch.setenv("ARKLINE_ZK_USER", "arkline")
    signing = Settings()
    assert len(signing.callback_secret.get_secret_value()) == 48
    monkeypatch.setenv("ARKLINE_SECRETS", str(tmp_path / "fleet"))
    fleet = Settings()
    assert (fleet.zk_password, fleet.broker_url) == (signing.zk_password, signing.broker_url)
    assert not fleet.callback_secret.get_secret_value()
    assert len(fleet.zk_password.get_secret_value()) == 48
    assert fleet.broker_url.startswith("rediss://arkline:")
    assert fleet.broker_url.endswith(f"@redis:6379/0?ssl_cert_reqs=required&ssl_ca_certs={TRUST}")
    monkeypatch.setenv("ARKLINE_SECRETS", str(tmp_path / "flower"))
    monkeypatch.delenv("ARKLINE_ZK_USER")
    assert Settings().zk_password.get_secret_value() == ""
    assert Settings().broker_url.startswith("rediss://flower:")
    readable = {str(path.relative_to(tmp_path)) for path in first if path.stat().st_mode & 0o077}
    # each has a volume of its own, which only its server mounts
    certificates = {f"certificates/{server}/server.pem" for server in authority.SERVERS}
    trusted = {f"certificates/{place}/authority.pem" for place in ("trust", *authority.SERVERS)}
    assert readable - certificates - trusted == {
        "redis/users.acl",
        "redis/certificates",
        "postgresql/password",
        "grafana/password",
    }
    assert RIGHTS in (PROJECT / "docs" / "operators" / "trust.md").read_text()


def test_addresses_that_an_earlier_release_made_get_tls_and_keep_their_passwords(tmp_path: Path) -> None:
    for name in VOLUMES:
        (tmp_path / name).mkdir()
    before = "redis://arkline:the-password@redis:6379/0"
    (tmp_path / "fleet" / "arkline_broker_url").write_text(before)
    generate(tmp_path)

    for volume in ("fleet", "signing", "beat", "exporter"):
        url = (tmp_path / volume / "arkline_broker_url").read_text()
        assert url.startswith("rediss://arkline:the-password@redis:6379/0?")
    digest = hashlib.sha256(b"the-password").hexdigest()
    assert f"user arkline on #{digest} " in (tmp_path / "redis" / "users.acl").read_text()


def certificate_volumes(name: str) -> dict[str, str]:
    """Volume -> where and how the service mounts it."""
    mounts = (mount.partition(":") for mount in SERVICES[name].get("volumes", ()))
    return {volume: place for volume, _, place in mounts if volume.startswith("certificates-")}


def test_only_who_makes_certificates_has_the_key_of_the_authority_and_each_server_its_own_alone() -> None:
    makers = {"secrets", "certificates"}
    servers = {**dict.fromkeys(ZOOKEEPERS, "zookeeper"), "redis": "redis", "postgresql": "postgresql"}

    for name in makers:
        assert certificate_volumes(name) == {
            f"certificates-{place}": f"/secrets/certificates/{place}"
            for place in ("authority", "trust", *authority.SERVERS)
        }
        assert SERVICES[name]["network_mode"] == "none"
    for name, server in servers.items():
        assert certificate_volumes(name) == {f"certificates-{server}": "/run/certificates:ro"}
    for name in OURS.keys() - makers:
        assert certificate_volumes(name) == {"certificates-trust": "/run/trust:ro"}
    assert {name for name in SERVICES if certificate_volumes(name)} == {*makers, *servers, *OURS}


def test_no_server_is_reached_over_a_network_without_tls() -> None:
    for name in ZOOKEEPERS:
        environment = SERVICES[name]["environment"]
        entries = dict(entry.split("=", 1) for entry in environment["ZOO_CFG_EXTRA"].split())
        assert environment["ZOO_SERVERS"].endswith(";127.0.0.1:2181}")
        assert (entries["secureClientPort"], entries["sslQuorum"]) == ("2281", "true")
        assert entries["client.certReload"] == entries["sslQuorumReloadCertFiles"] == "true"
    redis = SERVICES["redis"]["command"]
    assert (redis[redis.index("--port") + 1], redis[redis.index("--tls-port") + 1]) == ("0", "6379")
    rules = (PROJECT / "deploy" / "helm" / "arkline" / "files" / "tls" / "pg_hba.conf").read_text()
    assert re.findall(r"^host .*", rules, re.M) == ["host    all all 127.0.0.1/32 scram-sha-256"]
    assert "hba_file=/etc/arkline-tls/pg_hba.conf" in SERVICES["postgresql"]["command"]
    assert SERVICES["worker"]["environment"]["ARKLINE_ZK_HOSTS"] == "${ARKLINE_ZK_HOSTS:-zookeeper:2281}"


def test_the_image_has_the_folder_of_each_volume_that_our_user_writes() -> None:
    owned = re.findall(r"/(?:srv|secrets)/[\w/]+", (PROJECT / "Dockerfile").read_text())
    written = {
        mount.split(":")[1]
        for name in OURS
        for mount in SERVICES[name].get("volumes", ())
        if not mount.endswith(":ro")
    }

    assert written - set(owned) == set()


def test_the_image_gets_every_file_that_it_is_made_of() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (PROJECT / "Dockerfile").read_text(), re.MULTILINE)
    allowed = re.findall(r"^!(.*)$", (PROJECT / ".dockerignore").read_text(), re.MULTILINE)

    assert {name for names in copied for name in names.split()} == set(allowed)


def test_the_image_is_built_from_packages_with_known_digests() -> None:
    text = (PROJECT / "Dockerfile").read_text()

    installs = re.findall(r"pip (?:download|install|wheel) [^&\\\n]*", text)
    assert len(installs) == 6
    assert all("--require-hashes" in install or "--no-index" in install for install in installs)
    lock = (PROJECT / "tools" / "build.lock").read_text()
    assert re.fullmatch(r"setuptools==\S+ \\\n    --hash=sha256:[0-9a-f]{64}\n", lock)


WORKFLOWS = PROJECT / ".github" / "workflows"


@pytest.mark.parametrize("name", sorted(path.name for path in WORKFLOWS.iterdir()))
def test_every_action_is_named_by_its_commit(name: str) -> None:
    used = re.findall(r"uses: (.*)", (WORKFLOWS / name).read_text())

    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action) for action in used)


@pytest.mark.parametrize("name", OURS)
def test_every_variable_of_ours_is_a_setting(name: str) -> None:
    ours = {key for key in OURS[name]["environment"] if key.startswith("ARKLINE_")} - {READY_FILE, SECRETS}

    known = Settings.model_fields.keys() | ClamavSettings.model_fields.keys()
    assert {key.removeprefix("ARKLINE_").lower() for key in ours} <= known


def test_a_worker_has_time_to_end_its_steps() -> None:
    seconds = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))

    assert seconds > Settings().stop_grace + POOL_STALL


@pytest.mark.parametrize("queue", ["control", "split"])
def test_every_reserved_queue_has_a_worker_of_its_own(queue: str, tmp_path: Path) -> None:
    started = {command.name: command for command in reserved_workers(StackConfig(home=tmp_path), {})}

    assert SERVICES[queue]["command"][-2:] == ["--queues", queue]
    assert f"-Q {queue} " in " ".join(started[queue].argv)


def test_there_is_more_than_one_worker_and_a_stand_by_for_beat() -> None:
    assert SERVICES["worker"]["deploy"]["replicas"] >= 2
    assert SERVICES["beat"]["deploy"]["replicas"] >= 2


def test_the_virus_scanner_is_off_by_default_and_workers_find_it_where_it_listens() -> None:
    address = SERVICES["worker"]["environment"]["ARKLINE_CLAMD"]

    assert SERVICES["clamav"]["profiles"] == SERVICES["freshclam"]["profiles"] == ["clamav"]
    assert address == "${ARKLINE_CLAMD:-tcp:clamav:3310}"
    assert ClamavSettings(clamd="tcp:clamav:3310")
    for name, mode in (("freshclam", ""), ("clamav", ":ro")):
        assert f"clamav-signatures:/var/lib/clamav{mode}" in SERVICES[name]["volumes"]


def test_uploads_are_in_a_volume_that_the_pages_and_all_workers_share() -> None:
    mount = f"uploads:{OURS['worker']['environment']['ARKLINE_UPLOADS']}"
    for name in ("web", "worker", "control", "split"):
        assert mount in SERVICES[name]["volumes"], name
