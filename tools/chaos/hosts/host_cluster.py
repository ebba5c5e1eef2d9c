"""The repository under test on several hosts: the Cluster of one machine, with its processes on hosts."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from entrypoints.stack.child import Command
from tools.chaos.actors import Actor
from tools.chaos.clocks import clocks_of
from tools.chaos.cluster import (
    DISKS,
    STORAGE_MEGABYTES,
    WORKING_MEGABYTES,
    Cluster,
    kill_all,
    run_settings,
)
from tools.chaos.fakes import run_fakes
from tools.chaos.hosts import host_services, network
from tools.chaos.hosts.host import SHARED, Host, HostActor
from tools.chaos.hosts.outside import Outside
from tools.chaos.profiles import prepare_scanner, write_profiles
from tools.chaos.small_disks import Filler, make_small, unmake
from tools.chaos.witness import Witness


@contextmanager
def run_hosts(folder: Path, count: int, concurrency: int = 2) -> Iterator[Cluster]:
    """The whole cluster on `count` hosts, ready, for the block. Main thread only."""
    log_folder = folder / "log"
    network.make_bridge()
    with ExitStack() as held:
        fakes = held.enter_context(run_fakes())
        for name in DISKS:
            held.callback(unmake, folder / SHARED / name)
        for name, megabytes in zip(DISKS, (WORKING_MEGABYTES, STORAGE_MEGABYTES), strict=True):
            make_small(folder / SHARED / name, megabytes)
        hosts = held.enter_context(booted(folder, count))
        outside = Outside(fakes)
        held.callback(outside.close_all)
        for host in hosts:
            host.prepare = lambda booting: outside.open(booting.number, booting.pid)
            host.prepare(host)
        addresses = host_services.addresses(hosts)
        shared = {
            "working_storage": folder / SHARED / "working",
            "storage_root": folder / SHARED / "storage" / "ocfl",
            **addresses,
        }
        own = run_settings(folder, str(addresses["zk_hosts"]), 0, fakes, small_disks=True)
        settings = own.model_copy(update=shared)
        scanner = prepare_scanner(folder / "clamd")
        write_profiles(settings.profiles, f"http://{fakes.callback_proxy.hosts}/callback", scanner)
        scanners = [Actor(replace(scanner.process.command, ready=scanner.answers))] if scanner else []

        def on(host: Host, command: Command) -> Actor:
            return HostActor(host, command)

        zookeepers = [on(host, host_services.zookeeper(host, hosts, log_folder)) for host in hosts]
        broker = HostActor(hosts[0], host_services.redis(hosts[0], log_folder))
        database = on(hosts[-1], host_services.database(hosts[-1], log_folder))
        commands = {host: host_services.workers(host, settings, concurrency, log_folder) for host in hosts}
        workers = [on(host, command) for host, some in commands.items() for command in some]
        beats = [on(host, host_services.beat(host, settings, log_folder)) for host in hosts]
        webs = [on(host, host_services.web(host, settings, log_folder)) for host in hosts]
        cluster = Cluster(
            folder=folder,
            settings=settings,
            zookeepers=zookeepers,
            leads=tuple(partial(host_services.leads, host) for host in hosts),
            redis=broker,
            workers=workers,
            beats=beats,
            zk_proxies=[],
            fakes=fakes,
            witness=Witness(settings),
            small_disks=True,
            scanner=scanners[0] if scanners else None,
            fillers={name: Filler(folder / SHARED / name) for name in DISKS},
            clocks=[host.clock for host in hosts],
            hosts=hosts,
            database=database,
            webs=webs,
        )
        held.callback(kill_all, cluster)
        cluster.start(([*zookeepers, broker, database, *scanners], [*workers, *beats, *webs]))
        held.callback(cluster.witness.stop)
        yield cluster


@contextmanager
def booted(folder: Path, count: int) -> Iterator[list[Host]]:
    """Hosts on the bridge of this namespace, without programs, for the block."""
    numbers = range(1, count + 1)
    clocks = clocks_of(folder / "clocks", count)
    with ExitStack() as held:
        hosts = []
        for number, clock in zip(numbers, clocks, strict=True):
            peers = tuple(network.address_of(other) for other in numbers if other != number)
            host = Host(number, folder, peers, clock)
            held.callback(host.stop)
            host.boot()
            hosts.append(host)
        yield hosts
