"""Serves the application with uvicorn in one process, with limits on slow clients.

uvicorn limits only the time between two requests. Here the head has a time limit, the body a minimum speed,
and an address a maximum number of connections. Rule: a connection is ended for what its client fails to do,
never for what this process has yet to do: a body that waits for this process is not slow.
"""

import asyncio
import resource
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from socket import socket
from typing import ClassVar

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from entrypoints.web.limits import client_of
from pipeline.errors import UsageRefused
from tasks.logs import log


def _connections() -> int:
    """The number of descriptors that this process may open, less 300 for files and other services."""
    return max(200, min(2000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 300))


@dataclass(frozen=True)
class ClientLimits:
    """The limits of one server."""

    head: float = 10.0
    """Seconds from the connection to the first byte of a request, and from there to the end of its head."""
    window: float = 30.0
    """Seconds over which the speed of a body is measured."""
    body: int = 3000
    """Minimum bytes of a body per window: a tenth of the slowest line in use (1 kB/s), which may stall."""
    unread: float = 300.0
    """Seconds for which a client may take no byte of its answer."""
    of_address: int = 200
    """Maximum connections of one address without a complete request; a browser opens six, and an
    institution is one address. For connections with a complete request, the limits on requests and streams
    apply."""
    fresh: float = 1.0
    """Seconds for which a new connection is not ended for its address: its request may still be unread."""
    most: int = _connections()


class ClientLimited(H11Protocol):
    """A connection. `limited` makes the class for one server, with the state that its connections share."""

    limits: ClassVar[ClientLimits]
    of_address: ClassVar[Counter[str]]
    """Address -> connections without a complete request; those of proxies have the address ""."""
    waiting: ClassVar[dict["ClientLimited", str]]
    """Connections without a request -> their address, in the order in which they began to wait."""
    networks: ClassVar[list[IPv4Network | IPv6Network]]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        self.address = "" if self._is_proxy(host) else client_of(host)
        self.since = self.loop.time()
        """When the head, or the window of the body, began."""
        self.arrived = 0
        self.unread = 0
        self.unread_since = self.since
        self.counted = False
        """Whether `of_address` counts this connection."""
        self._count(True)
        self.waiting[self] = self.address
        if self._is_crowded():
            self._end_one_of(
                one
                for one, address in self.waiting.items()
                if address == self.address and self.loop.time() - one.since > self.limits.fresh
            )
        elif len(self.connections) > self.limits.most:
            self._end_one_of(self.waiting)  # this one is the last of them
        self.look = self.loop.call_later(self._pause, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self.look.cancel()
        self.waiting.pop(self, None)
        self._count(False)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self in self.waiting and not self.arrived:
            self.since = self.loop.time()
        self.arrived += len(data)
        super().data_received(data)
        if self in self.waiting and self.conn.their_state is not h11.IDLE:
            del self.waiting[self]
            self._begin_window()
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE):
            self._count(False)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._begin_window()
        self.waiting.pop(self, None)
        if self.conn.their_state is h11.IDLE:
            self._count(True)
            self.waiting[self] = self.address

    @property
    def _pause(self) -> float:
        return min(self.limits.head, self.limits.window, self.limits.unread) / 5

    def _begin_window(self) -> None:
        self.since, self.arrived = self.loop.time(), 0

    def _look(self) -> None:
        if fault := self._fault():
            log().info("slow client", client=self.client[0] if self.client else "", fault=fault)
            self.transport.abort()
            return
        self.look = self.loop.call_later(self._pause, self._look)

    def _fault(self) -> str:
        """What the client failed to do in time; empty if nothing."""
        now = self.loop.time()
        unread = self.transport.get_write_buffer_size()
        if not unread or unread != self.unread:
            self.unread, self.unread_since = unread, now
        elif now - self.unread_since > self.limits.unread:
            return f"took no byte of its answer for {self.limits.unread:g} s"
        if self in self.waiting:
            if unread:
                self.since = now  # the client is still taking its last answer
            if self._is_crowded() and now - self.since > self.limits.fresh:
                return f"one of more than {self.limits.of_address} connections of its address"
            return f"no request within {self.limits.head:g} s" if now - self.since > self.limits.head else ""
        if self.conn.their_state is not h11.SEND_BODY or self._is_body_awaited_here():
            self._begin_window()
        elif now - self.since > self.limits.window:
            if self.arrived < self.limits.body:
                return f"sent {self.arrived} bytes of its body in {self.limits.window:g} s"
            self._begin_window()
        return ""

    def _is_body_awaited_here(self) -> bool:
        """Whether this process has paused reading, or has not asked for the body yet."""
        return self.flow.read_paused or self.cycle.waiting_for_100_continue

    def _count(self, counts: bool) -> None:
        if counts != self.counted:
            self.counted = counts
            self.of_address[self.address] += 1 if counts else -1
            if not self.of_address[self.address]:
                del self.of_address[self.address]

    def _is_crowded(self) -> bool:
        return bool(self.address) and self.of_address[self.address] > self.limits.of_address

    def _end_one_of(self, connections: Iterable["ClientLimited"]) -> None:
        """Abort the first connection that is not already closing."""
        one = next((one for one in connections if not one.transport.is_closing()), None)
        if one:
            one.transport.abort()

    def _is_proxy(self, host: str) -> bool:
        try:
            return any(ip_address(host) in network for network in self.networks)
        except ValueError:
            return False


def limited(limits: ClientLimits, proxies: Iterable[str]) -> type[H11Protocol]:
    """The protocol class of one server; `proxies`: addresses and networks that stand for many clients.

    If there are too many connections, the one that has waited longest for a request is ended, or the new one
    if none is waiting.
    """
    attributes = {
        "limits": limits,
        "of_address": Counter(),
        "waiting": {},
        "networks": [ip_network(proxy) for proxy in proxies],
    }
    return type("OfServer", (ClientLimited,), attributes)


STOP_SECONDS = 5
"""Seconds that a stopping server waits for requests in progress."""


class Server(uvicorn.Server):
    """Calls `on_ready` with the port once requests are accepted, `on_stop` before the last answers, and
    `on_end` after them."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_ready: Callable[[int], None],
        on_stop: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop
        self._on_end = on_end

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready(self.servers[0].sockets[0].getsockname()[1])

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)
        self._on_end()


def server(
    app: FastAPI,
    host: str,
    port: int,
    on_ready: Callable[[int], None],
    proxies: str = "",
    limits: ClientLimits = ClientLimits(),
) -> Server:
    """The server; `port` 0: a free one. `proxies`: whose `X-Forwarded-For` and `X-Forwarded-Proto` are
    trusted; if empty nobody's, because anyone on this machine can send from loopback.

    UsageRefused if `proxies` are not addresses or networks: uvicorn ignores what it cannot parse.
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
    context = app.state.context
    return Server(config, on_ready, context.streams.close, context.events.close)


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
