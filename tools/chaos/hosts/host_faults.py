"""Injects faults into whole hosts: power, network, storage and clocks; and into their PostgreSQL."""

import signal
from collections.abc import Callable

from tools.chaos.actors import send
from tools.chaos.faults import Effect, FaultContext, NotNow, Table, kind_of, thaw
from tools.chaos.hosts import network
from tools.chaos.hosts.host import Host
from tools.chaos.hosts.throttle import Trouble
from tools.chaos.schedule import Fault, Kind

BEGIN: Table = {}
"""Kind of fault -> function that injects it."""

DELAY_SECONDS = 0.2
LOST_PART = 0.2
"""The part of a host's packets that is lost."""

SLOW_SECONDS = 0.02
"""Seconds per call of a slow disk; a job makes hundreds."""

DRIFT = 0.5
"""Seconds that a drifting clock gains per second: 20 s, more than a session lasts, in 40 s."""

PARTITIONS = {kind: kind.label.split("-")[3:] for kind in Kind if kind.label.startswith("host-cut-off-")}
"""Kind -> the services from which a host is cut off."""


def _claimed(
    context: FaultContext, fault: Fault, end: Callable[[Host], None], *, redis_stays: bool = False
) -> tuple[Host, Callable[[], None]]:
    """A host that no other fault has, and the function that ends the fault; NotNow if there is none.

    `redis_stays`: not the host of Redis, which is never cut off from its own Redis.
    """
    hosts = context.cluster.hosts[1:] if redis_stays else context.cluster.hosts
    free = [host for host in hosts if host.is_on and host.name not in context.claimed]
    if not free:
        raise NotNow
    host = free[fault.target % len(free)]
    return host, context.claim(host.name, lambda: end(host))


def _reconnect(host: Host) -> None:
    host.throttle.clear()
    if host.is_on:
        host.packets.clear()


@kind_of(BEGIN, Kind.POWER_LOST)
def _lose_power(context: FaultContext, fault: Fault, late: bool) -> Effect:
    host, release = _claimed(context, fault, lambda _: None)
    running = [actor.name for actor in host.actors if actor.running]
    lost = context.cluster.witness.killed(host.pids(), fault.kind.label)
    host.lose_power(fault.seconds)
    return Effect(f"{host.name}, {len(running)} programs ({', '.join(lost) or 'idle'})", release)


@kind_of(BEGIN, *PARTITIONS)
def _cut_off(context: FaultContext, fault: Fault, late: bool) -> Effect:
    services = PARTITIONS[fault.kind]
    host, release = _claimed(context, fault, _reconnect, redis_stays="redis" in services)
    ports: list[int] = []
    ports += network.ZOOKEEPER_PORTS if "zookeeper" in services else ()
    ports += (network.REDIS_PORT,) if "redis" in services else ()
    if ports:
        host.packets.lose_ports(*ports)
    if "storage" in services:
        host.throttle.set(Trouble.STALLED, fault.seconds)
    return Effect(host.name, release)


@kind_of(BEGIN, Kind.NOT_HEARD, Kind.HEARS_NOTHING)
def _lose_one_way(context: FaultContext, fault: Fault, late: bool) -> Effect:
    host, release = _claimed(context, fault, _reconnect)
    host.packets.lose_one_way(incoming=fault.kind is Kind.HEARS_NOTHING)
    return Effect(host.name, release)


@kind_of(BEGIN, Kind.FAR_AWAY)
def _delay(context: FaultContext, fault: Fault, late: bool) -> Effect:
    host, release = _claimed(context, fault, _reconnect)
    host.packets.hold_back(DELAY_SECONDS, context.cluster.folder / "log" / f"{host.name}-relay.log")
    return Effect(f"{host.name}, {DELAY_SECONDS * 1000:.0f} ms by {network.delayed_by()}", release)


@kind_of(BEGIN, Kind.PACKETS_LOST)
def _lose_packets(context: FaultContext, fault: Fault, late: bool) -> Effect:
    host, release = _claimed(context, fault, _reconnect)
    host.packets.lose_some(LOST_PART)
    return Effect(f"{host.name}, {LOST_PART:.0%}", release)


@kind_of(BEGIN, Kind.DISK_SLOW, Kind.DISK_FAILS)
def _trouble_storage(context: FaultContext, fault: Fault, late: bool) -> Effect:
    host, release = _claimed(context, fault, _reconnect)
    trouble = Trouble.SLOW if fault.kind is Kind.DISK_SLOW else Trouble.FAILING
    host.throttle.set(trouble, fault.seconds, SLOW_SECONDS)
    return Effect(host.name, release)


@kind_of(BEGIN, Kind.CLOCK_DRIFTS)
def _drift(context: FaultContext, fault: Fault, late: bool) -> Effect:
    host, release = _claimed(context, fault, Host.end_drift)
    rate = DRIFT if fault.target % 2 else -DRIFT
    host.drift(rate)
    return Effect(f"{host.name}, {rate:+g} s per second", release)


@kind_of(BEGIN, Kind.POSTGRESQL_KILLED, Kind.POSTGRESQL_FROZEN)
def _trouble_database(context: FaultContext, fault: Fault, late: bool) -> Effect:
    database = context.cluster.database
    if database is None or not database.running:
        raise NotNow
    if fault.kind is Kind.POSTGRESQL_FROZEN:
        return Effect(database.name, thaw(database, database.freeze()))
    for pid in database.pids:  # its processes have groups of their own, and may be frozen
        send(pid, signal.SIGKILL)
    database.kill(pause=fault.seconds)
    return Effect(database.name)
