"""The programs on a host: its ZooKeeper, Redis or PostgreSQL, workers, a beat and the web process.

The commands are those of the stack (`entrypoints.stack.services`), with a host's addresses instead of
loopback and their data on the host's disk.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from entrypoints import programs
from entrypoints.stack import services
from entrypoints.stack.child import Command, ask
from pipeline.settings import Settings
from tests.servers import postgresql
from tests.support.fleet import environment
from tools.chaos.hosts import network
from tools.chaos.hosts.host import Host, on_disk

HEAP_MB = 256

PRELOADED = {"PYTHONPATH": str(Path(__file__).with_name("preloaded"))}
"""Python under libfaketime."""

_CREATE_DATABASE = """
[ -e "$1" ] && exit
mkdir "$1"
chown postgres: "$1"
setpriv --reuid=postgres --regid=postgres --clear-groups \\
  "$2/initdb" -D "$1" -U arkline -A trust -E UTF8 --locale=C
echo "host all all $3.0/24 trust" >> "$1/pg_hba.conf"
"""

_SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
"""PostgreSQL answers it with N once it accepts connections."""


def _on(
    host: Host,
    command: Command,
    log_folder: Path,
    *,
    argv: tuple[str, ...] = (),
    ready: Callable[[], bool] | None = None,
) -> Command:
    """The command with a name, a log and a clock of the host."""
    name = f"{host.name}-{command.name}"
    return replace(
        command,
        name=name,
        log=log_folder / f"{name}.log",
        environment={**command.environment, **host.clock.environment, **PRELOADED},
        lock=None,  # the disk is mounted only on the host
        answers=None,
        argv=argv or command.argv,
        ready=ready or command.ready,
    )


def zookeeper(host: Host, everyone: Iterable[Host], log_folder: Path) -> Command:
    folder = host.folder / "zookeeper"
    port, follower, election = network.ZOOKEEPER_PORTS
    command = services.prepare_zookeeper(folder, port, heap=HEAP_MB)
    own = {"dataDir": host.disk / "zookeeper", "clientPortAddress": host.address}
    configuration = folder / "zoo.cfg"
    lines = [line for line in configuration.read_text().splitlines() if line.partition("=")[0] not in own]
    lines += [f"{name}={value}" for name, value in own.items()]
    lines += ["initLimit=20", "syncLimit=10", "standaloneEnabled=false"]
    lines += [f"server.{other.number}={other.address}:{follower}:{election}" for other in everyone]
    configuration.write_text("\n".join([*lines, ""]))
    on_disk(
        host, 'mkdir -p "$1"; echo "$2" > "$1/myid"; sync', str(host.disk / "zookeeper"), str(host.number)
    )
    java, *rest = command.argv
    return _on(
        host,
        command,
        log_folder,
        argv=(java, "-XX:TieredStopAtLevel=1", *rest),
        ready=partial(ask, port, b"srvr", b"Mode:", host=host.address),
    )


def leads(host: Host) -> bool:
    """Whether the host's ZooKeeper leads the ensemble."""
    return ask(network.ZOOKEEPER_PORTS[0], b"srvr", b"Mode: leader", host=host.address)


def redis(host: Host, log_folder: Path) -> Command:
    command = services.prepare_redis(host.folder / "redis", network.REDIS_PORT)
    data = host.disk / "redis"
    on_disk(host, 'mkdir -p "$1"; sync', str(data))
    own = ("--bind", "0.0.0.0", "--protected-mode", "no", "--dir", str(data))  # noqa: S104 - of its namespace
    ready = partial(ask, network.REDIS_PORT, b"PING\r\n", b"+PONG", host=host.address)
    return _on(host, command, log_folder, argv=(*command.argv, *own), ready=ready)


def database(host: Host, log_folder: Path) -> Command:
    data, programs_folder = host.disk / "postgresql", postgresql.binaries()
    on_disk(host, _CREATE_DATABASE + "sync", str(data), str(programs_folder), network.NETWORK)
    as_postgres = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL")
    server = (str(programs_folder / "postgres"), "-D", str(data), "-h", host.address, "-k", "")
    # libfaketime's semaphore must belong to the server's user
    clock = ("env", *(f"{name}={value}" for name, value in host.clock.environment.items()))
    command = Command(
        name="postgresql",
        argv=(*as_postgres, *clock, *server, "-p", str(network.POSTGRESQL_PORT), "-c", "max_connections=200"),
        log=log_folder,
    )
    ready = partial(ask, network.POSTGRESQL_PORT, _SSL_REQUEST, b"N", host=host.address)
    return replace(_on(host, command, log_folder, ready=ready), environment={})


def workers(host: Host, settings: Settings, concurrency: int, log_folder: Path) -> list[Command]:
    config = services.StackConfig(home=_home(host), concurrency=concurrency)
    variables = environment(settings)
    fleet = [services.worker(config, 1, variables), *services.reserved_workers(config, variables)]
    return [_on(host, command, log_folder) for command in fleet]


def beat(host: Host, settings: Settings, log_folder: Path) -> Command:
    command = services.beat(services.StackConfig(home=_home(host)), 1, environment(settings))
    return _on(host, command, log_folder)


def web(host: Host, settings: Settings, log_folder: Path) -> Command:
    config = services.StackConfig(home=_home(host))
    command = services.web(config, network.WEB_PORT, environment(settings))
    question = b"GET /health/ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    ready = partial(ask, network.WEB_PORT, question, b" 200 OK", seconds=1, host=host.address)
    return _on(host, command, log_folder, argv=programs.web(host.address, network.WEB_PORT), ready=ready)


def _home(host: Host) -> Path:
    folder = host.folder / "home"
    folder.mkdir(exist_ok=True)
    return folder


def addresses(hosts: Iterable[Host]) -> Mapping[str, object]:
    """The settings that name servers: ZooKeeper on all hosts, Redis on the first, PostgreSQL on the last.

    A ZooKeeper beyond loopback needs a user.
    """
    every = list(hosts)
    return {
        "zk_hosts": ",".join(f"{host.address}:{network.ZOOKEEPER_PORTS[0]}" for host in every),
        "zk_user": "chaos",
        "zk_password": SecretStr("chaos"),
        "broker_url": f"redis://{every[0].address}:{network.REDIS_PORT}/0",
        "inventory_url": f"postgresql://arkline@{every[-1].address}:{network.POSTGRESQL_PORT}/postgres",
    }
