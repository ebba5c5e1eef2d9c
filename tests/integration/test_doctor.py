"""`arkline doctor` on real servers: each line is what was measured, and says what to do."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from kazoo.security import OPEN_ACL_UNSAFE
from pydantic import SecretStr

from operations.checks.deployment import back_up, initialize
from operations.doctor import examination, fleet, host, servers
from operations.doctor.line import Examination, Line, Verdict
from operations.fleet.fleet import broker_address
from operations.site import Site
from pipeline.errors import Action, Remedy
from pipeline.principal import Principal
from pipeline.profiles.profile import Profiles
from pipeline.records import now
from pipeline.settings import Settings
from pipeline.states import JobState
from tasks import broker
from tests.servers import ezid
from tests.servers import redis as redis_servers
from tests.servers import zookeeper as zookeeper_servers
from tests.servers.postgresql import Server as PostgresqlServer
from tests.servers.proxy import Proxy
from tests.support import planting
from tests.support.certificates import authority
from tests.support.cli import run
from tests.support.fleet import fleet as running_fleet
from tests.support.operators import ANN
from tests.support.polling import eventually
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.fleet import holds, notes, scheduled
from zkstate.fleet.holds import Hold
from zkstate.fleet.notes import LastBackup


def examined(settings: Settings) -> Examination:
    with examination.opened(settings) as site:
        return examination.examine(settings, ANN, site)


def by_name(lines: Iterator[Line]) -> dict[str, Line]:
    return {line.name: line for line in lines}


def test_a_deployment_with_a_fleet_has_no_fault_and_its_clocks_agree(settings: Settings) -> None:
    for folder in (settings.working, settings.uploads_folder):
        folder.mkdir(parents=True)
    with running_fleet(settings) as processes:
        processes.worker()
        processes.beat("first", wait=False)
        processes.beat("second", wait=False)
        with connect(settings) as session:
            eventually(lambda: scheduled.contenders(session) == 2)
        view = examined(settings)

    lines = {(line.area, line.name): line for line in view.lines}
    assert [line for line in view.lines if line.verdict is Verdict.FAULT] == []
    assert len(lines) == len(view.lines)
    assert [key for key in lines if key[0] == "clocks"] == [("clocks", f"host {os.uname().nodename}")]
    assert lines["stores", "id"].verdict is Verdict.OK
    assert lines["working storage", "fsync"].fact.endswith(" ms")
    assert list(settings.working.iterdir()) == []


def test_without_servers_they_are_faults_and_what_needs_them_is_not_known(alone: Settings) -> None:
    began = time.monotonic()
    view = examined(alone)

    lines = {(line.area, line.name): line for line in view.lines}
    assert lines["zookeeper", "servers"].remedies[0].action is Action.START_RECORD
    assert lines["redis", "server"].remedies[0].action is Action.START_BROKER
    for key in (("stores", "id"), ("fleet", "processes"), ("care", "backup"), ("clocks", "hosts")):
        assert lines[key].verdict is Verdict.NOT_KNOWN, key
    assert [
        line for line in view.lines if line.verdict is not Verdict.OK and not (line.remedies or line.step)
    ] == []
    assert time.monotonic() - began < 60


@contextmanager
def heartbeats(settings: Settings, *workers: str) -> Iterator[None]:
    """Of workers with these names, until the block ends."""
    app, stopped = broker.publisher(settings), threading.Event()

    def beat() -> None:
        with app.connection_for_write() as connection:
            senders = [app.events.Dispatcher(connection, hostname=worker) for worker in workers]
            while not stopped.wait(0.2):
                for sender in senders:
                    sender.send("worker-heartbeat", freq=2)

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        yield
    finally:
        stopped.set()
        beating.join()


@pytest.mark.parametrize("is_local", [True, False])
def test_workers_with_names_of_two_hosts_use_sqlite_on_the_disk_of_one(
    settings: Settings, is_local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers of one machine have names of their own."""
    if not is_local:
        monkeypatch.setattr(servers, "LOCAL", ("none",))
    with heartbeats(settings, "worker1@one", "worker2@two"):
        lines = by_name(servers.workers(settings))

    assert {lines[f"host {name}"].verdict for name in ("one", "two")} == {Verdict.OK}
    assert ("hosts" in lines and lines["hosts"].verdict is Verdict.FAULT) == (not is_local)


