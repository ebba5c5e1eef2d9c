"""The sources of a collection: hosts and networks, with or without a port.

They narrow what the site allows: a private network needs ARKLINE_ALLOW_NETWORKS as well.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Annotated

from pydantic import AfterValidator

_PORT = re.compile(r"(.*):(\d{1,5})", re.DOTALL)
_HOST = re.compile(r"(\*\.)?(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


@dataclass(frozen=True)
class _Source:
    host: str = ""
    network: IPv4Network | IPv6Network | None = None
    port: int | None = None
    """None: any port."""

    def has_name(self, host: str) -> bool:
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return bool(self.host) and host == self.host


def _source(text: str) -> _Source:
    """Parse a source; ValueError if the text is not one."""
    port = None
    place = text.strip().lower()
    if (split := _PORT.fullmatch(place)) and (split[1].endswith("]") or ":" not in split[1]):
        place, port = split[1], int(split[2])
    network = place.removeprefix("[").removesuffix("]") if place.startswith("[") else place
    if not (port is None or 0 < port < 1 << 16):
        raise ValueError(f"{text} has no port from 1 to 65535")
    try:
        return _Source(network=ip_network(network), port=port)
    except ValueError:
        if not _HOST.fullmatch(place) or re.fullmatch(r"[\d.]+", place):
            raise ValueError(f"{text} is neither a host nor a network, with or without a port") from None
    return _Source(host=place, port=port)


def _checked(text: str) -> str:
    _source(text)
    return text


SourceText = Annotated[str, AfterValidator(_checked)]


@dataclass(frozen=True)
class Sources:
    """The sources of one collection; if none is listed, every host is a source."""

    listed: tuple[_Source, ...] = ()

    @classmethod
    def of(cls, texts: tuple[str, ...]) -> "Sources":
        return cls(tuple(map(_source, texts)))

    def may_have(self, host: str, port: int) -> bool:
        """Check before the host is resolved: False if no address could make it a source."""
        if not self.listed:
            return True
        here = [source for source in self.listed if source.port in (None, port)]
        return any(source.network or source.has_name(host.lower()) for source in here)

    def has(self, host: str, address: IPv4Address | IPv6Address, port: int) -> bool:
        if not self.listed:
            return True
        here = [source for source in self.listed if source.port in (None, port)]
        return any(
            address in source.network if source.network else source.has_name(host.lower()) for source in here
        )


EVERYWHERE = Sources()
