"""Requests to sources and to receivers of callbacks, and where their redirects may lead.

Rule: this module resolves a host and checks its addresses, and lets libcurl connect to a checked address and
to nothing else. So a redirect to a private address, a name that resolves to one and a name that changes its
address between check and use are all refused, and no host on a private network receives a request.

The table of networks is our own, because Python's differs by patch release: IANA's special-purpose address
registries (IPv4 and IPv6, RFC 6890), without the networks that they call globally reachable, and multicast.
"""

import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import version
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from queue import Empty, SimpleQueue
from typing import Self
from urllib.parse import unquote, urljoin

from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3.util import Url, make_headers, parse_url
from urllib3.util.connection import allowed_gai_family

from pipeline import causes
from pipeline.allowed_networks import AllowedNetwork
from pipeline.http.transfer import (
    CHECK_INTERVAL,
    IS_TLS,
    Channel,
    ConnectionFault,
    Dropped,
    NotUnderstood,
    Response,
    Unreached,
)
from pipeline.http.urls import as_sent, check_url, place_of, redact_url, url_problem
from pipeline.names import quote_name
from pipeline.outcome import StepFailed, content
from pipeline.profiles.sources import EVERYWHERE, Sources
from pipeline.states import FailureKind

Address = IPv4Address | IPv6Address
Networks = tuple[AllowedNetwork, ...]

_NOT_PUBLIC_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, including clouds' metadata services
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, deprecated
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)

_PUBLIC_6 = IPv6Network("2000::/3")
"""The only part of IPv6 that is assigned for public use."""

_NOT_PUBLIC_6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, and Teredo
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)

_NAT64 = IPv6Network("64:ff9b::/96")


def permitted(address: Address, port: int, allowed: Networks) -> bool:
    """Whether content may come from there: the address is public, or address and port are allowed."""
    inner = _inner(address)
    if any(network.has(candidate, port) for network in allowed for candidate in (address, inner)):
        return True
    if isinstance(inner, IPv4Address):
        return not any(inner in network for network in _NOT_PUBLIC_4)
    return inner in _PUBLIC_6 and not any(inner in network for network in _NOT_PUBLIC_6)


def _inner(address: Address) -> Address:
    """The IPv4 address embedded in an IPv6 address (mapped, 6to4, NAT64), or else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


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
        self.cause = causes.ADDRESS_REFUSED(host=host)
        self.detail = f"{host} is at {address}, port {port}"


class SourceRefused(StepFailed):
    """The host is not one of the sources of the collection; which those are is for the log."""

    def __init__(self, host: str, port: int, place: str = "") -> None:
        super().__init__(
            FailureKind.CONTENT,
            f"content of this collection is not fetched from {host}: give a URL of its sources, or ask our "
            "staff to list the host in its profile",
        )
        self.cause = causes.SOURCE_REFUSED(host=host)
        self.detail = f"{place or host}, port {port}, is none of the sources of the profile"


REDIRECTS = 10
"""Maximum redirects followed from one URL; browsers stop at 20, and legitimate chains have two or three."""

DEFAULT_PORT = {"http": 80, "https": 443}

_LOOKED_UP_FOR = 60.0
"""Seconds for which a host's addresses are cached; as in libcurl."""

_HOSTS = 1000
"""Maximum hosts whose addresses are cached."""

