"""ZooKeeper over TLS with certificates, and znodes that belong to arkline's user alone."""

import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.errors import UsageRefused
from pipeline.settings import Settings
from tests.servers.zookeeper import running_tls
from tests.support import cli
from tests.support.certificates import Authority, Certificate, authority
from zkstate.connection import server_facts
from zkstate.connection.client import make_client
from zkstate.connection.session import connect
from zkstate.errors import Unreachable


@dataclass(frozen=True)
class Site:
    """A ZooKeeper that asks for certificates, and a client's."""

    hosts: str
    authority: Authority
    client: Certificate


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    ours = authority(tmp_path_factory.mktemp("tls") / "ours")
    folder = tmp_path_factory.mktemp("zookeeper-tls")
    with running_tls(folder, ours.issue("server"), ours.certificate, ask_for_certificates=True) as hosts:
        yield Site(hosts, ours, ours.issue("client"))


def secure_settings(settings: Settings, site: Site) -> Settings:
    return settings.model_copy(
        update={
            "zk_hosts": site.hosts,
            "zk_tls_ca": site.authority.certificate,
            "zk_tls_certificate": site.client.certificate,
            "zk_tls_key": site.client.key,
        }
    )


@pytest.fixture
def secure(settings: Settings, site: Site) -> Settings:
    return secure_settings(settings, site)


def refusal(settings: Settings, **changes: Any) -> str:
    with pytest.raises(Unreachable) as refused, connect(settings.model_copy(update=changes), timeout=2):
        pass
    return str(refused.value)


def test_the_memory_of_a_server_is_known_over_tls_too(secure: Settings) -> None:
    with connect(secure) as session:
        memory = server_facts.memory(session)

    assert memory.heap_bytes
    assert memory.znodes


def test_the_record_is_used_over_tls_with_a_certificate(secure: Settings) -> None:
    with connect(secure) as session:
        session.ensure_node("/a", b"over TLS")
        found = session.get_many(["/a"] * 3000)

    assert {data for data, _ in filter(None, found)} == {b"over TLS"}
    assert cli.run(secure, "jobs").code == 0


@pytest.mark.parametrize("client", ["direct", "kazoo"])
def test_answers_that_come_in_one_piece_are_all_seen(secure: Settings, site: Site, client: str) -> None:
    chosen = make_client(secure.model_copy(update={"zk_client": client})).handler
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.client.certificate, site.client.key)

    def answer(listener: socket.socket) -> None:
        with context.wrap_socket(listener.accept()[0], server_side=True) as server:
            server.sendall(b"firstsecond")
            server.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        with chosen.create_connection(listener.getsockname(), hostname="127.0.0.1", timeout=30) as connected:
            assert connected.recv(5) == b"first"
            assert chosen.select([connected], [], [], 0)[0] == [connected]


def test_a_server_of_another_authority_is_refused(secure: Settings, tmp_path: Path) -> None:
    other = authority(tmp_path / "other")

    message = refusal(secure, zk_tls_ca=other.certificate)

    assert f"the certificate of {secure.zk_hosts} is refused" in message
    assert "ARKLINE_ZK_TLS_CA" in message


def test_a_certificate_of_another_server_is_refused(site: Site, secure: Settings, tmp_path: Path) -> None:
    elsewhere = site.authority.issue("elsewhere", address="192.0.2.1")
    with running_tls(tmp_path, elsewhere, site.authority.certificate, ask_for_certificates=False) as hosts:
        message = refusal(secure, zk_hosts=hosts)

    assert f"the certificate of {hosts} is refused: IP address mismatch" in message
    assert "ARKLINE_ZK_HOSTS the names" in message


def test_a_connection_without_tls_is_refused_and_told_why(secure: Settings) -> None:
    plain = {"zk_tls_ca": None, "zk_tls_certificate": None, "zk_tls_key": None}

    assert refusal(secure, **plain).endswith(f"{secure.zk_hosts} expects TLS: set ARKLINE_ZK_TLS_CA")


def test_a_server_without_tls_is_refused_and_told_why(settings: Settings, secure: Settings) -> None:
    message = refusal(secure, zk_hosts=settings.zk_hosts)

    assert f"{settings.zk_hosts} ends TLS" in message
    assert "secure client ports" in message


@pytest.mark.parametrize("shown", ["none", "of another authority"])
def test_a_client_whose_certificate_is_not_trusted_is_refused(
    secure: Settings, tmp_path: Path, shown: str
) -> None:
    wrong = authority(tmp_path / "other").issue("client")
    own = (None, None) if shown == "none" else (wrong.certificate, wrong.key)

    message = refusal(secure, zk_tls_certificate=own[0], zk_tls_key=own[1])

    assert f"{secure.zk_hosts} ends TLS" in message
    assert "ARKLINE_ZK_TLS_CERTIFICATE" in message


def test_files_that_cannot_be_used_are_named(secure: Settings, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"

    with pytest.raises(UsageRefused, match=r"missing\.pem cannot be used: .*ARKLINE_ZK_TLS_CA"):
        connect(secure.model_copy(update={"zk_tls_ca": missing}))
    with pytest.raises(UsageRefused, match=r"missing\.pem cannot be used: .*ARKLINE_ZK_TLS_KEY"):
        connect(secure.model_copy(update={"zk_tls_key": missing}))


STRANGERS = "192.0.2.1:2181,127.0.0.1:2181"


def test_a_record_outside_loopback_needs_a_user(settings: Settings) -> None:
    with pytest.raises(UsageRefused, match=r"192\.0\.2\.1 is not on this machine.*ARKLINE_ZK_USER"):
        connect(settings.model_copy(update={"zk_hosts": STRANGERS}))
    refused = cli.run(settings.model_copy(update={"zk_hosts": "zookeeper:2181"}), "jobs")
    assert (refused.code, refused.out) == (2, "")
    assert "ARKLINE_ZK_OPEN=1" in refused.err


@pytest.mark.parametrize("given", [{"zk_user": "u", "zk_password": SecretStr("p")}, {"zk_open": True}])
def test_a_record_outside_loopback_is_tried_with_a_user_or_on_demand(
    settings: Settings, given: dict[str, Any]
) -> None:
    message = refusal(settings, zk_hosts="no-such-host.invalid:2181", **given)

    assert "does not answer" in message


def test_a_command_of_a_user_who_is_refused_says_so_and_does_not_wait_for_the_record(
    settings: Settings,
) -> None:
    owner = {"zk_user": "arkline", "zk_password": SecretStr("a password")}
    with connect(settings.model_copy(update=owner)):
        other = settings.model_copy(update={**owner, "zk_password": SecretStr("another password")})
        refused = cli.run(other, "jobs")

    message = f"error: ZooKeeper at {settings.zk_hosts} refuses this user: check ARKLINE_ZK_USER\n"
    assert (refused.code, refused.err[-len(message) :]) == (3, message)


@pytest.mark.parametrize("hosts", ["localhost:2181", "127.0.0.2:2181", "[::1]:2181"])
def test_loopback_needs_no_user(settings: Settings, hosts: str) -> None:
    make_client(settings.model_copy(update={"zk_hosts": hosts})).close()