def test_a_server_that_is_silent_is_waited_for_a_bounded_time(settings: Settings) -> None:
    port = int(settings.broker_url.rpartition(":")[2].partition("/")[0])
    with Proxy(port) as silent:
        silent.swallow()
        url = f"redis://{silent.hosts}/0"
        began = time.monotonic()
        view = examined(settings.model_copy(update={"broker_url": url}))

    lines = {(line.area, line.name): line for line in view.lines}
    assert lines["redis", "server"].verdict is Verdict.FAULT
    assert time.monotonic() - began < 90


def test_the_command_prints_the_lines_and_fails_for_a_fault(settings: Settings) -> None:
    with connect(settings) as session:
        initialize(Site(settings, session))
    done = run(settings, "doctor", "--quiet")
    answer = run(settings, "doctor", "--json")
    view = Examination.model_validate(json.loads(answer.out))

    assert (done.code, answer.code) == (1, 1)
    assert "fault     fleet: beats: 0\n" in done.out
    assert "try arkline beat: " in done.out
    assert "ok        " not in done.out
    assert view.count(Verdict.FAULT) >= 1


def test_each_problem_of_the_fleet_has_its_own_remedies(site: Site, session: Session) -> None:
    holds.place(session, Hold(by="ann"), "demo")
    planting.job_in(session, JobState.FAILED)

    lines = by_name(fleet.fleet(site, ANN))

    assert lines["collection-on-hold"].remedies == (Remedy(Action.RELEASE_COLLECTION, "demo"),)
    failed = lines["jobs-failed"]
    assert (failed.fact, failed.remedies) == ("jobs that failed: 1", (Remedy(Action.SHOW_FAILURES),))


def test_a_request_that_the_server_refuses_by_its_size_is_a_fault(settings: Settings, tmp_path: Path) -> None:
    with zookeeper_servers.running(tmp_path / "zk", tick=500, max_buffer=100_000) as server:
        small = settings.model_copy(update={"zk_hosts": server.hosts})
        with connect(small) as session:
            lines = by_name(servers.session(Site(small, session), ANN))
        of_server = by_name(servers.zookeeper(small))

    assert lines["jute.maxbuffer"].remedies[0].action is Action.RAISE_LIMIT
    assert of_server[f"maxClientCnxns of {server.hosts}"].fact == "any number from one address"
    assert of_server[f"version of {server.hosts}"].verdict is Verdict.OK
    assert lines["clock"].verdict is Verdict.OK


def test_a_znode_that_others_can_use_is_a_fault_once_there_is_a_user(settings: Settings) -> None:
    closed = settings.model_copy(update={"zk_user": "arkline", "zk_password": SecretStr("secret")})
    with connect(closed) as session:
        site = Site(closed, session)
        assert by_name(servers.session(site, ANN))["access"].verdict is Verdict.OK
        session.zk.create("/open-batches/bid0000000001", acl=OPEN_ACL_UNSAFE)
        line = by_name(servers.session(site, ANN))["access"]

    assert line.verdict is Verdict.FAULT
    assert line.fact.endswith("others can use 1, such as /open-batches/bid0000000001")


def test_a_redis_that_evicts_messages_is_a_fault(settings: Settings) -> None:
    client = redis.Redis.from_url(settings.broker_url)
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        without_limit = by_name(servers.broker(settings))["maxmemory-policy"]
        client.config_set("maxmemory", "1gb")
        line = by_name(servers.broker(settings))["maxmemory-policy"]
    finally:
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")
        client.close()

    assert (without_limit.verdict, line.verdict) == (Verdict.WARNING, Verdict.FAULT)
    assert by_name(servers.broker(settings))["maxmemory-policy"].verdict is Verdict.OK


