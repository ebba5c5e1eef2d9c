"""A few commands for Redis over one socket, without the packages that a worker needs.

redis-py, kombu and Celery take a third of a second to load, for one message.
"""

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

TIMEOUT = 5.0
"""Seconds to wait for a connection or an answer."""


@dataclass(frozen=True)
class Address:
    """A server without TLS, and the commands that open the database."""

    host: str
    port: int
    opening: tuple[tuple[str, ...], ...]


def address_of(url: str) -> Address | None:
    """None for a URL whose form only redis-py knows: TLS, a socket's file, options."""
    parts = urlsplit(url)
    database = parts.path.strip("/") or "0"
    if parts.scheme != "redis" or not parts.hostname or parts.query or parts.fragment:
        return None
    if not (database.isascii() and database.isdigit()):
        return None
    login = [unquote(part) for part in (parts.username, parts.password) if part]
    opening = (
        *((("AUTH", *login),) if parts.password else ()),
        *((("SELECT", database),) if int(database) else ()),
    )
    return Address(parts.hostname, parts.port or 6379, opening)


def accepts(address: Address, commands: Sequence[tuple[str, ...]]) -> bool:
    """Whether Redis answers all of the commands, whose answers are one line, and none with an error.

    OSError if it does not answer.
    """
    sent = (*address.opening, *commands)
    with socket.create_connection((address.host, address.port), TIMEOUT) as connection:
        connection.sendall(b"".join(map(_encoded, sent)))
        with connection.makefile("rb") as answers:
            lines = [answers.readline() for _ in sent]
    return all(line[:1] in (b"+", b":") and line.endswith(b"\r\n") for line in lines)


def _encoded(parts: Iterable[str]) -> bytes:
    encoded = [part.encode() for part in parts]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in encoded)
