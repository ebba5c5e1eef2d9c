"""Certificates of a test: an authority that signs certificates for 127.0.0.1."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.requirements import unavailable

_KEY = ("-newkey", "rsa:2048", "-nodes")


@dataclass(frozen=True)
class Certificate:
    """Files in PEM; the key in PKCS #8, as Java reads it."""

    certificate: Path
    key: Path

    def both(self) -> Path:
        """One file with the key and the certificate."""
        if self.certificate == self.key:
            return self.key
        path = self.certificate.with_suffix(".both.pem")
        path.write_bytes(self.key.read_bytes() + self.certificate.read_bytes())
        return path


@dataclass(frozen=True)
class Authority:
    own: Certificate

    @property
    def certificate(self) -> Path:
        return self.own.certificate

    def issue(self, name: str, address: str = "127.0.0.1") -> Certificate:
        """A certificate for a server at `address`, or for a client."""
        folder = self.certificate.parent
        made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
        request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName=IP:{address}\nauthorityKeyIdentifier=keyid\n")
        _openssl("req", *_KEY, "-subj", f"/CN={name}", "-keyout", str(made.key), "-out", str(request))
        signer = ("-CA", str(self.certificate), "-CAkey", str(self.own.key), "-CAcreateserial")
        files = ("-in", str(request), "-out", str(made.certificate), "-extfile", str(extensions))
        _openssl("x509", "-req", *signer, *files, "-days", "2")
        return made


def authority(folder: Path) -> Authority:
    """A new authority with its files in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    own = Certificate(folder / "authority.pem", folder / "authority.key")
    output = ("-keyout", str(own.key), "-out", str(own.certificate))
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # which Python 3.13 demands
    _openssl("req", "-x509", *_KEY, "-subj", f"/CN=authority {folder.name}", "-days", "2", *usage, *output)
    return Authority(own)


def _openssl(*arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        unavailable("openssl is needed to make certificates: apt-get install openssl")
    subprocess.run([program, *arguments], check=True, capture_output=True)
