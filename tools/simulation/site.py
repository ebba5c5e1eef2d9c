"""One site in a world: its stores, and the processes of its fleet with their real tasks and steps."""

import smtplib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

import celeryconfig
import pipeline.notify.callback
from pipeline import checks
from pipeline.http import service
from pipeline.inventory import database
from pipeline.records import Ticket
from pipeline.settings import Settings
from pipeline.sources import fetch
from pipeline.states import BATCH, JOB, Queue
from pipeline.steps import download_space
from pipeline.steps.context import Clients, open_clients
from tasks import after_move, broker, callback, redis_keys, run, stores, worker_context
from tasks.batch import BATCHES
from tasks.interruption import Interruption
from tasks.run import JOBS
from tasks.scheduled import beat
from tasks.worker_context import WorkerContext
from tools.simulation.client import Network, SimulatedClient
from tools.simulation.outside import Outside
from tools.simulation.replacing import replacing
from tools.simulation.stand_ins import Broker, Checker, Decoder, Message, OddNames, Publisher, Sources
from tools.simulation.world import Process, World
from zkstate.connection import session

_STATE_TASKS: dict[str, Any] = {
    **dict.fromkeys((task.name for task in JOB.tasks()), JOBS),
    **dict.fromkeys((task.name for task in BATCH.tasks()), BATCHES),
}

BEATS = (
    *("feed", "recheck_provisioning", "sweep", "check_stores", "watch_outages", "clean_up_jobs"),
    "clean_up_batches",
)
"""The scheduled work of a history; the rest does not move jobs."""

OFTEN = 20.0
"""Seconds between two runs of work that is done every few minutes: a history lasts a minute or two."""

STEPS = {"SMALLEST_STEP": 1 << 10, "FIRST_STEP": 1 << 12, "LARGEST_STEP": 1 << 14}
"""Bytes by which a reservation grows, in proportion to a small working storage."""

RESTART = 2.0
"""Seconds until a supervisor starts a killed process again."""


def _open_clients(settings: Settings, *more: Any) -> Clients:
    """The real ones, but that decoding and checks are done in the process."""
    simulated: Any = {"decoder": Decoder(), "checker": Checker()}
    return replace(open_clients(settings, *more), **simulated)


@dataclass
class Site:
    """What a history has: the servers, the broker, the sources, and the processes that run now."""

    world: World
    settings: Settings
    network: Network
    broker: Broker
    sources: Sources
    outside: Outside
    workers: list[Process]

    def start_worker(self, name: str) -> Process:
        world = self.world
        process = world.process(name)
        app: Any = Publisher(self.broker)
        context = WorkerContext(self.settings, app)
        callback.register(context)
        beat.register(context)
        for queue in Queue:
            context.serve(queue.value)
        self.workers.append(process)
        process.at_end.append(lambda: self._ended(process))
        world.spawn(process, partial(self._work, context))
        return process

    def _ended(self, process: Process) -> None:
        self.workers.remove(process)
        self.world.after(RESTART, lambda: self.start_worker(process.name))

    def _work(self, context: WorkerContext) -> None:
        """Consume messages, one after another."""
        while True:
            message = self.broker.take()
            if message is None:
                self.world.park(0.2)
                continue
            structlog.contextvars.clear_contextvars()
            self.world.pass_place("worker", f"takes {message.task}")
            consume(context, message)

    def start_beat(self) -> None:
        """Beat's messages, each with its own period; the scheduler itself is not simulated."""
        for position, name in enumerate(BEATS):
            period = min(float(str(celeryconfig.beat_schedule[name]["schedule"])), OFTEN)
            self.world.after(0.1 * position, partial(self._tick, f"beat.{name}", period))

    def _tick(self, task: str, period: float) -> None:
        if self.broker.answers:
            self.broker.send(task, (), expires=period + celeryconfig.CLOCK_DIFFERENCE)
        self.world.after(period, partial(self._tick, task, period))


def consume(context: WorkerContext, message: Message) -> None:
    """What Celery does with a message: run its task, and then those of its chain."""
    works = _STATE_TASKS.get(message.task)
    if works is None:
        context.app.tasks[message.task](*message.arguments)
        return
    ended = run.run(context, Ticket.model_validate(message.arguments[0]), works)
    while context.carried is not None and ended.following is not None:
        ended = run.run(context, ended.following, works)
    if ended.following is not None:
        assert ended.moved is not None
        broker.dispatch_job(context.app, ended.following, ended.moved.status.priority)


@contextmanager
def replaced(site: Site) -> Iterator[None]:
    """The seams where production code reaches ZooKeeper and Redis, for this block."""

    def make_client(settings: Settings) -> SimulatedClient:
        current = site.world.current
        assert current is not None
        return SimulatedClient(site.network, current.process, settings.zk_hosts, settings.zk_session_timeout)

    with replacing() as put:
        put(session, "make_client", make_client)
        put(session, "why_unreachable", lambda _: "the simulated ensemble does not answer")
        for module in (redis_keys, after_move, broker, stores):
            put(module, "client", lambda *_: site.broker)
        put(broker, "publisher", lambda _: Publisher(site.broker))
        put(beat, "read_queues", site.broker.queued)
        put(stores, "_place", lambda _: "simulated")
        put(worker_context, "open_clients", _open_clients)
        # an attempt ends at its own checks: no second thread of a simulated process ends it
        put(Interruption, "__init__", lambda *_: None)
        put(Interruption, "when_over", lambda *_: nullcontext())
        put(fetch, "ContentSession", lambda *_, **__: site.sources)
        put(checks, "installed", lambda _: OddNames)
        for name, size in STEPS.items():
            put(download_space, name, size)
        put(service, "request", site.outside.register)
        put(smtplib, "SMTP", lambda *_, **__: site.outside)
        put(pipeline.notify.callback, "ContentSession", lambda *_, **__: site.outside)
        # simulated processes share the inventory's connections, and one that is killed would keep this lock
        put(database, "_guard", nullcontext())
        yield


def drop_engines(url_part: str) -> None:
    """Close the inventory's connections of a history that is over."""
    for url in [one for one in database._engines if url_part in str(one)]:
        database._engines.pop(url).engine.dispose()
