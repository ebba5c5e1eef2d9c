"""A worker consumes its own queues unless the record says that an operator drained it.

Rule: what the record last said holds while ZooKeeper is away. Nothing is consumed before the record has been
read once, and no message in Redis changes what is consumed.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from celery import bootsteps
from celery.worker.consumer.tasks import Tasks

from pipeline.errors import ArklineError
from pipeline.settings import Settings
from tasks.logs import log
from zkstate import holds
from zkstate.errors import Unreachable
from zkstate.session import Session, connect

INTERVAL = 1.0
"""Seconds between two looks at the record, and between two at what was read of it."""


@dataclass
class OwnDrain:
    """What the record last said of this worker."""

    serve: Callable[[str, bool], None]
    """Called for each of the worker's queues: whether its messages are consumed."""
    drained: bool = False
    known: threading.Event = field(default_factory=threading.Event)
    """Set once the record was read."""


def follow(settings: Settings, worker: str, own: OwnDrain, stopped: threading.Event) -> None:
    """Read the record until `stopped`, on a thread of its own: a ZooKeeper that is away delays no message.

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

    threading.Thread(target=run, name="drain", daemon=True).start()


def _read(session: Session, worker: str, own: OwnDrain, stopped: threading.Event) -> None:
    """Until `stopped`, or until this session is refused for ever."""
    while session.usable and not stopped.is_set():
        with suppress(Unreachable):  # the session connects again by itself
            own.drained = holds.is_drained(session, worker)
            own.known.set()
        stopped.wait(INTERVAL)


def step(own: OwnDrain) -> type[bootsteps.StartStopStep]:
    """The part of Celery's consumer that keeps to `own`.

    It starts with every connection to Redis, before the first message.
    """

    class KeepToDrain(bootsteps.StartStopStep):
        requires = (Tasks,)

        def __init__(self, consumer: Any, **options: Any) -> None:
            super().__init__(consumer, **options)
            self.queues = tuple(consumer.app.amqp.queues.consume_from)
            """Those that the worker was started for (`-Q`)."""
            self.entry: Any = None

        def start(self, consumer: Any) -> None:
            self.stop(consumer)
            _keep(consumer, self.queues, own)
            self.entry = consumer.timer.call_repeatedly(INTERVAL, _keep, (consumer, self.queues, own))

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
