"""The Celery workers of the fleet: who consumes which queue, how busy they are, and draining one of them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis
from celery.app.control import Inspect
from kombu.exceptions import OperationalError

from operations.fleet import Worker, broker_address
from operations.operator import Operator
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.machine import Queue
from pipeline.records import Record
from pipeline.settings import Settings
from tasks.publisher import publisher
from zkstate import holds
from zkstate.journal import Action

ANSWER_WAIT = 1.0
"""Seconds to wait for workers' answers; a worker whose processes are all busy answers all the same."""


class Drained(Record):
    """A worker and the queues that it consumes now."""

    worker: str
    queues: tuple[str, ...]


def workers(settings: Settings, wait: float) -> tuple[Worker, ...]:
    """The workers that answer within `wait` seconds, by name."""
    queues, active, stats = _ask(
        settings, lambda i: i.active_queues(), lambda i: i.active(), lambda i: i.stats(), wait=wait
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


def _names(queues: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(sorted(queue["name"] for queue in queues))


def _ask(
    settings: Settings, *questions: Callable[[Inspect], Any], wait: float = ANSWER_WAIT
) -> list[dict[str, Any]]:
    """The answers by worker; asked at the same time, since every question waits as long."""
    control = publisher(settings).control
    try:
        with ThreadPoolExecutor(len(questions)) as threads:
            answers = [threads.submit(question, control.inspect(timeout=wait)) for question in questions]
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
    known = taking(settings)
    if worker not in known:
        names = ", ".join(sorted(known)) or "none answers"
        raise UsageRefused(f"no worker called '{worker}' answers; running: {names}")
    action = Action.UNDO_DRAIN if undo else Action.DRAIN
    holds.record_action(operator.session, action, operator.stamp, worker)
    control = publisher(settings).control
    for queue in Queue:
        order = control.add_consumer if undo else control.cancel_consumer
        order(queue, destination=[worker], reply=True, timeout=ANSWER_WAIT)
    return Drained(worker=worker, queues=taking(settings).get(worker, ()))
