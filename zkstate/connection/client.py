"""The ZooKeeper client for the settings, and the reason why a server cannot be used.

Without a user, a client only works with servers on loopback. kazoo retries for ever and gives no reason.
"""

import socket
import ssl
from functools import partial
from typing import Any

from kazoo.security import make_digest_acl

from pipeline import peers
from pipeline.allowed_networks import is_loopback
from pipeline.errors import UsageRefused
from pipeline.settings import Settings
from zkstate.direct import Client, DirectHandler, StockHandler

MAX_RECONNECT_DELAY = 2.0
"""Maximum seconds between two tries to connect."""

_ANSWER = 2.0
"""Timeout in seconds for each step of the test that shows why a server cannot be used."""


def make_client(settings: Settings) -> Client:
    """A client, not started yet; UsageRefused if the settings would leave the record open to others."""
    _check_access_list(settings)
    return Client(
        hosts=settings.zk_hosts,
        handler=_handler(settings),
        timeout=settings.zk_session_timeout,
        connection_retry={"max_tries": -1, "delay": 0.2, "backoff": 1.5, "max_delay": MAX_RECONNECT_DELAY},
        command_retry={"max_tries": 5, "delay": 0.1, "max_delay": 1.0},
        **_credentials(settings),
    )


def _check_access_list(settings: Settings) -> None:
    if settings.zk_user or settings.zk_open:
        return
    if strangers := [host for host, _ in settings.zk_servers if not is_loopback(host)]:
        raise UsageRefused(
            f"ZooKeeper at {strangers[0]} is not on this machine, and without a user everybody who reaches "
            "that server can change the record: set ARKLINE_ZK_USER and ARKLINE_ZK_PASSWORD, or "
            "ARKLINE_ZK_OPEN=1 to work with an open record"
        )


def _credentials(settings: Settings) -> dict[str, Any]:
    if not settings.zk_user:
        return {}
    password = settings.zk_password.get_secret_value()
    return {
        "auth_data": [("digest", f"{settings.zk_user}:{password}")],
        "default_acl": [make_digest_acl(settings.zk_user, password, all=True)],
    }


def _handler(settings: Settings) -> StockHandler:
    """The handler for kazoo's client; UsageRefused names a file that cannot be used."""
    kind = DirectHandler if settings.zk_client == "direct" else StockHandler
    if not settings.zk_tls_ca:
        return kind()
    _check_files(settings)
    return kind(partial(tls_context, settings))


def _check_files(settings: Settings) -> None:
    try:
        peers.context(settings.zk_tls_ca)
    except OSError as error:  # ssl.SSLError is one
        raise UsageRefused(f"{settings.zk_tls_ca} cannot be used: {error} (ARKLINE_ZK_TLS_CA)") from error
    try:
        tls_context(settings)
    except OSError as error:
        raise UsageRefused(
            f"{settings.zk_tls_certificate} with the key {settings.zk_tls_key} cannot be used: {error} "
            "(ARKLINE_ZK_TLS_CERTIFICATE, ARKLINE_ZK_TLS_KEY)"
        ) from error


def tls_context(settings: Settings) -> ssl.SSLContext:
    """Trusts only the CA in the settings, and only certificates with the server's name; OSError."""
    context = peers.context(settings.zk_tls_ca)
    if settings.zk_tls_certificate:
        context.load_cert_chain(settings.zk_tls_certificate, settings.zk_tls_key)
    return context


def why_unreachable(settings: Settings) -> str:
    """The likely reason why no server could be used, with the remedy; tests the servers one after another."""
    ask = _problem_of_tls if settings.zk_tls_ca else _problem_of_plain_text
    problems = (ask(settings, host, port) for host, port in settings.zk_servers)
    return next(filter(None, problems), "is it running? (ARKLINE_ZK_HOSTS)")


def _problem_of_tls(settings: Settings, host: str, port: int) -> str:
    """Empty if TLS is not the reason."""
    try:
        _exchange(tls_context(settings), host, port)
    except ssl.SSLCertVerificationError as error:
        if expired := peers.expired(tls_context(settings), host, port):
            return expired
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
