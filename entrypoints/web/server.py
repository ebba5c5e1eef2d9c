"""Serving the application with uvicorn, in one process."""

from collections.abc import Callable
from ipaddress import ip_network
from socket import socket

import uvicorn
from fastapi import FastAPI

from entrypoints.web.slow_clients import ClientLimits, limited
from pipeline.errors import UsageRefused

STOP_SECONDS = 5
"""Seconds that a stopping server waits for requests that are being answered."""


class Server(uvicorn.Server):
    """Calls `on_ready` with the port once requests are accepted, and `on_stop` before the last answers."""

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[int], None], on_stop: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready(self.servers[0].sockets[0].getsockname()[1])

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)


def server(
    app: FastAPI,
    host: str,
    port: int,
    on_ready: Callable[[int], None],
    proxies: str = "",
    limits: ClientLimits = ClientLimits(),  # noqa: B008 - frozen
) -> Server:
    """`port` 0: a free one. `proxies`: whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed; nobody's
    if empty, since everybody on this machine can send from loopback.

    UsageRefused if `proxies` are no addresses and networks: uvicorn ignores what it cannot read.
    """
    networks = _networks(proxies)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=limited(limits, networks),  # h11 bounds the head of a request; uvicorn prefers httptools
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        forwarded_allow_ips=networks,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return Server(config, on_ready, app.state.context.streams.close)


def _networks(proxies: str) -> list[str]:
    named = [entry.strip() for entry in proxies.split(",") if entry.strip()]
    for entry in named:
        try:
            ip_network(entry)
        except ValueError as error:
            raise UsageRefused(
                f"ARKLINE_WEB_PROXIES: {error}; name addresses and networks, separated by commas"
            ) from error
    return named
