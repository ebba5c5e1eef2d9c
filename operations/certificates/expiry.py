"""Until when the certificates are valid that ZooKeeper and Redis show to this process."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

from pipeline import peers
from pipeline.settings import Settings
from zkstate.connection.client import tls_context


def valid_until(settings: Settings) -> dict[str, datetime]:
    """Server (`zookeeper`, `redis`) -> the end of its certificate, the first one of several servers.

    Nothing for a server that does not answer or is used without TLS. An authority is not looked at: what it
    signs ends before it does.
    """
    ends: dict[str, list[datetime]] = {}
    for server, trusting, host, port in servers(settings):
        with suppress(OSError):
            ends.setdefault(server, []).append(peers.valid_until(trusting, host, port))
    return {server: min(several) for server, several in ends.items()}


def expired_broker(settings: Settings) -> str:
    """What to say if Redis' certificate has expired; else an empty text. Takes some 2 seconds."""
    messages = (
        peers.expired(own, host, port) for name, own, host, port in servers(settings) if name == "redis"
    )
    return next(filter(None, messages), "")


def servers(settings: Settings) -> Iterator[tuple[str, ssl.SSLContext, str, int]]:
    """Name, context, host and port of each server that is used with TLS."""
    with suppress(OSError):
        if settings.zk_tls_ca:
            for host, port in settings.zk_servers:
                yield "zookeeper", tls_context(settings), host, port
        broker = urlsplit(settings.broker_url)
        if broker.scheme == "rediss" and broker.hostname:
            files = broker_files(settings)
            trusting = peers.context(files.get("ssl_ca_certs"))
            if own := files.get("ssl_certfile"):
                trusting.load_cert_chain(own, files.get("ssl_keyfile"))
            yield "redis", trusting, broker.hostname, broker.port or 6379


def broker_files(settings: Settings) -> dict[str, str]:
    """Parameter of the broker's URL (`ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`) -> path."""
    return {name: paths[0] for name, paths in parse_qs(urlsplit(settings.broker_url).query).items()}
