"""Non-public networks that a site allows: `10.0.0.0/8:8080,9000-9010,[fd00::/8]`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import pairwise

_PORTS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_WITH_PORTS = re.compile(r"(\[[^]]*\]|[^\[\]:]*):([^:]*)")
_ALL = (1, 65535)


@dataclass(frozen=True)
class AllowedNetwork:
    network: IPv4Network | IPv6Network
    ports: tuple[tuple[int, int], ...] = ()
    """The first and the last port of each range; empty: every port."""

    def has(self, address: IPv4Address | IPv6Address, port: int) -> bool:
        return address in self.network and any(first <= port <= last for first, last in self.ports or (_ALL,))

    def __str__(self) -> str:
        if not self.ports:
            return str(self.network)
        network = f"[{self.network}]" if self.network.version == 6 else str(self.network)
        ranges = (str(first) if first == last else f"{first}-{last}" for first, last in self.ports)
        return f"{network}:{','.join(ranges)}"


def read_networks(text: str) -> tuple[AllowedNetwork, ...]:
    """Parse comma-separated networks; a port or range without a network belongs to the network before it.

    >>> [str(network) for network in read_networks("10.0.0.0/8:8080,9000-9010, 127.0.0.1, [fd00::/8]:443")]
    ['10.0.0.0/8:8080,9000-9010', '127.0.0.1/32', '[fd00::/8]:443']
    """
    return tuple(_networks([part.strip() for part in text.split(",") if part.strip()]))


def _networks(parts: list[str]) -> Iterator[AllowedNetwork]:
    starts = [index for index, part in enumerate(parts) if not _PORTS.fullmatch(part)]
    if parts and starts[:1] != [0]:
        raise ValueError(f"'{parts[0]}' is no network: write a port after its network, as 10.0.0.0/8:8080")
    for begin, end in pairwise([*starts, len(parts)]):
        yield _network(parts[begin], parts[begin + 1 : end])


def _network(text: str, more: list[str]) -> AllowedNetwork:
    place, ports = text, []
    if split := _WITH_PORTS.fullmatch(text):
        place, ports = split[1], [split[2]]
    elif more:
        raise ValueError(f"'{more[0]}' is no network: write the ports after ':', as {text}:{more[0]}")
    try:
        network = ip_network(place.removeprefix("[").removesuffix("]"))
    except ValueError as error:
        raise ValueError(
            f"{error}: write a network, as 10.0.0.0/8, 10.0.0.0/8:8080 or [fd00::/8]:443"
        ) from None
    return AllowedNetwork(network, tuple(map(_range, [*ports, *more])))


def _range(text: str) -> tuple[int, int]:
    if match := _PORTS.fullmatch(text):
        first = int(match[1])
        last = int(match[2] or match[1])
        if _ALL[0] <= first <= last <= _ALL[1]:
            return first, last
    raise ValueError(f"'{text}' is no port from 1 to 65535, and no range of ports, as 9000-9010")


def is_loopback(host: str) -> bool:
    """Whether what is sent to the host stays on this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
