"""Until when certificates are valid: those that servers show, and those in our files."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from operations.doctor.line import Line, line

RENEW_BEFORE = timedelta(days=21)
SECONDS = 3.0


def of_server(context: ssl.SSLContext, host: str, port: int, page: str) -> Line:
    """Of a server that speaks TLS from the first byte."""
    name = f"certificate of {host}:{port}"
    try:
        with (
            socket.create_connection((host, port), SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host) as encrypted,
        ):
            der = encrypted.getpeercert(binary_form=True)
    except OSError as error:  # of ssl, too
        return line(
            name, str(getattr(error, "verify_message", "") or error), f"renew it ({page})", wrong=True
        )
    assert der is not None  # the context verifies it
    return _until(name, x509.load_der_x509_certificate(der), page)


def of_files(page: str, *paths: Path | str | None) -> Iterator[Line]:
    for path in [Path(one) for one in paths if one]:
        try:
            for number, one in enumerate(x509.load_pem_x509_certificates(path.read_bytes()), 1):
                yield _until(f"certificate {number} in {path.name}", one, page)
        except (OSError, ValueError) as error:
            yield line(
                f"certificate in {path.name}",
                f"{path} cannot be read: {error}",
                f"correct it ({page})",
                wrong=True,
            )


def _until(name: str, certificate: x509.Certificate, page: str) -> Line:
    end = certificate.not_valid_after_utc
    left = end - datetime.now(UTC)
    fact = f"valid until {end:%Y-%m-%d %H:%M} UTC"
    return line(name, fact, f"renew it ({page})", warn=left < RENEW_BEFORE, wrong=left < timedelta())
