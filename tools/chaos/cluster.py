"""The repository under test, as real processes: a ZooKeeper ensemble, Redis, workers and beats.

Every process dies with this process. The first worker reaches ZooKeeper through proxies that can lose
answers or cut the worker off; the other workers reach ZooKeeper directly.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from entrypoints.stack import redis, services, zookeeper
from entrypoints.stack.ports import HOST, free_ports
from entrypoints.stack.supervisor import Service
from pipeline.settings import Settings
from tests.servers.proxy import Proxy
from tests.support.fleet import environment
from tools.chaos.actors import Actor
from tools.chaos.fakes import Fakes, run_fakes
from tools.chaos.small_disks import Filler, make_small, unmake
from tools.chaos.witness import Witness

SESSION = 5.0
"""Seconds after which a dead process's locks are free."""

WORKING_MEGABYTES = 24
STORAGE_MEGABYTES = 256
PROFILE = "chaos"

_PROFILE_TEXT = """\
name: {name}
owner: ark:/99999/fk4chaos
collections: ["ark:/99999/fk4chaoscollection"]
naan: "99999"
shoulder: fk4
notification: [archivist@example.org]
callback_url: {callback}
"""


@dataclass
class Cluster:
    folder: Path
    settings: Settings
    zookeepers: list[Actor]
    zk_ports: tuple[int, ...]
    redis: Actor
    workers: list[Actor]
    beats: list[Actor]
    zk_proxies: list[Proxy]
    fakes: Fakes
    witness: Witness
    small_disks: bool
    fillers: dict[str, Filler] = field(default_factory=dict)

    @property
    def actors(self) -> list[Actor]:
        return [*self.zookeepers, self.redis, *self.workers, *self.beats]

    def poll(self) -> None:
        for actor in self.actors:
            actor.poll()

    def heal(self) -> None:
        """Take every fault back that is not over by itself."""
        for actor in self.actors:
            actor.thaw()
        for proxy in self.zk_proxies:
            proxy.accept()
            proxy.cut()
        self.fakes.heal()
        for filler in self.fillers.values():
            filler.remove()

    def leading(self) -> int | None:
        """Which server leads the ensemble; None if none says so."""
        for number, port in enumerate(self.zk_ports):
            if self.zookeepers[number].running and zookeeper.is_leader(port):
                return number
        return None

    def stop(self) -> None:
        """Workers and beats are asked to end, and killed if they take long; the servers stay."""
        mine = [*self.beats, *self.workers]
        for actor in mine:
            actor.thaw()
            if actor.running:
                actor.process.terminate()
        for actor in mine:
            actor.process.stop(20)


def run_settings(
    folder: Path, zk_hosts: str, redis_port: int, fakes: Fakes, *, small_disks: bool
) -> Settings:
    """Faults last seconds here, not minutes: tries come sooner, and there are more of them."""
    return Settings(
        zk_hosts=zk_hosts,
        zk_root="/chaos",
        zk_session_timeout=SESSION,
        broker_url=redis.url(redis_port),
        broker_prefix="chaos:",
        home=folder,
        working_storage=folder / "working",
        storage_root=folder / "storage" / "ocfl",
        working_capacity=0 if small_disks else WORKING_MEGABYTES << 20,
        profiles=folder / "profiles",
        allow_networks="127.0.0.0/8",
        in_flight=24,
        max_tries=60,
        max_redispatches=60,
        backoff=0.5,
        backoff_limit=4,
        connect_timeout=3,
        read_timeout=4,
        fetch_tries=3,
        callback_timeout=4,
        smtp_host=HOST,
        smtp_port=fakes.mail_proxy.port,
        log_level="INFO",
    )


@contextmanager
def run_cluster(folder: Path, workers: int = 3, concurrency: int = 2) -> Iterator[Cluster]:
    """Everything, ready; gone at the end. Only in the main thread."""
    with ExitStack() as held:
        fakes = held.enter_context(run_fakes())
        for name in ("working", "storage"):
            held.callback(unmake, folder / name)
        disks = [
            make_small(folder / "working", WORKING_MEGABYTES),
            make_small(folder / "storage", STORAGE_MEGABYTES),
        ]
        plan = zookeeper.plan(folder / "zookeeper", servers=3, tick=500, log_folder=folder / "log")
        (redis_port,) = free_ports(1)
        settings = run_settings(folder, plan.hosts, redis_port, fakes, small_disks=all(disks))
        _write_profile(settings.profiles, fakes)
        proxies = [held.enter_context(Proxy(port)) for port in plan.ports]
        servers = [
            Actor(Service(command, ready=lambda port=port: zookeeper.serves(port)))  # type: ignore[misc]
            for command, port in zip(zookeeper.prepare(plan), plan.ports, strict=True)
        ]
        broker = Actor(
            Service(
                redis.prepare(folder / "redis", redis_port, log_folder=folder / "log"),
                ready=lambda: redis.serves(redis_port),
            )
        )
        choice = services.StackConfig(home=folder, concurrency=concurrency)
        direct = environment(settings)
        proxied = {**direct, "ARKLINE_ZK_HOSTS": ",".join(proxy.hosts for proxy in proxies)}
        fleet = [
            Actor(services.worker(choice, number, proxied if number == 1 else direct))
            for number in range(1, workers + 1)
        ]
        beats = [Actor(services.beat(choice, number, direct)) for number in (1, 2)]
        cluster = Cluster(
            folder=folder,
            settings=settings,
            zookeepers=servers,
            zk_ports=plan.ports,
            redis=broker,
            workers=fleet,
            beats=beats,
            zk_proxies=proxies,
            fakes=fakes,
            witness=Witness(settings),
            small_disks=all(disks),
        )
        if cluster.small_disks:
            cluster.fillers = {
                "working": Filler(folder / "working"),
                "storage": Filler(folder / "storage"),
            }
        held.callback(_kill_all, cluster)
        for tier in ([*servers, broker], [*fleet, *beats]):
            for actor in tier:
                actor.start()
            for actor in tier:
                actor.await_ready()
        cluster.witness.start()
        held.callback(cluster.witness.stop)
        yield cluster


def _kill_all(cluster: Cluster) -> None:
    for actor in reversed(cluster.actors):
        if actor.running:
            actor.process.kill()


def _write_profile(folder: Path, fakes: Fakes) -> None:
    folder.mkdir(parents=True)
    callback = f"http://{fakes.callback_proxy.hosts}/callback"
    (folder / f"{PROFILE}.yaml").write_text(_PROFILE_TEXT.format(name=PROFILE, callback=callback))
