"""The certificates that servers show: until when they are valid, and what to do about an expired one."""

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

ANSWER_TIMEOUT = 2.0
"""Seconds for a connection and for each of its answers."""

RENEW_BEFORE = timedelta(days=7)
"""Whose certificate ends sooner has missed its renewal, 10 days before the end of one of 30 days."""

_WHATEVER_THE_TIME = ssl.VerifyFlags(0x200000)
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name."""


def context(authority: Path | str | None) -> ssl.SSLContext:
    """Trusts only the authorities in the file, those of the system for None; OSError if it cannot be read."""
    if authority is None:
        return ssl.create_default_context()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(authority)
    return trusting


def valid_until(trusting: ssl.SSLContext, host: str, port: int) -> datetime:
    """When the server's certificate ends, even if that is past; OSError for any other fault.

    The context is changed: it no longer judges the time.
    """
    trusting.verify_flags |= _WHATEVER_THE_TIME
    with (
        socket.create_connection((host, port), ANSWER_TIMEOUT) as connection,
        trusting.wrap_socket(connection, server_hostname=host) as encrypted,
    ):
        shown = encrypted.getpeercert() or {}
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), UTC)


def expired(trusting: ssl.SSLContext, host: str, port: int) -> str:
    """The message if the certificate of the server or of its authority has expired; else an empty text."""
    try:
        end = valid_until(trusting, host, port)
    except OSError:
        return ""
    if end >= datetime.now(UTC):
        return ""
    return (
        f"the certificate of {host}:{port} expired on {end:%Y-%m-%d at %H:%M} UTC: renew the certificates "
        "where the folder of their authority is (docs/operators/trust.md#certificates)"
    )
