"""The outside systems (sources, EZID, mail, the receiver of callbacks) as each host reaches them.

They listen on loopback addresses of the run's own namespace. A host has the same addresses and ports on its
own loopback interface, and a proxy leads from there to the outside system: a deposit names one address for
all hosts.
"""

import socket
from urllib.parse import urlsplit

from tests.servers.proxy import Proxy
from tools.chaos.fakes import Fakes
from tools.chaos.hosts import network


def addresses(fakes: Fakes) -> list[tuple[str, int]]:
    proxies = (
        *(fakes.source_proxy, fakes.far_proxy),
        *(fakes.ezid_proxy, fakes.mail_proxy, fakes.callback_proxy),
    )
    named = [f"//{proxy.hosts}" for proxy in proxies] + list(fakes.hostile.values())
    parts = [urlsplit(url) for url in named]
    return [(part.hostname or "", part.port or 0) for part in parts]


class Outside:
    """The ways from the hosts to the outside systems; call `open` whenever a host has booted."""

    def __init__(self, fakes: Fakes) -> None:
        self._addresses = addresses(fakes)
        self._open: dict[int, list[Proxy]] = {}

    def open(self, number: int, pid: int) -> None:
        """Open the ways of the host whose namespaces process `pid` is in."""
        self.close(number)
        with network.inside(pid):
            listeners = [socket.create_server(address) for address in self._addresses]
        proxies = [
            Proxy(port, host, listener=listener)
            for (host, port), listener in zip(self._addresses, listeners, strict=True)
        ]
        self._open[number] = [proxy.__enter__() for proxy in proxies]

    def close(self, number: int) -> None:
        for proxy in self._open.pop(number, []):
            proxy.__exit__()

    def close_all(self) -> None:
        for number in list(self._open):
            self.close(number)
