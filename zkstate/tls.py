"""TLS to ZooKeeper, and why a server cannot be used: kazoo tries again for ever and gives no reason."""

import socket
import ssl
from collections.abc import Sequence
from typing import Any

from kazoo.hosts import collect_hosts

from pipeline.errors import UsageRefused
from pipeline.settings import Settings
from zkstate.shared_reading import SharingHandler

_ANSWER = 2.0
"""Seconds that a server may take for each part of the answer to the question why it cannot be used."""


class TlsHandler(SharingHandler):
    """Kazoo's own trusts every authority of the system too, leaves a socket open at every refusal, and waits
    for bytes that it has."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context
        self._hostname = ""
        """Of the server of the session."""

    def create_connection(
        self, address: Any, hostname: str | None, timeout: float, **_: Any
    ) -> ssl.SSLSocket:
        """`hostname`: None for a command (`mntr`) to the server of the session."""
        if hostname:
            self._hostname = hostname
        connection = socket.create_connection(address, timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._context.wrap_socket(connection, server_hostname=self._hostname)  # closes it if it fails

    def select(
        self,
        reading: Sequence[Any],
        writing: Sequence[Any],
        exceptional: object,
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Two answers may come in one piece: the socket then has nothing to read, but TLS has."""
        decrypted = [one for one in reading if isinstance(one, ssl.SSLSocket) and one.pending()]
        return (decrypted, [], []) if decrypted else super().select(reading, writing, exceptional, timeout)


def handler(settings: Settings) -> SharingHandler:
    """For kazoo's client; UsageRefused names a file that cannot be used."""
    if settings.zk_tls_ca is None:
        return SharingHandler()
    return TlsHandler(_context(settings))


def _context(settings: Settings) -> ssl.SSLContext:
    """Trusts the authority of the settings alone, and only certificates with the server's name or address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(settings.zk_tls_ca)
    except OSError as error:  # ssl.SSLError is one
        raise UsageRefused(f"{settings.zk_tls_ca} cannot be used: {error} (ARKLINE_ZK_TLS_CA)") from error
    if settings.zk_tls_certificate:
        try:
            context.load_cert_chain(settings.zk_tls_certificate, settings.zk_tls_key)
        except OSError as error:
            raise UsageRefused(
                f"{settings.zk_tls_certificate} with the key {settings.zk_tls_key} cannot be used: {error} "
                "(ARKLINE_ZK_TLS_CERTIFICATE, ARKLINE_ZK_TLS_KEY)"
            ) from error
    return context


def why_unreachable(settings: Settings) -> str:
    """The likely reason why no server could be used, with the remedy; asks the servers one after another."""
    hosts, _ = collect_hosts(settings.zk_hosts)
    ask = _problem_of_tls if settings.zk_tls_ca else _problem_of_plain_text
    problems = (ask(settings, host.strip(), int(port)) for host, port in hosts)
    return next(filter(None, problems), "is it running? (ARKLINE_ZK_HOSTS)")


def _problem_of_tls(settings: Settings, host: str, port: int) -> str:
    """Empty if TLS is not the reason."""
    try:
        _exchange(_context(settings), host, port)
    except ssl.SSLCertVerificationError as error:
        return (
            f"the certificate of {host}:{port} is refused: {error.verify_message} (ARKLINE_ZK_TLS_CA has to "
            "name the authority of the certificate, and ARKLINE_ZK_HOSTS the names in the certificate)"
        )
    except (ssl.SSLError, ConnectionResetError) as error:
        return (
            f"{host}:{port} ends TLS: {getattr(error, 'reason', None) or error} (ARKLINE_ZK_HOSTS has to "
            "name secure client ports, and ARKLINE_ZK_TLS_CERTIFICATE a certificate that ZooKeeper trusts)"
        )
    except OSError:
        return ""
    return ""


def _problem_of_plain_text(_: Settings, host: str, port: int) -> str:
    """Empty if TLS is not the reason."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only to learn whether the server speaks TLS: no secret is sent
    try:
        _exchange(context, host, port)
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return ""
    except OSError:
        return ""
    return f"{host}:{port} expects TLS: set ARKLINE_ZK_TLS_CA"


def _exchange(context: ssl.SSLContext, host: str, port: int) -> None:
    """Shake hands and read one answer: with TLS 1.3 a server refuses a certificate after the handshake."""
    with (
        socket.create_connection((host, port), _ANSWER) as connection,
        context.wrap_socket(connection, server_hostname=host) as encrypted,
    ):
        encrypted.sendall(b"srvr")
        encrypted.recv(1)