def test_certificates_are_named_with_their_end_before_it_comes(settings: Settings, tmp_path: Path) -> None:
    """Those of the tests are valid for two days."""
    ours, theirs = authority(tmp_path / "ours"), authority(tmp_path / "theirs")
    own, client = ours.issue("server"), ours.issue("client")
    users = "user default off\nuser arkline on >secret ~* &* +@all\n"
    files = {
        "zk_tls_ca": ours.certificate,
        "zk_tls_certificate": client.certificate,
        "zk_tls_key": client.key,
    }
    with (
        zookeeper_servers.running_tls(
            tmp_path / "zk", own, ours.certificate, ask_for_certificates=False
        ) as hosts,
        redis_servers.running_with_users(_made(tmp_path / "redis"), users, own) as (_, port),
    ):
        url = f"rediss://arkline:secret@127.0.0.1:{port}/0?ssl_cert_reqs=required&ssl_ca_certs="
        encrypted = settings.model_copy(
            update={**files, "zk_hosts": hosts, "broker_url": f"{url}{ours.certificate}"}
        )
        ends, redis_lines = list(servers.certificates(encrypted)), by_name(servers.broker(encrypted))
        strange = encrypted.model_copy(update={"zk_tls_ca": theirs.certificate})
        refused = by_name(servers.certificates(strange))

    assert len({line.name for line in ends}) == 4
    assert {line.verdict for line in ends} == {Verdict.WARNING}
    assert all(line.fact.startswith("valid until ") for line in ends)
    assert redis_lines["password"].fact == "user arkline"
    assert refused[f"certificate of {hosts}"].verdict is Verdict.FAULT


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_folder_of_another_user_is_a_warning_and_nothing_is_left_in_it(settings: Settings) -> None:
    settings.working.mkdir(parents=True)
    own = by_name(host.folder(settings, settings.working, settings.working))
    if os.geteuid() == 0:
        os.chown(settings.working, 12345, 12345)
        line = by_name(host.folder(settings, settings.working, settings.working))["owner"]
        assert (line.verdict, line.fact.startswith("user 12345 owns ")) == (Verdict.WARNING, True)

    assert {own[name].verdict for name in ("owner", "rename", "fsync")} == {Verdict.OK}
    assert list(settings.working.iterdir()) == []


def test_what_a_killed_probe_left_in_a_folder_is_no_fault_of_the_folder(settings: Settings) -> None:
    (settings.working / f".arkline-doctor-{os.getpid()}").mkdir(parents=True)

    own = by_name(host.folder(settings, settings.working, settings.working))

    assert {own[name].verdict for name in ("rename", "fsync")} == {Verdict.OK}
    assert "writing" not in own


@pytest.mark.parametrize(
    ("mounted", "noted"),
    [(fleet.mounted, "/space/marked"), (fleet.uploads_mounted, "/space/uploads-marked")],
    ids=["working storage", "uploads"],
)
def test_a_folder_without_the_mark_that_the_record_noted_is_a_fault(
    site: Site, mounted: Callable[[Site, Principal], Iterator[Line]], noted: str
) -> None:
    assert by_name(mounted(site, ANN))["mount"].verdict is Verdict.OK
    site.session.ensure_node(noted)

    assert by_name(mounted(site, ANN))["mount"].verdict is Verdict.FAULT


def test_an_object_that_working_storage_can_never_hold_is_a_warning(settings: Settings) -> None:
    settings.working.mkdir(parents=True)
    small = settings.model_copy(update={"working_capacity": 10_000_000, "object_bytes": 9_000_000})
    enough = small.model_copy(update={"object_bytes": 8_000_000})

    verdicts = [
        by_name(host.folder(one, one.working, one.working))["space"].verdict for one in (small, enough)
    ]
    assert verdicts == [Verdict.WARNING, Verdict.OK]


def test_the_last_backup_is_noted_and_an_old_one_is_a_warning(site: Site, tmp_path: Path) -> None:
    assert by_name(fleet.care(site, ANN))["backup"].verdict is Verdict.NOT_KNOWN
    initialize(site)

    back_up(site, tmp_path / "backup")

    lines = by_name(fleet.care(site, ANN))
    assert str(tmp_path / "backup") in lines["backup"].fact
    assert (lines["backup"].verdict, lines["inventory in the backup"].verdict) == (Verdict.OK, Verdict.OK)

    old = LastBackup(at=now() - timedelta(days=2), host="a", folder="/backups/1", inventory=False)
    notes.BACKUP.publish(site.session, old)
    lines = by_name(fleet.care(site, ANN))
    assert lines["backup"].remedies[0].action is Action.BACK_UP
    assert lines["inventory in the backup"].verdict is Verdict.WARNING


