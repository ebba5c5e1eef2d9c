"""The networks that are not public, and the refusal of a source there, or outside a collection's sources.

The table is our own: Python's differs by patch release.

Source: the special-purpose address registries of IANA (IPv4 and IPv6, RFC 6890), without the networks that
they call globally reachable, and multicast.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from pipeline.allowed_networks import AllowedNetwork
from pipeline.outcome import StepFailed
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
        "169.254.0.0/16",  # link-local, and the metadata services of clouds
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
"""The only part of IPv6 that is assigned for use by everybody."""

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
    """True if content may come from there: the address is public, or it and the port are allowed."""
    inner = _inner(address)
    if any(network.has(candidate, port) for network in allowed for candidate in (address, inner)):
        return True
    if isinstance(inner, IPv4Address):
        return not any(inner in network for network in _NOT_PUBLIC_4)
    return inner in _PUBLIC_6 and not any(inner in network for network in _NOT_PUBLIC_6)


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for (mapped, 6to4, NAT64), or the address itself."""
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
