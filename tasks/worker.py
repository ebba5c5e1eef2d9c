"""A worker process besides its tasks: logs, readiness, drain, watchdog, and the end of its session.

Drain: a worker consumes its own queues unless the record says that an operator drained it. Rule: what the
record last said holds while ZooKeeper is unreachable. Nothing is consumed before the record has been read
once, and no message in Redis changes what is consumed.

Watchdog: Celery has had workers that stopped consuming after Redis came back, but passed every other check
(celery#8091, celery#10205). A running process proves nothing: if waiting messages are not consumed, the
worker exits, so that its supervisor restarts it.
"""

import gc
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import redis
from celery import bootsteps, concurrency
from celery.concurrency import prefork
from celery.signals import (
    celeryd_init,
    setup_logging,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)
from celery.worker import state
from celery.worker.consumer.tasks import Tasks

from pipeline.errors import ArklineError, UsageRefused
from pipeline.settings import Settings
from tasks import interruption, logs, transport
from tasks.broker import waiting_messages
from tasks.events import is_listened
from tasks.logs import log
from tasks.state_task import log_no_stack
from tasks.stores import await_claim, confirmed_id, keep_claim, say_ready
from tasks.worker_context import Stop, WorkerContext
from zkstate.connection.session import Session, connect
from zkstate.errors import Unreachable
from zkstate.fleet import holds

EXIT_STALLED = os.EX_TEMPFAIL
"""A supervisor restarts the process."""


SAMPLES = 4
"""Consecutive samples without a consumed message, after which a worker counts as stalled."""


@dataclass(frozen=True)
class Sample:
    """The worker and its queues at one moment."""

    waiting: int
    """Messages in the queues that this worker consumes; 0 if Redis does not answer."""
    taken: int
    """Messages that the worker has consumed since it started."""
    idle: bool
    """True if the worker has a free process."""


def watch(
    sample: Callable[[], Sample], end: Callable[[], None], limit: float, stopped: threading.Event
) -> None:
    """Until `stopped`: call `end` if nothing was consumed in SAMPLES samples, spread over `limit` seconds."""
    before = sample()
    stalled = 0
    while not stopped.wait(limit / SAMPLES):
        now = sample()
        could_consume = before.idle and now.idle and before.waiting and now.waiting
        stalled = stalled + 1 if could_consume and now.taken == before.taken else 0
        before = now
        if stalled >= SAMPLES:
            end()
            return


def take_sample(settings: Settings, queues: Iterable[str], concurrency: int) -> Sample:
    try:
        waiting = waiting_messages(settings, queues)
    except redis.RedisError:
        waiting = 0
    return Sample(waiting, sum(state.total_count.values()), len(state.active_requests) < concurrency)


def end_stalled() -> None:
    log().critical("consumer stalled with messages queued; exiting for restart")
    os._exit(EXIT_STALLED)


INTERVAL = 1.0
"""Seconds between two reads of the record, and between two checks of what was read."""

DRAIN_END = 5.0
"""Maximum seconds in which a stopping worker ends a drain that lasts until the stop."""


@dataclass
class OwnDrain:
    """Whether this worker is drained, as the record last said."""

    serve: Callable[[str, bool], None]
    """Called for each of the worker's queues: whether its messages are consumed."""
    drained: bool = False
    known: threading.Event = field(default_factory=threading.Event)
    """Set once the record was read."""


def follow_drains(
    settings: Settings, worker: str, own: OwnDrain, stopped: threading.Event
) -> threading.Thread:
    """Read the record until `stopped`, in a separate thread: an unreachable ZooKeeper delays no message.

    The session has no lock. It belongs to the worker's main process, whose children never use it.
    """

    def run() -> None:
        logged = ""
        while not stopped.is_set():
            try:
                with connect(settings) as session:
                    _read(session, worker, own, stopped)
            except ArklineError as error:
                if logged != (logged := str(error)):
                    log().error("not known whether this worker is drained", error=logged)
                stopped.wait(INTERVAL)

    thread = threading.Thread(target=run, name="drain", daemon=True)
    thread.start()
    return thread


def _read(session: Session, worker: str, own: OwnDrain, stopped: threading.Event) -> None:
    """Read the drain until `stopped`, or until this session is refused for ever."""
    while session.usable and not stopped.is_set():
        with suppress(Unreachable):  # the session connects again by itself
            if not own.known.is_set():  # a worker of this name may have been killed
                holds.end_with_worker(session, worker)
            own.drained = holds.is_drained(session, worker)
            own.known.set()
        stopped.wait(INTERVAL)
    if stopped.is_set() and own.drained:
        with suppress(Unreachable):  # an operator ends the drain of a worker that is gone
            holds.end_with_worker(session, worker)


def draining_step(own: OwnDrain, listen: Callable[[bool], None]) -> type[bootsteps.StartStopStep]:
    """The step of Celery's consumer that follows `own`, and reports to `listen` whether anybody wants events.

    It starts with every connection to Redis, before the first message.
    """

    class KeepToDrain(bootsteps.StartStopStep):
        requires = (Tasks,)

        def __init__(self, consumer: Any, **options: Any) -> None:
            super().__init__(consumer, **options)
            self.queues = tuple(consumer.app.amqp.queues.consume_from)
            """The queues that the worker was started for (`-Q`)."""
            self.entry: Any = None

        def start(self, consumer: Any) -> None:
            self.stop(consumer)
            self.look(consumer)
            self.entry = consumer.timer.call_repeatedly(INTERVAL, self.look, (consumer,))

        def look(self, consumer: Any) -> None:
            _keep(consumer, self.queues, own)
            listen(is_listened(consumer.event_dispatcher))

        def stop(self, consumer: Any) -> None:
            if self.entry is not None:
                self.entry.cancel()

    return KeepToDrain