def test_a_record_without_an_id_is_a_fault_and_nothing_is_created(settings: Settings) -> None:
    lines = {(line.area, line.name): line for line in examined(settings).lines}

    assert lines["zookeeper", "session"].remedies[0].action is Action.INITIALIZE
    assert lines["stores", "id"].verdict is Verdict.NOT_KNOWN
    with connect(settings, create=False) as session:
        assert session.zk.exists("/") is None
    assert not settings.storage.exists()


@pytest.mark.parametrize("why", ["damaged", "closed"])
def test_a_record_that_cannot_be_read_is_a_fault_and_hides_no_other_line(
    settings: Settings, why: str
) -> None:
    own = settings.model_copy(update={"zk_user": "arkline", "zk_password": SecretStr("theirs")})
    with connect(own) as session:
        initialize(Site(own, session))
        if why == "damaged":
            session.zk.set(paths.DEPLOYMENT, b"\xff{")
    mistyped = own.model_copy(update={"zk_password": SecretStr("mistyped")})

    lines = {(one.area, one.name): one for one in examined(own if why == "damaged" else mistyped).lines}

    assert lines["zookeeper", "session"].verdict is Verdict.FAULT
    assert ("znode /deployment" if why == "damaged" else "refuses this user") in lines[
        "zookeeper", "session"
    ].fact
    assert lines["redis", "maxmemory-policy"].verdict is Verdict.OK


def test_stores_that_share_an_id_are_ok(site: Site) -> None:
    initialize(site)

    assert by_name(fleet.deployment(site, ANN))["id"].verdict is Verdict.OK


def test_postgresql_says_its_version_clock_and_encryption(
    settings: Settings, postgresql_server: PostgresqlServer
) -> None:
    url = postgresql_server.new_schema()
    lines = by_name(servers.inventory(settings.model_copy(update={"inventory_url": url})))

    assert lines["version"].fact.startswith("PostgreSQL ")
    sound = ("version", "clock", "connections", "encoding")
    assert {name: lines[name].verdict for name in sound} == dict.fromkeys(sound, Verdict.OK)
    assert lines["tls"].verdict is Verdict.WARNING


def test_a_database_that_lacks_characters_is_a_fault(
    settings: Settings, postgresql_server: PostgresqlServer
) -> None:
    other = settings.model_copy(update={"inventory_url": postgresql_server.new_database("LATIN1")})

    assert by_name(servers.inventory(other))["encoding"].verdict is Verdict.FAULT


def test_ezid_is_asked_and_a_refused_login_is_a_fault(settings: Settings) -> None:
    with ezid.ezid() as server:
        login = {"ezid_url": server.url, "ezid_user": ezid.USER, "ezid_password": SecretStr(ezid.PASSWORD)}
        known = settings.model_copy(update=login)
        wrong = settings.model_copy(update={**login, "ezid_password": SecretStr("wrong")})
        names = Profiles(settings.profiles).names()
        accepted, refused = (by_name(fleet.collections(one)) for one in (known, wrong))

    assert {accepted[f"minter of {name}"].verdict for name in names} == {Verdict.OK}
    assert {refused[f"minter of {name}"].verdict for name in names} == {Verdict.FAULT}


def test_a_mail_server_that_does_not_answer_is_a_fault(settings: Settings) -> None:
    away = settings.model_copy(update={"smtp_host": "127.0.0.1", "smtp_port": 1})

    assert by_name(servers.mail(away))["server"].verdict is Verdict.FAULT
    assert by_name(servers.mail(settings))["server"].verdict is Verdict.WARNING


@pytest.mark.parametrize(
    ("url", "verdict"),
    [
        ("", Verdict.WARNING),
        ("https://deposit.example.org", Verdict.OK),
        ("https://example.org/deposit", Verdict.FAULT),
    ],
)
def test_links_to_pages_below_a_path_are_a_fault(settings: Settings, url: str, verdict: Verdict) -> None:
    known = settings.model_copy(update={"public_url": url})

    assert by_name(servers.mail(known))["links"].verdict is verdict


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://:secret@redis.example.org/0", "redis.example.org:6379"),
        ("rediss://[fd00::1]:6380/0", "[fd00::1]:6380"),
    ],
)
def test_the_address_of_redis_has_no_password_and_brackets_as_needed(
    settings: Settings, url: str, address: str
) -> None:
    assert broker_address(settings.model_copy(update={"broker_url": url})) == address
