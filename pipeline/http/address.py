"""Which addresses content may come from, checked on every connection that is made.

Rule: a host is looked up once, its addresses are checked, and only a checked address is connected to. So a
redirect, a name of a private address and a name that changes its address between check and use are
all refused; and no host on a private network receives a request.
"""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from ipaddress import ip_address
from typing import Self
from urllib.parse import unquote, urljoin

from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.response import BaseHTTPResponse
from urllib3.util import Url, make_headers, parse_url
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

_REDIRECT = frozenset({301, 302, 303, 307, 308})
_DEFAULT_PORT = {"http": 80, "https": 443}


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


def _pools(allowed: Networks, sources: Sources, exchange: Exchange, certificates: str) -> PoolManager:
    """Pools of connections that check the addresses which they are made to."""
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

    pools = PoolManager(CONNECTIONS, maxsize=CONNECTIONS, cert_reqs="CERT_REQUIRED", ca_certs=certificates)
    pools.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
    return pools


class ContentSession:
    """Requests to sources: checked addresses, no cookies, nothing taken from the environment; close it.

    It may be used by several threads at a time: it keeps no state but pools of connections.
    """

    def __init__(self, allowed: Networks, sources: Sources = EVERYWHERE, certificates: str = "") -> None:
        """`certificates`: a file of the authorities that are trusted; empty: those of the web."""
        self._sources = sources
        self._exchange = Exchange()
        self._pools = _pools(allowed, sources, self._exchange, certificates or DEFAULT_CA_BUNDLE_PATH)
        self._headers = {
            "User-Agent": f"arkline/{version('arkline')}",
            "Accept-Encoding": "identity",  # the bytes as they are stored, without a content coding
            "Accept": "*/*",
            "Connection": "keep-alive",
        }

    def close(self) -> None:
        self._pools.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def request(
        self,
        method: str,
        url: str,
        timeout: Timeout,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> BaseHTTPResponse:
        """The answer with its body unread, to be closed by `leave`. Redirects are followed, unless `body` was
        sent, and their bodies are never read.

        Errors: StepFailed for a refused address or URL; urllib3's HTTPError and UnicodeError for all else.
        """
        target = self._checked_source(url)
        sent = {**self._headers, **(headers or {}), **_password(target)}
        for _ in range(REDIRECTS + 1):
            response = self._send(method, target, timeout, sent, body)
            redirects = response.status in _REDIRECT and "location" in response.headers
            if body is not None or not redirects:
                return response
            leave(response)
            before, target = target, self._checked_source(_redirection(response))
            if before.host != target.host:
                self._exchange.redirected(host_of(target.url))
            if not _keeps_password(before, target):
                sent.pop("Authorization", None)
        leave(response)
        raise content(f"{redact_url(url)} redirects more than {REDIRECTS} times: give the URL it leads to")

    def _send(
        self, method: str, target: Url, timeout: Timeout, headers: Mapping[str, str], body: bytes | None
    ) -> BaseHTTPResponse:
        pool = self._pools.connection_from_host(target.host, target.port, target.scheme)
        response = pool.urlopen(
            method,
            target.request_uri,
            body,
            headers,
            retries=False,
            redirect=False,
            assert_same_host=False,
            timeout=timeout,
            preload_content=False,
            decode_content=False,
        )
        response.url = target.url
        return response

    def _checked_source(self, url: str) -> Url:
        """The parts of a URL that may be requested; StepFailed of another one."""
        check_url(url)
        target = parse_url(url)
        host, scheme = (target.host or "").strip("[]"), target.scheme or ""
        if not self._sources.may_have(host, target.port or _DEFAULT_PORT[scheme]):
            raise SourceRefused(host, target.port or _DEFAULT_PORT[scheme])
        return target


def leave(response: BaseHTTPResponse) -> None:
    """End the use of an answer: its connection is kept for another request if the body was read whole."""
    response.close()
    response.release_conn()


def _password(target: Url) -> dict[str, str]:
    """The header with the user and the password of a URL, if there are both."""
    if ":" not in (target.auth or ""):
        return {}
    return {"Authorization": make_headers(basic_auth=unquote(target.auth or ""))["authorization"]}


def _keeps_password(before: Url, target: Url) -> bool:
    """Whether a redirect stays with the server for which the password is; https instead of http does."""
    if before.host != target.host:
        return False
    ports = [place.port or _DEFAULT_PORT[place.scheme or ""] for place in (before, target)]
    if (before.scheme, target.scheme) == ("http", "https"):
        return ports == [80, 443]
    return before.scheme == target.scheme and ports[0] == ports[1]


def _redirection(response: BaseHTTPResponse) -> str:
    """The URL to which an answer redirects."""
    location = response.headers["location"]
    asked = response.url or ""
    try:
        # http.client reads headers as latin-1, but sources that send raw non-ASCII send UTF-8
        location = location.encode("latin-1").decode("utf-8", "replace")
        return parse_url(urljoin(asked, location)).url
    except ValueError as error:
        raise content(
            f"{redact_url(asked)} redirects to {quote_name(location)}, which is not a URL"
        ) from error
