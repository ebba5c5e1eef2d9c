"""Connections to sources, made to checked addresses alone, and kept open for later requests.

Rule: a host is looked up once, its addresses are checked, and only a checked address is connected to. So a
redirect, a name of a private address and a name that changes its address between check and use are
all refused; and no host on a private network receives a request.
"""

import socket
import ssl
import threading
import weakref
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from ipaddress import ip_address

import urllib3.exceptions as faults
from urllib3 import Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util import Url
from urllib3.util.connection import allowed_gai_family
from urllib3.util.ssl_ import create_urllib3_context
from urllib3.util.ssl_match_hostname import CertificateError

from pipeline.http.interruptible import Exchange, PlainSocket, TlsSocket, addresses_of
from pipeline.http.networks import Networks, permitted
from pipeline.http.refusals import AddressRefused, SourceRefused
from pipeline.http.response import IS_TLS, NotUnderstood, Response, receive
from pipeline.outcome import content
from pipeline.profiles.sources import EVERYWHERE, Sources

IDLE_CONNECTIONS = 64
"""Connections kept open for later requests; settings.download_threads is at most this."""

DEFAULT_PORT = {"http": 80, "https": 443}

_NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"}
)
"""Reasons of OpenSSL for a peer that answers a handshake with other bytes than those of TLS."""

_NO_COMMON_TLS = frozenset(
    {
        "DH_KEY_TOO_SMALL",
        "NO_CIPHERS_AVAILABLE",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "TLSV1_ALERT_INSUFFICIENT_SECURITY",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "TLSV1_UNRECOGNIZED_NAME",
        "UNSAFE_LEGACY_RENEGOTIATION_DISABLED",
        "UNSUPPORTED_PROTOCOL",
        "WRONG_SIGNATURE_TYPE",
    }
)
"""Reasons of OpenSSL that stay until somebody changes the server."""

_Server = tuple[str, str, int]
"""Scheme, host and port."""


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
    """As the connection of urllib3, which checks certificate and host name, on checked addresses."""


class Connections:
    """Connections of one session; several threads may use it at a time."""

    def __init__(self, allowed: Networks, sources: Sources, exchange: Exchange, certificates: str) -> None:
        """`certificates`: a file of the authorities that are trusted."""
        own = {"exchange": exchange}
        checked = {
            "allowed": allowed,
            "sources": sources,
            "socket_class": type("Socket", (PlainSocket,), own),
            **own,
        }
        self._plain: type[HTTPConnection] = type("Plain", (_CheckedConnection,), checked)
        self._secure: type[HTTPSConnection] = type("Secure", (_CheckedTlsConnection,), checked)
        self._tls_socket = type("TlsSocket", (TlsSocket,), own)
        self._certificates = certificates
        self._mutex = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        self._idle: list[tuple[_Server, HTTPConnection]] = []
        """The last one was used last."""
        self.close = weakref.finalize(self, _close, self._idle)
        """Close what is kept; a session that is forgotten does that too."""

    def send(
        self, method: str, target: Url, timeout: Timeout, headers: Mapping[str, str], body: bytes | None
    ) -> Response:
        """The response to a request with its body unread; urllib3's HTTPError if there is none."""
        scheme = target.scheme or ""
        server = scheme, target.host or "", target.port or DEFAULT_PORT[scheme]
        request = _request(method, target, server, headers, body)
        timeout = timeout.clone()
        timeout.start_connect()
        connection = self._take(server)
        is_new = connection.sock is None
        try:
            open_socket = _connected(connection, timeout)
            open_socket.sendall(request)
            return receive(
                open_socket, method, target.url, lambda usable: self._release(server, connection, usable)
            )
        except BaseException as error:
            connection.close()
            if is_new and _is_dropped(error) and self._speaks_tls(server, timeout):
                raise NotUnderstood(IS_TLS) from error
            if (fault := _fault(error)) is not None:
                raise fault from error
            raise

    def _speaks_tls(self, server: _Server, timeout: Timeout) -> bool:
        """Whether the port closes a connection of http without a word because it speaks TLS."""
        scheme, host, port = server
        if scheme != "http":
            return False
        connection = self._secure(host.strip("[]"), port, ssl_context=self._tls_context())
        connection.timeout = _seconds(timeout.connect_timeout)
        try:
            connection.connect()
        except ssl.SSLCertVerificationError:
            pass
        except (OSError, faults.HTTPError):
            return False
        finally:
            connection.close()
        return True

    def _take(self, server: _Server) -> HTTPConnection:
        """A connection that was kept and is still open, or a new one, which is not open yet."""
        while (connection := self._idle_for(server)) is not None:
            if connection.is_connected:
                return connection
            connection.close()
        scheme, host, port = server
        name = host.strip("[]")
        if scheme == "http":
            return self._plain(name, port)
        return self._secure(name, port, ssl_context=self._tls_context())

    def _idle_for(self, server: _Server) -> HTTPConnection | None:
        with self._mutex:
            for index in range(len(self._idle) - 1, -1, -1):
                if self._idle[index][0] == server:
                    return self._idle.pop(index)[1]
        return None

    def _release(self, server: _Server, connection: HTTPConnection, usable: bool) -> None:
        if not usable:
            connection.close()
            return
        with self._mutex:
            self._idle.append((server, connection))
            surplus = self._idle.pop(0)[1] if len(self._idle) > IDLE_CONNECTIONS else None
        if surplus is not None:
            surplus.close()

    def _tls_context(self) -> ssl.SSLContext:
        """One for all connections: to load the authorities takes longer than a handshake."""
        with self._mutex:
            if self._tls is None:
                context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
                context.load_verify_locations(self._certificates)
                context.sslsocket_class = self._tls_socket
                self._tls = context
            return self._tls


