"""The run's bridge, and what a host's packets meet: lost by iptables, or held back.

netem holds packets back where the kernel has netem; elsewhere a relay of the tests does (`relay`).
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from entrypoints.stack.child import Command, Process

BRIDGE = "hosts"
NETWORK = "10.83.0"
PROJECT = Path(__file__).parents[3]

ZOOKEEPER_PORTS = (2181, 2888, 3888)
"""For clients, followers and elections."""
REDIS_PORT = 6379
POSTGRESQL_PORT = 5432
WEB_PORT = 8080

_CLONE_NEWNET = 0x40000000


def address_of(number: int) -> str:
    return f"{NETWORK}.{number}"


OWN_ADDRESS = address_of(254)
"""The run's own address: its clients reach every host, whatever the faults between hosts are."""


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def make_bridge() -> None:
    """Connect this namespace, which is the run's own, with a bridge for the hosts."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "addr", "add", f"{OWN_ADDRESS}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


def plug_in(number: int, pid: int) -> None:
    """Connect the network namespace of process `pid` with the bridge, as host `number`."""
    port = f"host{number}"
    subprocess.run(("ip", "link", "del", port), capture_output=True, check=False)  # a killed host's
    run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    run("ip", "link", "set", port, "master", BRIDGE, "up")
    inside = ("nsenter", "-t", str(pid), "-n", "--")
    run(*inside, "ip", "link", "set", "lo", "up")
    run(*inside, "ip", "addr", "add", f"{address_of(number)}/24", "dev", "eth0")
    run(*inside, "ip", "link", "set", "eth0", "up")


def unplug(number: int) -> None:
    """From now on nobody hears from the host, not even that its connections end."""
    run("ip", "link", "set", f"host{number}", "down")


@cache
def delayed_by() -> str:
    """What holds packets back on this machine: "netem" if the kernel has it, or "relay"."""
    for verb in (("add", "netem", "delay", "1ms"), ("del",)):
        tried = subprocess.run(
            ("tc", "qdisc", verb[0], "dev", BRIDGE, "root", *verb[1:]), capture_output=True, check=False
        )
        if tried.returncode:
            return "relay"
    return "netem"


@contextmanager
def inside(pid: int) -> Iterator[None]:
    """This thread is in the network namespace of process `pid` for the block, and so are its new sockets."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as own, Path(f"/proc/{pid}/ns/net").open() as other:
        if libc.setns(other.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            if libc.setns(own.fileno(), _CLONE_NEWNET):
                os._exit(1)  # this thread must do nothing in a host


class Packets:
    """The rules for one host's packets, in its own namespace."""

    def __init__(self, number: int, enter: tuple[str, ...], peers: tuple[str, ...]) -> None:
        self._number = number
        self._enter = enter
        self._peers = peers
        """The addresses of the other hosts."""
        self._relay: Process | None = None

    def _rule(self, *rule: str) -> None:
        run(*self._enter, "iptables", "-w", "-A", *rule)

    def lose_ports(self, *ports: int) -> None:
        """Lose all packets between this host and the other hosts' servers on these ports, and its own."""
        named = ",".join(str(port) for port in ports)
        for peer in self._peers:
            for end in ("--dports", "--sports"):
                match = ("-p", "tcp", "-m", "multiport", end, named, "-j", "DROP")
                self._rule("INPUT", "-s", peer, *match)
                self._rule("OUTPUT", "-d", peer, *match)

    def lose_one_way(self, *, incoming: bool) -> None:
        """Lose what arrives from the other hosts, or what leaves for them."""
        for peer in self._peers:
            self._rule(*(("INPUT", "-s", peer) if incoming else ("OUTPUT", "-d", peer)), "-j", "DROP")

    def lose_some(self, part: float) -> None:
        """Lose this part of all packets, in both directions."""
        match = ("-m", "statistic", "--mode", "random", "--probability", f"{part:g}", "-j", "DROP")
        self._rule("INPUT", "-i", "eth0", *match)
        self._rule("OUTPUT", "-o", "eth0", *match)

    def hold_back(self, seconds: float, log: Path) -> None:
        """Hold back every packet that leaves the host."""
        if delayed_by() == "netem":
            delay = ("netem", "delay", f"{seconds * 1000:g}ms")
            run(*self._enter, "tc", "qdisc", "add", "dev", "eth0", "root", *delay)
            return
        program = (sys.executable, "-P", "-m", "tools.chaos.hosts.relay", f"{seconds:g}")
        self._relay = Process(
            Command(
                name=f"relay{self._number}",
                argv=(*self._enter, *program),
                log=log,
                environment={"PYTHONPATH": str(PROJECT)},
            )
        )
        self._relay.start()
        # packets pass until the relay listens
        self._rule("OUTPUT", "-o", "eth0", "-j", "NFQUEUE", "--queue-num", "0", "--queue-bypass")

    def clear(self) -> None:
        """End all loss and delay."""
        run(*self._enter, "iptables", "-w", "-F")
        if delayed_by() == "netem":
            delete = ("tc", "qdisc", "del", "dev", "eth0", "root")  # refused if there is none
            subprocess.run((*self._enter, *delete), capture_output=True, check=False)
        if self._relay is not None:
            self._relay.stop(2)
            self._relay = None
