"""The Celery workers of the fleet: who consumes which queue, how busy they are, and draining one of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import redis
from celery.app.control import Inspect
from kombu.exceptions import OperationalError

from operations.fleet import Worker, broker_address
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.machine import Queue
from pipeline.records import Record
from pipeline.settings import Settings
from tasks.publisher import publisher
from zkstate import holds
from zkstate.journal import Action

if TYPE_CHECKING:
    from operations.operator import Operator

ANSWER_WAIT = 5.0
"""Seconds to wait for each worker's answer; nobody is waited for once all that were asked have answered."""

OBEY_INTERVAL = 0.1
"""Seconds between two questions to a worker that is to obey an order."""

ONE_WAIT = 15.0
"""Seconds to wait for the answer of one worker that was named: its answer ends the wait."""


class Drained(Record):
    """A worker and the queues that it consumes now."""

    worker: str
    queues: tuple[str, ...]


def workers(settings: Settings) -> tuple[Worker, ...]:
    """The workers that answer, by name; those that are slow are waited for."""
    queues, active, stats = _ask(
        settings, lambda i: i.active_queues(), lambda i: i.active(), lambda i: i.stats()
    )
    return tuple(
        Worker(
            name=name,
            queues=_names(consumed),
            processes=int(stats.get(name, {}).get("pool", {}).get("max-concurrency", 0)),
            busy=len(active.get(name, ())),
        )
        for name, consumed in sorted(queues.items())
    )


def taking(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Worker -> the queues that it consumes; only the workers that answer in time."""
    (queues,) = _ask(settings, lambda inspect: inspect.active_queues())
    return {name: _names(consumed) for name, consumed in queues.items()}


def _taken_by(settings: Settings, worker: str) -> tuple[str, ...] | None:
    """The queues that this worker consumes; None if it does not answer."""
    (queues,) = _ask(settings, lambda inspect: inspect.active_queues(), wait=ONE_WAIT, worker=worker)
    return _names(queues[worker]) if worker in queues else None


def _names(queues: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(sorted(queue["name"] for queue in queues))


def _ask(
    settings: Settings, *questions: Callable[[Inspect], Any], wait: float = ANSWER_WAIT, worker: str = ""
) -> list[dict[str, Any]]:
    """The answers by worker; asked at the same time, since every question waits as long."""
    control = publisher(settings).control
    inspect = partial(control.inspect, [worker] if worker else None, timeout=wait)
    try:
        with ThreadPoolExecutor(len(questions)) as threads:
            answers = [threads.submit(question, inspect()) for question in questions]
            return [answer.result() or {} for answer in answers]
    except (OperationalError, redis.RedisError) as error:
        raise ServiceUnreachable(
            f"Redis at {broker_address(settings)} does not answer: is it running? (ARKLINE_BROKER_URL)"
        ) from error


def drain(operator: Operator, worker: str, *, undo: bool = False) -> Drained:
    """Stop a worker from accepting new tasks, so that it may be stopped once it is idle.

    A restart of the worker undoes it. The action is recorded before it takes effect.
    """
    operator.require(f"drain worker {worker}")
    settings = operator.settings
    if _taken_by(settings, worker) is None:
        names = ", ".join(sorted(taking(settings))) or "none answers"
        raise UsageRefused(f"no worker called '{worker}' answers; running: {names}")
    action = Action.UNDO_DRAIN if undo else Action.DRAIN
    holds.record_action(operator.session, action, operator.stamp, worker)
    control = publisher(settings).control
    for queue in Queue:
        order = control.add_consumer if undo else control.cancel_consumer
        order(queue, destination=[worker], reply=True, timeout=ONE_WAIT)
    return Drained(worker=worker, queues=_await_queues(settings, worker, set(Queue) if undo else set()))


def _await_queues(settings: Settings, worker: str, expected: set[Queue]) -> tuple[str, ...]:
    """The queues that the worker consumes: it says that it will obey before it does."""
    deadline = time.monotonic() + ONE_WAIT
    while True:
        queues = _taken_by(settings, worker) or ()
        if set(queues) == expected or time.monotonic() > deadline:
            return queues
        time.sleep(OBEY_INTERVAL)