_URL = re.compile(r"(?P<server>[^/?#]*//[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_REDIRECT = frozenset({301, 302, 303, 307, 308})


class ContentSession:
    """Requests to sources: checked addresses, no cookies, no environment settings; must be closed.

    Thread-safe: every request takes a channel of its own.
    """

    def __init__(
        self,
        allowed: Networks,
        sources: Sources = EVERYWHERE,
        certificates: str = "",
        *,
        connect_timeout: float = 10,
        read_timeout: float = 60,
    ) -> None:
        """`certificates`: a file with the trusted authorities; empty: those of the web.

        Timeouts in seconds: for connecting, TLS included, and for a wait without a byte.
        """
        self._allowed = allowed
        self._sources = sources
        self._authorities = certificates or DEFAULT_CA_BUNDLE_PATH
        self._timeouts = connect_timeout, read_timeout
        self._known: dict[tuple[str, int], tuple[float, list[str]]] = {}
        """(host, port) -> time of the lookup, and the addresses that may be connected to."""
        self._mutex = threading.Lock()
        self._idle: list[Channel] = []
        """Free channels, as many as there were concurrent requests; the most recently used is last."""
        self._headers = {
            "User-Agent": f"arkline/{version('arkline')}",
            "Accept-Encoding": "identity",  # the bytes as stored, without a content coding
            "Accept": "*/*",
        }

    def close(self) -> None:
        """Close the connections that no request uses."""
        with self._mutex:
            idle, self._idle = self._idle, []
        for channel in idle:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        check: Callable[[], None] = lambda: None,
        redirected: Callable[[str], None] = lambda place: None,
    ) -> Response:
        """Send a GET, or a POST of `body`; the caller closes the answer, whose body is unread.

        Redirects are followed, unless `body` was sent; their bodies are never read.
        `check` is called every half second until the answer is closed; an exception from it ends the request.
        `redirected` is called with host and port before a request is redirected there.

        Raises StepFailed for a refused address or URL, ConnectionFault, and ValueError for a header that
        cannot be sent.
        """
        target = self._checked_source(url)
        sent = {**self._headers, **(headers or {}), **_password(target)}
        for _ in range(REDIRECTS + 1):
            response = self._send(target, sent, body, check)
            redirects = response.status in _REDIRECT and "location" in response.headers
            if body is not None or not redirects:
                return response
            response.close()
            before, target = target, self._checked_source(redirection(response))
            if place_of(before.url) != place_of(target.url):
                redirected(place_of(target.url))
            if not _keeps_password(before, target):
                sent.pop("Authorization", None)
        response.close()
        raise content(
            f"{redact_url(url)} redirects more than {REDIRECTS} times: give the URL it leads to"
        ).because(causes.SOURCE_UNUSABLE(host=place_of(url)))

    def _checked_source(self, url: str) -> Url:
        """The parts of a URL that may be requested; StepFailed for any other URL."""
        check_url(url)
        target = _parts(url)
        if not self._sources.may_have(*_place(target)):
            raise SourceRefused(*_place(target))
        return target

    def _send(
        self, target: Url, headers: Mapping[str, str], body: bytes | None, check: Callable[[], None]
    ) -> Response:
        """The response of the first address that can be connected to."""
        fault = ConnectionFault("the host has no address")
        server = _server(target)
        for address in self._addresses(target, check):
            channel = self._take(server)
            try:
                channel.begin(server, address, check, self._timeouts)
                head = channel.send(target.request_uri, headers.items(), body)
            except Unreached as error:
                self._release(channel)
                fault = error
            except BaseException as error:
                channel.close()
                if isinstance(error, Dropped) and self._speaks_tls(target, address, check):
                    raise NotUnderstood(IS_TLS, causes.TLS_FAILED) from error
                raise
            else:
                self._prefer(target, address)
                return Response(head.status, head.headers, target.url, head.reason, channel, self._release)
        raise fault

    def _speaks_tls(self, target: Url, address: str, check: Callable[[], None]) -> bool:
        """Whether the port dropped an http connection because it speaks TLS."""
        if target.scheme != "http":
            return False
        channel = Channel(self._authorities)
        secure = _server(target).replace("http:", "https:", 1)
        try:
            channel.begin(secure, address, check, self._timeouts)
            channel.connect()
        except ConnectionFault:
            return False
        finally:
            channel.close()
        return True

    def _take(self, server: str) -> Channel:
        """A free channel, if possible with a connection to the server."""
        with self._mutex:
            for index in range(len(self._idle) - 1, -1, -1):
                if self._idle[index].server == server:
                    return self._idle.pop(index)
            if self._idle:
                return self._idle.pop(0)
        return Channel(self._authorities)

    def _release(self, channel: Channel) -> None:
        if not channel.end():
            channel.close()
            return
        with self._mutex:
            self._idle.append(channel)

    def _addresses(self, target: Url, check: Callable[[], None]) -> list[str]:
        """The host's addresses that may be connected to; StepFailed if there is none."""
        place = _place(target)
        known = self._known.get(place)
        if known is None or time.monotonic() - known[0] > _LOOKED_UP_FOR:
            if len(self._known) >= _HOSTS:
                self._known.clear()
            self._known[place] = known = time.monotonic(), self._look_up(*place, check)
        return known[1]

    def _prefer(self, target: Url, address: str) -> None:
        """Try this address first from now on: not every request should wait for one that does not answer."""
        place = _place(target)
        since, addresses = self._known.get(place, (0.0, [address]))
        if addresses[0] != address:
            self._known[place] = since, sorted(addresses, key=lambda other: other != address)

    def _look_up(self, host: str, port: int, check: Callable[[], None]) -> list[str]:
        addresses = addresses_of(host, port, check)
        usable = [address for address in addresses if permitted(ip_address(address), port, self._allowed)]
        if not usable:
            raise AddressRefused(host, ip_address(addresses[0]), port)
        named = [address for address in usable if self._sources.has(host, ip_address(address), port)]
        if not named:
            raise SourceRefused(host, port, usable[0])
        return named


