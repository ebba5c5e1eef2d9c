"""The authority of a deployment: what is renewed, when, and after what was interrupted."""

import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from operations.certificates import authority
from operations.certificates.authority import Lifetimes
from pipeline import file_system

SERVERS: Mapping[str, Sequence[str]] = {"zookeeper": ("zk-1", "192.0.2.1"), "redis": ("redis",)}
ALL = [
    "trust/authority.pem",
    "zookeeper/authority.pem",
    "redis/authority.pem",
    "zookeeper/server.pem",
    "redis/server.pem",
]


class Clock(datetime):
    """The clock of the module, which a test sets."""

    ahead = timedelta()

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return datetime.now(UTC) + cls.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(authority, "datetime", Clock)
    monkeypatch.setattr(Clock, "ahead", timedelta())
    return Clock


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def trusted(folder: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates((folder / "trust" / "authority.pem").read_bytes())


def signed(own: x509.Certificate, signer: x509.Certificate) -> bool:
    try:
        own.verify_directly_issued_by(signer)
    except (ValueError, InvalidSignature):
        return False
    return True


def verified(folder: Path) -> bool:
    """Whether every server's certificate is by an authority that clients trust."""
    return all(
        any(signed(certificate(folder / name / "server.pem"), one) for one in trusted(folder))
        for name in SERVERS
    )


def test_the_first_run_makes_everything_and_the_second_nothing(tmp_path: Path) -> None:
    first = authority.renew(tmp_path, SERVERS)

    assert first[1:] == ALL
    assert authority.renew(tmp_path, SERVERS) == []
    assert verified(tmp_path)
    own = certificate(tmp_path / "zookeeper" / "server.pem")
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["zk-1"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.1"]


def test_a_key_is_its_owners_alone_and_a_renewal_keeps_the_mode(tmp_path: Path) -> None:
    authority.renew(tmp_path, SERVERS)
    shared, own = tmp_path / "redis" / "server.pem", tmp_path / "zookeeper" / "server.pem"
    shared.chmod(0o640)
    authority.renew(tmp_path, SERVERS, at_once=True)

    assert (shared.stat().st_mode & 0o777, own.stat().st_mode & 0o777) == (0o640, 0o600)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "authority").glob("*.pem")] == [0o600]
    assert (tmp_path / "authority").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "trust" / "authority.pem").stat().st_mode & 0o777 == 0o644


def test_servers_are_renewed_when_two_thirds_of_their_time_are_over(
    tmp_path: Path, clock: type[Clock]
) -> None:
    authority.renew(tmp_path, SERVERS, Lifetimes(server=timedelta(days=30)))
    clock.ahead = timedelta(days=19)
    assert authority.renew(tmp_path, SERVERS) == []
    clock.ahead = timedelta(days=21)

    assert authority.renew(tmp_path, SERVERS) == ["zookeeper/server.pem", "redis/server.pem"]
    assert certificate(tmp_path / "redis" / "server.pem").not_valid_after_utc > datetime.now(UTC) + timedelta(
        50
    )


def test_a_new_authority_is_trusted_before_it_signs_and_the_old_one_until_its_end(
    tmp_path: Path, clock: type[Clock]
) -> None:
    times = Lifetimes(server=timedelta(days=30), authority=timedelta(days=300))
    authority.renew(tmp_path, SERVERS, times)
    (old,) = trusted(tmp_path)
    clock.ahead = timedelta(days=201)

    replaced = authority.renew(tmp_path, SERVERS, times)
    new, still = trusted(tmp_path)
    assert replaced[1:] == ALL  # those of servers were old as well
    assert still == old
    assert signed(certificate(tmp_path / "redis" / "server.pem"), old)

    clock.ahead += timedelta(days=2)
    authority.renew(tmp_path, SERVERS, times, at_once=True)
    assert signed(certificate(tmp_path / "redis" / "server.pem"), new)
    clock.ahead = timedelta(days=301)
    authority.renew(tmp_path, SERVERS, times)
    assert trusted(tmp_path) == [new]


def test_after_the_end_of_everything_one_run_makes_everything_new(tmp_path: Path, clock: type[Clock]) -> None:
    authority.renew(tmp_path, SERVERS)
    clock.ahead = timedelta(days=4000)

    assert authority.renew(tmp_path, SERVERS)[1:] == ALL
    assert verified(tmp_path)
    assert all(one.not_valid_after_utc > clock.now() for one in trusted(tmp_path))


@pytest.mark.parametrize("days", [-20_000, 20_000])
def test_certificates_of_a_wrong_clock_are_replaced_once_it_is_right(
    tmp_path: Path, clock: type[Clock], days: int
) -> None:
    clock.ahead = timedelta(days=days)
    authority.renew(tmp_path, SERVERS)
    clock.ahead = timedelta()

    assert authority.renew(tmp_path, SERVERS)[1:] == ALL
    now = datetime.now(UTC)
    for name in SERVERS:
        own = certificate(tmp_path / name / "server.pem")
        assert own.not_valid_before_utc < now < own.not_valid_after_utc
    assert verified(tmp_path)


def test_a_clock_that_is_wrong_for_a_while_loses_no_authority(tmp_path: Path, clock: type[Clock]) -> None:
    authority.renew(tmp_path, SERVERS)
    (ours,) = trusted(tmp_path)
    clock.ahead = timedelta(days=-20_000)
    authority.renew(tmp_path, SERVERS)
    assert ours in trusted(tmp_path)
    clock.ahead = timedelta()
    authority.renew(tmp_path, SERVERS)

    assert trusted(tmp_path) == [ours]
    assert verified(tmp_path)


class Killed(BaseException):
    """The process is killed."""


@pytest.mark.parametrize("writes", range(7))
def test_a_renewal_that_is_killed_leaves_what_clients_accept_and_the_next_one_completes_it(
    tmp_path: Path, clock: type[Clock], monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    times = Lifetimes(authority=timedelta(days=300))
    authority.renew(tmp_path, SERVERS, times)
    clock.ahead = timedelta(days=250)
    left = iter(range(writes))

    def sync(path: Path) -> None:
        if next(left, None) is None:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(file_system, "sync", sync)
        with pytest.raises(Killed):
            authority.renew(tmp_path, SERVERS, times)
    assert verified(tmp_path)
    for name in SERVERS:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / name / "server.pem")
    authority.renew(tmp_path, SERVERS, times)

    assert authority.renew(tmp_path, SERVERS, times) == []
    assert len(trusted(tmp_path)) == 2
    assert verified(tmp_path)


def test_a_damaged_file_and_other_names_are_replaced(tmp_path: Path) -> None:
    authority.renew(tmp_path, SERVERS)
    (tmp_path / "redis" / "server.pem").write_text("damaged")
    names = {**SERVERS, "zookeeper": ("zk-1", "zk-2")}

    assert authority.renew(tmp_path, names) == ["zookeeper/server.pem", "redis/server.pem"]


def test_a_certificate_without_names_and_a_key_with_a_password_are_replaced(tmp_path: Path) -> None:
    authority.renew(tmp_path, SERVERS)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "redis")])
    own = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    secret = serialization.BestAvailableEncryption(b"a password")
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    for server, encryption in ("redis", serialization.NoEncryption()), ("zookeeper", secret):
        data = key.private_bytes(pem, form, encryption) + own.public_bytes(pem)
        (tmp_path / server / "server.pem").write_bytes(data)

    assert authority.renew(tmp_path, SERVERS) == ["zookeeper/server.pem", "redis/server.pem"]
    assert verified(tmp_path)
