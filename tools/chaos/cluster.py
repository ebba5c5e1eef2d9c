"""The repository under test, as real processes: a ZooKeeper ensemble, Redis, workers and beats.

Every process dies with this process. The first worker reaches ZooKeeper through proxies that can lose answers
or cut the worker off; the other workers reach ZooKeeper directly.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from entrypoints.stack import services
from entrypoints.stack.child import HOST, free_ports
from pipeline.settings import Settings
from tests.servers.ezid import PASSWORD, USER
from tests.servers.proxy import Proxy
from tests.servers.zookeeper import hosts, is_leader, prepare
from tests.support.fleet import environment
from tools.chaos.actors import Actor
from tools.chaos.clocks import Clock, clocks_of
from tools.chaos.fakes import Fakes, run_fakes
from tools.chaos.hosts.host import Host
from tools.chaos.profiles import ALL, WITHOUT_CHECKS, prepare_scanner, write_profiles
from tools.chaos.small_disks import Disk, Filler, make_small, unmake
from tools.chaos.witness import Witness

WORKING_MEGABYTES = 24
STORAGE_MEGABYTES = 256
DISKS = ("working", "storage")


@dataclass
class Cluster:
    folder: Path
    settings: Settings
    zookeepers: list[Actor]
    leads: tuple[Callable[[], bool], ...]
    """For each ZooKeeper server whether it leads the ensemble."""
    redis: Actor
    workers: list[Actor]
    beats: list[Actor]
    zk_proxies: list[Proxy]
    fakes: Fakes
    witness: Witness
    small_disks: bool
    scanner: Actor | None = None
    """clamd; None if this machine cannot run the checks."""
    fillers: dict[str, Filler] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)
    clocks: list[Clock] = field(default_factory=list)
    """Clocks of the ZooKeeper servers; empty if this machine cannot change them."""
    hosts: list[Host] = field(default_factory=list)
    """Empty if all processes share this machine's network and disks."""
    database: Actor | None = None
    """PostgreSQL; None if the inventory is in SQLite."""
    webs: list[Actor] = field(default_factory=list)
    restarting: deque[Actor] = field(default_factory=deque)
    """The workers still to be stopped in a rolling restart; the first is stopping."""

    @property
    def actors(self) -> list[Actor]:
        some = [server for server in (self.database, self.scanner) if server]
        return [*self.zookeepers, self.redis, *some, *self.workers, *self.beats, *self.webs]

    @property
    def collections(self) -> tuple[str, ...]:
        """The collections of deposits, in the order in which deposits take turns."""
        return ALL if self.scanner else WITHOUT_CHECKS

    def start(self, tiers: Sequence[Sequence[Actor]]) -> None:
        """Start one tier after another, each when the previous one is ready, and then the witness."""
        for tier in tiers:
            for actor in tier:
                actor.start()
            for actor in tier:
                actor.await_ready()
        self.witness.start()

    def poll(self) -> None:
        for host in self.hosts:
            host.poll()
        for actor in self.actors:
            actor.poll()
        if self.restarting and self.restarting[0].restarted():
            self.restarting.popleft()
            if self.restarting:
                self.restarting[0].restart()

    def restart_workers(self) -> None:
        """Restart the workers in order, each once the previous one is ready again."""
        if not self.restarting:
            self.restarting.extend(self.workers)
            self.restarting[0].restart()

    def heal(self) -> None:
        """Undo every fault that does not end by itself."""
        for actor in self.actors:
            actor.thaw()
        for proxy in self.zk_proxies:
            proxy.accept()
            proxy.cut()
        self.fakes.heal()
        for disk in self.disks.values():
            disk.restore()
        for filler in self.fillers.values():
            filler.remove()
        for clock in self.clocks:
            clock.set(0)
        for host in self.hosts:
            host.heal()

    def leading(self) -> int | None:
        """The index of the server that leads the ensemble; None if none does."""
        for number, leads in enumerate(self.leads):
            if self.zookeepers[number].running and leads():
                return number
        return None

    def stop(self) -> None:
        """Ask workers and beats to exit, and kill them if they take too long; the servers stay up."""
        mine = [*self.webs, *self.beats, *self.workers]
        for actor in mine:
            actor.thaw()
            if actor.running:
                actor.process.terminate()
        for actor in mine:
            actor.process.stop(20)


