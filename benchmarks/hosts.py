"""Scaling with hosts: 1, 2 and 3 hosts with steps that wait, and 5 ms of delay between hosts.

Each host is in namespaces of its own (`tools.chaos.hosts`) and has a ZooKeeper of the ensemble and a worker;
Redis and the beat are on the first. Every packet that leaves a host is held back for `DELAY`, so that a round
trip between two hosts takes twice that. All three ZooKeepers run throughout; the workers of 1, 2 and 3 hosts
take turns. `ratio` divides the jobs per second of all hosts by those of one. Root and Linux only.
"""

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks import _machine
from benchmarks._batches import create_and_complete
from benchmarks._costs import spread
from benchmarks._options import ROUNDS, option
from benchmarks._output import report, run, tell
from entrypoints.cli import exit_codes
from entrypoints.stack.child import Command
from pipeline.settings import Settings
from tests.support.fleet import environment
from tools.chaos.hosts import host_services, machine, network
from tools.chaos.hosts.host import SHARED, Host, HostActor
from tools.chaos.hosts.host_cluster import booted
from zkstate.connection.session import Session, connect

HOSTS = 3
PROCESSES = option("PROCESSES", 2)
"""Of each host's worker."""
STEP_MS = option("STEP_MS", 200)
JOBS = option("JOBS", 6)
"""Jobs per process and round."""

DELAY = 0.005
GOAL = 2.7


def _program(host: Host, name: str, settings: Settings, log: Path, *arguments: str) -> HostActor:
    ready = host.folder / f"{name}.ready"
    variables = {"ARKLINE_BENCH_STEP_MS": str(STEP_MS), "ARKLINE_READY_FILE": str(ready)}
    command = Command(
        name=f"{host.name}-{name}",
        argv=(sys.executable, "-W", "ignore", "-m", *arguments),
        log=log / f"{host.name}-{name}.log",
        environment={**environment(settings), **variables, "PYTHONPATH": str(network.PROJECT)},
        ready_file=ready,
        stop_seconds=30,
    )
    return HostActor(host, command)


def _settings(hosts: Sequence[Host], folder: Path) -> Settings:
    places = {"home": folder, "working_storage": folder / SHARED / "working", "zk_root": "/benchmark"}
    return Settings.model_validate({**places, **host_services.addresses(hosts), "inventory_url": ""})


def _jobs_per_second(session: Session, settings: Settings, workers: Sequence[HostActor]) -> float:
    """The rate of a round with these workers, which are started and stopped for it."""
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.await_ready()
    processes = PROCESSES * len(workers)
    create_and_complete(session, settings, processes)  # every process opens its session and clients
    began = perf_counter()
    create_and_complete(session, settings, processes * JOBS)
    seconds = perf_counter() - began
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.stop()
    return processes * JOBS / seconds


def _rates(folder: Path) -> dict[int, list[float]]:
    log = folder / "log"
    log.mkdir()
    (folder / SHARED / "working").mkdir(parents=True)
    network.make_bridge()
    with ExitStack() as held:
        hosts = held.enter_context(booted(folder, HOSTS))
        settings = _settings(hosts, folder)
        commands = [(host, host_services.zookeeper(host, hosts, log)) for host in hosts]
        commands.append((hosts[0], host_services.redis(hosts[0], log)))
        servers = [HostActor(host, replace(command, environment={})) for host, command in commands]
        beat = _program(hosts[0], "beat", settings, log, "tasks.beat_leader")
        arguments = ("benchmarks._step_worker", "-c", str(PROCESSES), "-n", "worker@%h")
        workers = [_program(host, "worker", settings, log, *arguments) for host in hosts]
        for tier in (servers, [beat]):
            for actor in tier:
                actor.start()
            for actor in tier:
                actor.await_ready()
        for host in hosts:
            host.packets.hold_back(DELAY, log / f"{host.name}-relay.log")
        session = held.enter_context(connect(settings))
        rates: dict[int, list[float]] = {count: [] for count in range(1, HOSTS + 1)}
        for _ in range(ROUNDS):
            for count, rounds in rates.items():
                rounds.append(_jobs_per_second(session, settings, workers[:count]))
        return rates


def main() -> int:
    if reason := machine.why_not():
        tell({"benchmark": "hosts", "not_run": reason})
        return exit_codes.UNREACHABLE
    machine.enter("benchmarks.hosts")
    _machine.use_two_cores()
    with tempfile.TemporaryDirectory(prefix="arkline-hosts-") as folder:
        rates = _rates(Path(folder))
    ratios = [most / one for one, most in zip(rates[1], rates[HOSTS], strict=True)]
    figures: dict[str, object] = {
        "step_ms": STEP_MS,
        "processes_a_host": PROCESSES,
        "delay_ms": 1000 * DELAY,
        "delay_by": network.delayed_by(),
    }
    for count, rounds in rates.items():
        figures[f"hosts_{count}_jobs_per_second"] = round(median(rounds), 2)
        figures[f"hosts_{count}_jobs_per_second_range"] = spread(rounds)
    report("hosts", ratios, GOAL, median(ratios) >= GOAL, {**figures, **_machine.host()})
    return 0


if __name__ == "__main__":
    run(main, __doc__)
