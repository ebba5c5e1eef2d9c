"""Which addresses content may come from, checked on every connection that is made.

Rule: a host is looked up once, its addresses are checked, and only a checked address is connected to. So a
redirect, a name of a private address and a name that changes its address between check and use are
all refused; and no host on a private network receives a request.
"""

import socket
from collections.abc import Sequence
from http.cookiejar import DefaultCookiePolicy
from importlib.metadata import version
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urljoin

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.connection import allowed_gai_family, create_connection

from pipeline.outcome import StepFailed, content
from pipeline.settings import Settings
from pipeline.states import FailureKind
from pipeline.urls import check_url, redact_url

REDIRECTS = 10
"""Redirects followed from one URL; browsers stop at 20, and honest chains have two or three."""

CONNECTIONS = 64
"""Connections kept open for later requests; settings.download_threads is at most this."""

_NAT64 = IPv6Network("64:ff9b::/96")

Address = IPv4Address | IPv6Address
Networks = tuple[IPv4Network | IPv6Network, ...]


class AddressRefused(StepFailed):
    """The source is at an address that content may not come from."""

    def __init__(self, host: str, address: Address) -> None:
        super().__init__(
            FailureKind.CONTENT,
            f"{host} is at {address}, which is not a public address: content is not fetched from there; "
            "an operator may allow its network by the setting ARKLINE_ALLOW_NETWORKS",
        )


def permitted(address: Address, allowed: Networks) -> bool:
    """True if content may come from `address`: it is public, or in an allowed network."""
    inner = _inner(address)
    if any(candidate in network for network in allowed for candidate in (address, inner)):
        return True
    return inner.is_global and not (
        inner.is_multicast
        or inner.is_reserved
        or inner.is_loopback
        or inner.is_link_local
        or inner.is_unspecified
        or getattr(inner, "is_site_local", False)
    )


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for (mapped, 6to4, NAT64), or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


class _CheckedConnection(HTTPConnection):
    allowed: Networks = ()

    def _new_conn(self) -> socket.socket:
        fault: OSError | None = None
        for address in self._checked_addresses():
            try:
                return create_connection(
                    (address, self.port),
                    self.timeout,
                    source_address=self.source_address,
                    socket_options=self.socket_options,
                )
            except OSError as error:
                fault = error
        if isinstance(fault, TimeoutError):
            raise ConnectTimeoutError(self, f"no connection to {self.host}") from fault
        raise NewConnectionError(self, str(fault)) from fault

    def _checked_addresses(self) -> Sequence[str]:
        """The host's addresses that may be connected to; AddressRefused if there is none."""
        name = self._dns_host.strip("[]")
        try:
            answers = socket.getaddrinfo(name, self.port, allowed_gai_family(), socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except UnicodeError as error:
            raise content(f"'{self.host}' is not a host name") from error
        addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in answers))
        usable = [address for address in addresses if permitted(ip_address(address), self.allowed)]
        if addresses and not usable:
            raise AddressRefused(self.host, ip_address(addresses[0]))
        return usable


class _CheckedSecureConnection(_CheckedConnection, HTTPSConnection):
    pass


class _CheckedAdapter(HTTPAdapter):
    def __init__(self, allowed: Networks) -> None:
        class Plain(_CheckedConnection):
            pass

        class Secure(_CheckedSecureConnection):
            pass

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        Plain.allowed = Secure.allowed = allowed
        super().__init__(pool_connections=CONNECTIONS, pool_maxsize=CONNECTIONS)
        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}


class ContentSession(requests.Session):
    """A session for sources: checked addresses, no cookies, nothing taken from the environment.

    It may be used by several threads at a time: it keeps no state but a pool of connections.
    """

    def __init__(self, allowed: Networks) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self.headers["User-Agent"] = f"arkline/{version('arkline')}"
        for scheme in ("http://", "https://"):
            self.mount(scheme, _CheckedAdapter(allowed))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """None always: `send` follows redirects, and unlike the library never reads a redirect's body."""
        return None

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        follow = options.pop("allow_redirects", True) and request.method in ("GET", "HEAD")
        stream = options.pop("stream", False)
        asked = request.url or ""
        for _ in range(REDIRECTS + 1):
            check_url(request.url or "")
            response = super().send(request, allow_redirects=False, stream=True, **options)
            if not (follow and response.is_redirect):
                if not stream:
                    _ = response.content
                return response
            response.close()
            request = self._redirected(request, response)
        raise content(f"{redact_url(asked)} redirects more than {REDIRECTS} times: give the URL it leads to")

    def _redirected(
        self, request: requests.PreparedRequest, response: requests.Response
    ) -> requests.PreparedRequest:
        # http.client reads headers as latin-1, but sources that send raw non-ASCII send UTF-8
        location = response.headers["location"].encode("latin-1").decode("utf-8", "replace")
        target = request.copy()
        target.prepare_url(urljoin(response.url, location), None)
        self.rebuild_auth(target, response)  # type: ignore[no-untyped-call]  # not in its stubs
        return target


def session_for(settings: Settings) -> requests.Session:
    """A session that connects only to addresses the settings allow; close it when done."""
    return ContentSession(settings.allow_networks)