def run_settings(
    folder: Path, zk_hosts: str, redis_port: int, fakes: Fakes, *, small_disks: bool
) -> Settings:
    """The shipped settings, with this run's addresses and folders."""
    return Settings(
        zk_hosts=zk_hosts,
        zk_root="/chaos",
        broker_url=services.redis_url(redis_port),
        broker_prefix="chaos:",
        home=folder,
        working_storage=folder / "working",
        storage_root=folder / "storage" / "ocfl",
        working_capacity=0 if small_disks else WORKING_MEGABYTES << 20,
        profiles=folder / "profiles",
        allow_networks="127.0.0.0/8",
        smtp_host=HOST,
        smtp_port=fakes.mail_proxy.port,
        ezid_url=f"http://{fakes.ezid_proxy.hosts}",
        ezid_user=USER,
        ezid_password=PASSWORD,
    )


@contextmanager
def run_cluster(folder: Path, workers: int = 3, concurrency: int = 2) -> Iterator[Cluster]:
    """The whole cluster, ready, for the block. Main thread only."""
    with ExitStack() as held:
        fakes = held.enter_context(run_fakes())
        for name in DISKS:
            held.callback(unmake, folder / name)
        disks = [
            make_small(folder / "working", WORKING_MEGABYTES),
            make_small(folder / "storage", STORAGE_MEGABYTES),
        ]
        # 20 ticks is the longest session that a server grants
        commands = prepare(folder / "zookeeper", tick=1000, log_folder=folder / "log")
        clocks = clocks_of(folder / "clocks", len(commands))
        if clocks:
            commands = {
                port: replace(command, environment={**command.environment, **clock.environment})
                for (port, command), clock in zip(commands.items(), clocks, strict=True)
            }
        (redis_port,) = free_ports(1)
        settings = run_settings(folder, hosts(commands), redis_port, fakes, small_disks=all(disks))
        scanner = prepare_scanner(folder / "clamd")
        write_profiles(settings.profiles, f"http://{fakes.callback_proxy.hosts}/callback", scanner)
        scanners = [Actor(replace(scanner.process.command, ready=scanner.answers))] if scanner else []
        proxies = [held.enter_context(Proxy(port)) for port in commands]
        servers = [
            Actor(replace(command, ready=partial(services.zookeeper_serves, port)))
            for port, command in commands.items()
        ]
        broker = Actor(
            replace(
                services.prepare_redis(folder / "redis", redis_port, log_folder=folder / "log"),
                ready=partial(services.redis_serves, redis_port),
            )
        )
        choice = services.StackConfig(home=folder, concurrency=concurrency)
        direct = environment(settings)
        proxied = {**direct, "ARKLINE_ZK_HOSTS": ",".join(proxy.hosts for proxy in proxies)}
        fleet = [
            Actor(services.worker(choice, number, proxied if number == 1 else direct))
            for number in range(1, workers + 1)
        ]
        fleet += [Actor(command) for command in services.reserved_workers(choice, direct)]
        beats = [Actor(services.beat(choice, number, direct)) for number in (1, 2)]
        cluster = Cluster(
            folder=folder,
            settings=settings,
            zookeepers=servers,
            leads=tuple(partial(is_leader, port) for port in commands),
            redis=broker,
            workers=fleet,
            beats=beats,
            zk_proxies=proxies,
            fakes=fakes,
            witness=Witness(settings),
            small_disks=all(disks),
            scanner=scanners[0] if scanners else None,
            clocks=clocks,
        )
        if cluster.small_disks:
            cluster.disks = {name: Disk(folder / name) for name in DISKS}
            cluster.fillers = {name: Filler(folder / name) for name in DISKS}
            for disk in cluster.disks.values():
                held.callback(disk.restore)
        held.callback(kill_all, cluster)
        cluster.start(([*servers, broker, *scanners], [*fleet, *beats]))
        held.callback(cluster.witness.stop)
        yield cluster


def kill_all(cluster: Cluster) -> None:
    for actor in reversed(cluster.actors):
        if actor.running:
            actor.process.kill()