def addresses_of(host: str, port: int, check: Callable[[], None]) -> list[str]:
    """The addresses of `host`, in the resolver's order; ConnectionFault if it has none.

    The resolver cannot be interrupted, so a thread waits for it. An abandoned thread ends after the
    resolver's own timeouts, about 30 seconds.
    """
    answers: SimpleQueue[list[str] | Exception] = SimpleQueue()

    def look_up() -> None:
        try:
            answer = socket.getaddrinfo(host, port, allowed_gai_family(), socket.SOCK_STREAM)
            answers.put(list(dict.fromkeys(str(entry[4][0]) for entry in answer)))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    threading.Thread(target=look_up, name="look up a host", daemon=True).start()
    while True:
        check()
        try:
            answer = answers.get(timeout=CHECK_INTERVAL)
        except Empty:
            continue
        match answer:
            case socket.gaierror(errno=socket.EAI_NONAME):
                raise NotUnderstood("the host does not exist; check the URL", causes.HOST_UNKNOWN) from answer
            case socket.gaierror():
                raise Unreached(
                    f"the host's name cannot be resolved ({answer.strerror})", waited=False
                ) from answer
            case UnicodeError():
                raise content(f"'{host}' is not a host name").because(causes.URL_INVALID()) from answer
            case Exception():
                raise answer
            case _:
                return answer


def _port(target: Url) -> int:
    return target.port or DEFAULT_PORT[target.scheme or ""]


def _place(target: Url) -> tuple[str, int]:
    """Host and port, as used for the lookup."""
    return (target.host or "").strip("[]"), _port(target)


def _server(target: Url) -> str:
    return f"{target.scheme}://{target.host}:{_port(target)}"


def _password(target: Url) -> dict[str, str]:
    """The header with the URL's user and password, if the URL has both."""
    if ":" not in (target.auth or ""):
        return {}
    return {"Authorization": make_headers(basic_auth=unquote(target.auth or ""))["authorization"]}


def _keeps_password(before: Url, target: Url) -> bool:
    """Whether a redirect stays on the password's server; a change from http to https counts as staying."""
    if before.host != target.host:
        return False
    ports = [_port(before), _port(target)]
    if (before.scheme, target.scheme) == ("http", "https"):
        return ports == [80, 443]
    return before.scheme == target.scheme and ports[0] == ports[1]


def _parts(url: str) -> Url:
    """The parts of a URL: the server's normalized for comparison, path and query as they are sent."""
    server, path, query = _split(url)
    return _server_of(server)._replace(
        path=as_sent(path, path=True), query=None if query is None else as_sent(query)
    )


_server_of = lru_cache(maxsize=128)(parse_url)
"""The server's parts, cached: the files of an object mostly have the same server."""


def _split(url: str) -> tuple[str, str, str | None]:
    """Scheme and server, path, and query (None if there is none); the fragment is not sent."""
    written = _URL.match(url)
    assert written is not None
    return written["server"], written["path"], written["query"]


def redirection(response: Response) -> str:
    """The URL that an answer redirects to, without its fragment, which is not sent."""
    location = response.headers["location"]
    try:
        # headers were decoded as latin-1: this restores the bytes that were sent, whatever their encoding
        url = _joined(response.url, as_sent(location.encode("latin-1")).partition("#")[0])
    except ValueError as error:
        raise content(
            f"{redact_url(response.url)} redirects to {quote_name(location)}, which is not a URL"
        ).because(causes.SOURCE_UNUSABLE(host=place_of(response.url))) from error
    if problem := url_problem(url):
        raise content(f"{redact_url(response.url)} redirects to {problem}").because(
            causes.SOURCE_UNUSABLE(host=place_of(response.url))
        )
    return url


def _joined(asked: str, location: str) -> str:
    """Like urljoin, which rewrites dot segments and drops an empty query; keeps a whole path as it is."""
    server, path, _ = _split(asked)
    if _SCHEME.match(location):
        return location
    if location.startswith("//"):
        return server.partition("//")[0] + location
    if location.startswith("/"):
        return server + location
    if location.startswith("?"):
        return server + path + location
    return urljoin(asked, location)