def _fault(error: BaseException) -> faults.HTTPError | None:
    """What a fault of a connection is for a caller; None for another exception."""
    match error:
        case TimeoutError():
            return faults.TimeoutError("timeout while waiting for bytes")
        case ssl.SSLError(reason=str(reason)) if reason in _NO_TLS:
            return NotUnderstood(
                "this port does not speak https: check it, or write http:// if the source offers that"
            )
        case ssl.SSLError(reason=str(reason)) if reason in _NO_COMMON_TLS:
            return NotUnderstood(
                "the source offers no https that is still safe, or none for this host "
                f"({reason.replace('_', ' ').lower()}): have the source corrected"
            )
        case ssl.SSLError() | CertificateError():
            return faults.SSLError(error)
        case OSError() | HTTPException():
            return faults.ProtocolError("Connection aborted.", error)
        case _:
            return None


def _is_dropped(error: BaseException) -> bool:
    """Whether the peer closed a connection without an answer."""
    return isinstance(error, ConnectionResetError) or isinstance(error.__cause__, ConnectionResetError)


def _close(connections: list[tuple[_Server, HTTPConnection]]) -> None:
    while connections:
        connections.pop()[1].close()


def _connected(connection: HTTPConnection, timeout: Timeout) -> socket.socket:
    if connection.sock is None:
        connection.timeout = _seconds(timeout.connect_timeout)
        connection.connect()
    assert connection.sock is not None
    connection.sock.settimeout(_seconds(timeout.read_timeout))
    return connection.sock


def _seconds(limit: object) -> float | None:
    """A part of a Timeout: None, and what stands for the default, are no limit."""
    return limit if isinstance(limit, int | float) else None


def _request(
    method: str, target: Url, server: _Server, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    """The head of a request, and its body."""
    scheme, host, port = server
    name = host.rstrip(".")
    place = name if port == DEFAULT_PORT[scheme] else f"{name}:{port}"
    lines = [f"{method} {target.request_uri} HTTP/1.1", f"Host: {place}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise faults.LocationValueError("a request cannot have a line break in a header")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
