"""The authority of one deployment and the certificates of its servers, as files that one command renews.

FOLDER/authority/NUMBER.pem   key and certificate of an authority: only who renews reads this folder
FOLDER/trust/authority.pem    the certificates of all valid authorities: what clients trust
FOLDER/SERVER/server.pem      key and certificate of a server, in one file so that both are replaced at once
FOLDER/SERVER/authority.pem   as in `trust`, for servers that talk to each other

What has to be done follows from the files and the clock alone, so a renewal that was killed is completed by
the next one. Each file is replaced as a whole. PEM, keys in PKCS #8, as ZooKeeper reads them.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pipeline import file_system
from pipeline.records import Record

SERVERS: Mapping[str, tuple[str, ...]] = {
    "zookeeper": ("zookeeper", "zookeeper-2", "zookeeper-3"),
    "redis": ("redis",),
    "postgresql": ("postgresql",),
}
"""Folder -> the names under which clients reach the servers of docker-compose.yml."""

AUTHORITY, TRUST = "authority", "trust"
SERVER_FILE, AUTHORITY_FILE = "server.pem", "authority.pem"

BACKDATED = timedelta(hours=1)
"""Certificates are valid from before they are made: clocks of other hosts may be behind."""

SPREAD_TIME = timedelta(days=1)
"""Before it signs, a new authority is trusted for this long, so that all clients have its certificate."""


class Lifetimes(Record):
    """How long new certificates are valid; they are renewed when a third of the time is left."""

    server: timedelta = timedelta(days=30)
    authority: timedelta = timedelta(days=3650)


@dataclass(frozen=True)
class Issued:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def pem(self) -> bytes:
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return key + public_pem(self.certificate)


def public_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def renew(
    folder: Path,
    servers: Mapping[str, Sequence[str]] = SERVERS,
    lifetimes: Lifetimes | None = None,
    *,
    at_once: bool = False,
) -> list[str]:
    """Make missing, unusable and old certificates anew, those of servers always if `at_once`.

    `servers`: folder -> names and addresses in the certificate. Returns the files that were replaced,
    relative to the folder.
    """
    times, replaced = lifetimes or Lifetimes(), list[str]()
    with _locked(folder):
        now = datetime.now(UTC)
        unexpired = _authorities(folder, now)
        signers = [one for one in unexpired if _is_valid(one.certificate, now)]
        if not signers or _is_old(signers[-1].certificate, now):
            new = _new_authority(now, times.authority)
            _replace(
                folder / f"{AUTHORITY}/{new.certificate.serial_number:x}.pem", new.pem(), replaced, folder
            )
            signers, unexpired = [*signers, new], [*unexpired, new]
        trusted = b"".join(public_pem(one.certificate) for one in reversed(unexpired))
        for place in (TRUST, *servers):
            _replace(folder / place / AUTHORITY_FILE, trusted, replaced, folder)
        signer = _signer(signers, now)
        for server, names in servers.items():
            path = folder / server / SERVER_FILE
            if at_once or not _is_usable(path, names, signers, now):
                _replace(path, _new_server(signer, server, names, now, times).pem(), replaced, folder)
    return replaced


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    own = folder / AUTHORITY
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    (own / "lock").touch(0o600)
    with (own / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _authorities(folder: Path, now: datetime) -> list[Issued]:
    """The authorities that have not expired, the newest last; unreadable files are not among them.

    One that is valid only later was made with another clock than this one, perhaps the right one.
    """
    read = (read_issued(path) for path in sorted((folder / AUTHORITY).glob("*.pem")))
    unexpired = [one for one in read if one is not None and now < one.certificate.not_valid_after_utc]
    return sorted(unexpired, key=lambda one: one.certificate.not_valid_before_utc)


def read_issued(path: Path) -> Issued | None:
    """The key and the certificate in the file; None if it is missing or has anything else."""
    try:
        data = path.read_bytes()
        key = serialization.load_pem_private_key(data, password=None)
        certificate = x509.load_pem_x509_certificate(data)
    except (FileNotFoundError, ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: key with a password
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return Issued(key=key, certificate=certificate)


def _signer(signers: Sequence[Issued], now: datetime) -> Issued:
    """The newest authority that clients have had time to read; else the one that they trust longest."""
    spread = [
        one
        for one in signers
        if one.certificate.not_valid_before_utc + BACKDATED + SPREAD_TIME <= now
        and not _is_old(one.certificate, now)
    ]
    return spread[-1] if spread else signers[0]


def _is_usable(path: Path, names: Sequence[str], signers: Sequence[Issued], now: datetime) -> bool:
    own = read_issued(path)
    if own is None or _is_old(own.certificate, now) or not _is_valid(own.certificate, now):
        return False
    try:
        stated = own.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):  # by another program
        return False
    return stated == _names(names) and any(_signed(own.certificate, one.certificate) for one in signers)


def _signed(certificate: x509.Certificate, signer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    """Not if it was made while the clock was ahead: nobody would accept it before."""
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _is_old(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc + BACKDATED, certificate.not_valid_after_utc
    return end - now < (end - begin) / 3


def _names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_name(name) for name in names])


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, now: datetime, end: datetime, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _new_authority(now: datetime, lifetime: timedelta) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(f"arkline {now:%Y-%m-%d %H:%M:%S.%f}")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip
    certificate = (
        _builder(subject, now, now + lifetime, key)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return Issued(key=key, certificate=certificate)


def _new_server(signer: Issued, server: str, names: Sequence[str], now: datetime, times: Lifetimes) -> Issued:
    """Only ZooKeepers are clients of each other: no other server's certificate is accepted from a client."""
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + times.server, signer.certificate.not_valid_after_utc)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH]
    if server == "zookeeper":
        uses.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    identifier = x509.SubjectKeyIdentifier.from_public_key(signer.key.public_key())
    certificate = (
        _builder(_subject(server), now, end, key)
        .issuer_name(signer.certificate.subject)
        .add_extension(_names(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .sign(signer.key, hashes.SHA256())
    )
    return Issued(key=key, certificate=certificate)


def _replace(path: Path, data: bytes, replaced: list[str], folder: Path) -> None:
    """Replace the file if its content differs; mode and owner stay, and a new key is its owner's alone."""
    before = path.stat() if path.exists() else None
    if before is not None and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)
    draft.touch(0o600)
    file_system.write_file(draft, data)
    draft.chmod(before.st_mode & 0o777 if before else 0o644 if path.name == AUTHORITY_FILE else 0o600)
    if before is not None and os.geteuid() == 0:
        os.chown(draft, before.st_uid, before.st_gid)
    file_system.sync(draft)
    draft.replace(path)
    file_system.sync(path.parent)
    replaced.append(str(path.relative_to(folder)))
