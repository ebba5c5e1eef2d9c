"""Which addresses content may come from, checked on every connection that is made.

Rule: a host is looked up once, its addresses are checked, and only a checked address is connected to. So a
redirect, a name of a private address and a name that changes its address between check and use are
all refused; and no host on a private network receives a request.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from importlib.metadata import version
from ipaddress import ip_address
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.connection import allowed_gai_family
from urllib3.util.ssl_ import create_urllib3_context

from pipeline.http.interruptible import Exchange, PlainSocket, TlsSocket, addresses_of
from pipeline.http.networks import Address, Networks, permitted
from pipeline.http.urls import check_url, host_of, redact_url
from pipeline.names import quote_name
from pipeline.outcome import StepFailed, content
from pipeline.profiles.sources import EVERYWHERE, Sources
from pipeline.states import FailureKind

REDIRECTS = 10
"""Redirects followed from one URL; browsers stop at 20, and honest chains have two or three."""

CONNECTIONS = 64
"""Connections kept open for later requests; settings.download_threads is at most this."""


class AddressRefused(StepFailed):
    """The source is at an address that content may not come from.

    The message does not tell the address: depositors read it, and could map a network that is not theirs.
    """

    def __init__(self, host: str, address: Address, port: int) -> None:
        super().__init__(
            FailureKind.CONTENT,
            f"{host} has no public address: content is not fetched from there; our staff may allow its "
            "network by the setting ARKLINE_ALLOW_NETWORKS",
        )
        self.detail = f"{host} is at {address}, port {port}"


class SourceRefused(StepFailed):
    """The host is not one of the sources of the collection; which those are is for the log."""

    def __init__(self, host: str, port: int, place: str = "") -> None:
        super().__init__(
            FailureKind.CONTENT,
            f"content of this collection is not fetched from {host}: give a URL of its sources, or ask our "
            "staff to list the host in its profile",
        )
        self.detail = f"{place or host}, port {port}, is none of the sources of the profile"


class _CheckedConnection(HTTPConnection):
    allowed: Networks = ()
    sources: Sources = EVERYWHERE
    exchange: Exchange
    socket_class: type[PlainSocket]

    def _new_conn(self) -> socket.socket:
        fault: OSError | None = None
        for address in self._checked_addresses():
            try:
                return self._connected_to(address)
            except OSError as error:
                fault = error
        if isinstance(fault, TimeoutError):
            raise ConnectTimeoutError(self, f"no connection to {self.host}") from fault
        raise NewConnectionError(self, str(fault)) from fault

    def _connected_to(self, address: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connection = self.socket_class(family, socket.SOCK_STREAM)
        try:
            for option in self.socket_options or ():
                connection.setsockopt(*option)
            connection.settimeout(self.timeout)
            connection.connect((address, self.port))
        except BaseException:
            connection.close()
            raise
        return connection

    def _checked_addresses(self) -> Sequence[str]:
        """The host's addresses that may be connected to; AddressRefused if there is none."""
        name = self._dns_host.strip("[]")
        try:
            addresses = addresses_of(name, self.port, allowed_gai_family(), self.exchange)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except UnicodeError as error:
            raise content(f"'{self.host}' is not a host name") from error
        usable = [address for address in addresses if permitted(ip_address(address), self.port, self.allowed)]
        if addresses and not usable:
            raise AddressRefused(self.host, ip_address(addresses[0]), self.port)
        named = [place for place in usable if self.sources.has(name, ip_address(place), self.port)]
        if usable and not named:
            raise SourceRefused(self.host, self.port, usable[0])
        return named


class _CheckedTlsConnection(_CheckedConnection, HTTPSConnection):
    tls_socket_class: type[TlsSocket]

    def connect(self) -> None:
        self.ssl_context = self.ssl_context or create_urllib3_context()
        self.ssl_context.sslsocket_class = self.tls_socket_class
        super().connect()


class _CheckedAdapter(HTTPAdapter):
    def __init__(self, allowed: Networks, sources: Sources, exchange: Exchange) -> None:
        own = {"exchange": exchange}
        sockets = {
            "allowed": allowed,
            "sources": sources,
            "socket_class": type("Socket", (PlainSocket,), own),
            "tls_socket_class": type("TlsSocket", (TlsSocket,), own),
            **own,
        }

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = type("Plain", (_CheckedConnection,), sockets)

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = type("Secure", (_CheckedTlsConnection,), sockets)

        super().__init__(pool_connections=CONNECTIONS, pool_maxsize=CONNECTIONS)
        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}


class ContentSession(requests.Session):
    """A session for sources: checked addresses, no cookies, nothing taken from the environment; close it.

    It may be used by several threads at a time: it keeps no state but a pool of connections.
    """

    def __init__(self, allowed: Networks, sources: Sources = EVERYWHERE) -> None:
        super().__init__()
        self._sources = sources
        self._exchange = Exchange()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self.headers["User-Agent"] = f"arkline/{version('arkline')}"
        for scheme in ("http://", "https://"):
            self.mount(scheme, _CheckedAdapter(allowed, sources, self._exchange))

    @contextmanager
    def checked(
        self, check: Callable[[], None], redirected: Callable[[str], None] = lambda host: None
    ) -> Iterator[None]:
        """In this block, the connections of this thread call `check` at least each second; what it raises
        ends the request, or the reading of its answer. `redirected` as in Exchange.
        """
        self._exchange.check, self._exchange.redirected = check, redirected
        try:
            yield
        finally:
            del self._exchange.check, self._exchange.redirected

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """None always: `send` follows redirects, and unlike the library never reads a redirect's body."""
        return None

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        follow = options.pop("allow_redirects", True) and request.method in ("GET", "HEAD")
        stream = options.pop("stream", False)
        asked = request.url or ""
        for _ in range(REDIRECTS + 1):
            self._check_source(request.url or "")
            response = super().send(request, allow_redirects=False, stream=True, **options)
            if not (follow and response.is_redirect):
                if not stream:
                    _ = response.content
                return response
            response.close()
            request = self._redirected(request, response)
            if (host := host_of(request.url or "")) != host_of(response.url):
                self._exchange.redirected(host)
        raise content(f"{redact_url(asked)} redirects more than {REDIRECTS} times: give the URL it leads to")

    def _check_source(self, url: str) -> None:
        check_url(url)
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme.lower() == "https" else 80)
        if not self._sources.may_have(host, port):
            raise SourceRefused(host, port)

    def _redirected(
        self, request: requests.PreparedRequest, response: requests.Response
    ) -> requests.PreparedRequest:
        location = response.headers["location"]
        target = request.copy()
        try:
            # http.client reads headers as latin-1, but sources that send raw non-ASCII send UTF-8
            location = location.encode("latin-1").decode("utf-8", "replace")
            target.prepare_url(urljoin(response.url, location), None)
        except ValueError as error:
            raise content(
                f"{redact_url(response.url)} redirects to {quote_name(location)}, which is not a URL"
            ) from error
        self.rebuild_auth(target, response)  # type: ignore[no-untyped-call]  # not in its stubs
        return target