def _keep(consumer: Any, queues: Sequence[str], own: OwnDrain) -> None:
    """Have Celery's consumer consume the queues or, if the worker is drained, none of them."""
    if consumer.task_consumer is None:  # the worker stops
        return
    drained, consumed = own.drained, {queue.name for queue in consumer.task_consumer.queues}
    for queue in queues:
        if drained and queue in consumed:
            consumer.cancel_task_queue(queue)
        elif not drained and queue not in consumed:
            consumer.add_task_queue(queue)
        own.serve(queue, not drained)
    if drained == bool(consumed):
        log().info("drained: no queue is consumed" if drained else "not drained: queues are consumed")


FETCH_GRACE = 3.0
"""Seconds that a stopping worker waits for a download, which the next attempt continues where it stopped."""

OBJECTS_BEFORE_COLLECTION = 10_000
"""New objects before Python's cyclic garbage collector runs; its default is 700."""


def connect_signals(context: WorkerContext) -> None:
    """Connect to Celery's signals, which are global to the process: call this once."""
    settings = context.settings

    def start_watchdog(sender: Any, **_: Any) -> None:
        """See `watch`; a worker that is stopping consumes no messages on purpose."""
        queues, concurrency = sender.app.amqp.queues, sender.controller.concurrency
        stopped = threading.Event()
        worker_shutting_down.connect(lambda **_: stopped.set(), weak=False)

        def sample() -> Sample:
            return take_sample(settings, tuple(queues.consume_from), concurrency)

        watching = partial(watch, sample, end_stalled, settings.stalled_after, stopped)
        threading.Thread(target=watching, name="watchdog", daemon=True).start()

    def await_record(sender: str, **_: Any) -> None:
        """Before Celery connects and forks: nothing is consumed until the stores are confirmed.

        `sender` is the worker's name.
        """
        logs.configure(settings.log_level)
        try:
            own = await_claim(settings, partial(connect, settings), partial(confirmed_id, settings))
        except UsageRefused as error:  # Celery would log the error and start
            raise SystemExit(str(error)) from error
        stopped = threading.Event()
        worker_ready.connect(lambda **_: keep_claim(settings, own, stopped), weak=False)
        worker_shutting_down.connect(lambda **_: stopped.set(), weak=False)
        following = follow_drains(settings, sender, own_drain, stopped)
        worker_shutdown.connect(lambda **_: following.join(DRAIN_END), weak=False)
        own_drain.known.wait()

    own_drain = OwnDrain(context.serve)
    context.app.steps["consumer"].add(draining_step(own_drain, context.listen))
    celeryd_init.connect(lambda **_: transport.restrict_remote_control(), weak=False)
    celeryd_init.connect(_refuse_other_pools, weak=False)
    celeryd_init.connect(await_record, weak=False)
    setup_logging.connect(lambda **_: logs.configure(settings.log_level), weak=False)
    setup_logging.connect(lambda **_: log_no_stack(), weak=False)
    # after that time the process has lost its session, and its attempt is over
    end_if_hung = partial(interruption.start_hang_guard, settings.zk_session_timeout)
    worker_process_init.connect(lambda **_: end_if_hung(), weak=False)
    worker_process_init.connect(_collect_less_garbage, weak=False)
    worker_process_init.connect(context.note_name, weak=False)
    worker_process_shutdown.connect(lambda **_: context.close(), weak=False)
    worker_shutting_down.connect(partial(_limit_warm_stop, context), weak=False)
    worker_ready.connect(_say_ready_once_subscribed, weak=False)
    worker_ready.connect(start_watchdog, weak=False)


def _say_ready_once_subscribed(sender: Any, **_: Any) -> None:
    """Celery calls a worker ready before it subscribes to remote control: a command in between would be lost.

    The first iteration of the worker's event loop subscribes, and ends when Redis confirms.
    """
    sender.hub.call_soon(sender.hub.call_soon, say_ready)


def _refuse_other_pools(conf: Any, options: Mapping[str, Any], **_: Any) -> None:
    """Exit unless the pool forks: a process works on one job, and shares memory with its parent."""
    pool = concurrency.get_implementation(options.get("pool") or options.get("pool_cls") or conf.worker_pool)
    if not issubclass(pool, prefork.TaskPool):
        raise SystemExit("the pool must be prefork: each process works on one job; remove -P and worker_pool")
    if (options.get("pool_start_method") or conf.worker_pool_start_method or "fork") != "fork":
        raise SystemExit(
            "the processes of the pool must be forked: they share memory with the worker; "
            "remove --pool-start-method and worker_pool_start_method"
        )


def _collect_less_garbage(**_: Any) -> None:
    """Exempt the objects that libraries made while loading from garbage collection, and collect less often.

    Examining them took 4 percent of a small job's CPU time in Python.
    """
    gc.freeze()
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION, 20, 20)


def _limit_warm_stop(context: WorkerContext, how: str = "", **_: Any) -> None:
    """A warm stop lets running steps finish until the grace period ends; then they hand back."""
    if how != "Warm":
        return
    context.ask_to_stop(Stop.ONWARD)
    for seconds, stop in ((FETCH_GRACE, Stop.FETCHES), (context.settings.stop_grace, Stop.ALL)):
        grace = threading.Timer(seconds, context.ask_to_stop, (stop,))
        grace.daemon = True
        grace.start()
