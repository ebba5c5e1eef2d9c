"""The Celery workers of the fleet: who consumes which queue, how busy they are, and draining one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from celery.app.control import Inspect
from kombu.exceptions import OperationalError
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from operations.fleet import Worker, broker_address
from operations.site import Site
from operations.visibility import require_fleet
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.principal import Principal
from pipeline.records import Record
from pipeline.settings import Settings
from tasks.publisher import publisher
from zkstate import holds
from zkstate.holds import Hold

if TYPE_CHECKING:
    from operations.operator import Operator

T = TypeVar("T")

ANSWER_WAIT = 5.0
"""Seconds to wait for each worker's answer; nobody is waited for once all that were asked have answered."""

FOLLOW_INTERVAL = 0.1
"""Seconds between two questions to a worker that is to follow the record."""

FOLLOW_WAIT = 15.0
"""Seconds that a worker may take to follow the record: 2, unless its machine is busy."""

ONE_WAIT = 15.0
"""Seconds to wait for the answer of one worker that was named: its answer ends the wait."""


class Workers(Record):
    """The workers that answer, and those that an operator drained."""

    workers: tuple[Worker, ...]
    drained: dict[str, Hold] = Field(default_factory=dict)
    """Worker -> who drained it, when and why; also workers that do not answer."""

    @property
    def taking(self) -> dict[str, tuple[str, ...]]:
        """Worker -> the queues that it consumes."""
        return {worker.name: worker.queues for worker in self.workers}


class Drained(Record):
    """A worker, its drain in the record, and the queues that it consumes now."""

    worker: str
    queues: tuple[str, ...]
    answers: bool = True
    """False if the worker does not answer: its queues are not known."""
    drain: Hold | None = None
    """Who drained the worker, when and why; absent if nobody did."""
    changed: bool = True
    """False if it was so before."""
    followed: bool = True
    """False if the worker has not followed yet: it does once it reaches ZooKeeper."""


class _Queue(BaseModel):
    name: str


class _Pool(BaseModel):
    processes: int = Field(0, alias="max-concurrency")


class _Stats(BaseModel):
    pool: _Pool = _Pool()


_QUEUES, _TASKS, _STATS = TypeAdapter(tuple[_Queue, ...]), TypeAdapter(list[Any]), TypeAdapter(_Stats)
"""The answers of a worker to `active_queues`, `active` and `stats`, as far as they are used."""


def workers(settings: Settings) -> tuple[Worker, ...]:
    """The workers that answer, by name; those that are slow are waited for."""
    queues, active, stats = _ask(
        settings, lambda i: i.active_queues(), lambda i: i.active(), lambda i: i.stats()
    )
    tasks, pools = _known(active, _TASKS), _known(stats, _STATS)
    return tuple(
        Worker(
            name=name,
            queues=_names(consumed),
            processes=pools[name].pool.processes if name in pools else 0,
            busy=len(tasks.get(name, ())),
        )
        for name, consumed in sorted(_known(queues, _QUEUES).items())
    )


def listed(site: Site, principal: Principal) -> Workers:
    """Needs the record, and Redis."""
    require_fleet(principal, "see the workers")
    return Workers(workers=workers(site.settings), drained=holds.drained(site.session))


def taking(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Worker -> the queues that it consumes; only the workers that answer in time."""
    (queues,) = _ask(settings, lambda inspect: inspect.active_queues())
    return {name: _names(consumed) for name, consumed in _known(queues, _QUEUES).items()}


def _taken_by(settings: Settings, worker: str) -> tuple[str, ...] | None:
    """The queues that this worker consumes; None if it does not answer."""
    (queues,) = _ask(settings, lambda inspect: inspect.active_queues(), wait=ONE_WAIT, worker=worker)
    known = _known(queues, _QUEUES)
    return _names(known[worker]) if worker in known else None


def _known(answers: Mapping[str, Any], form: TypeAdapter[T]) -> dict[str, T]:
    """Without what no worker answers: whoever writes to Redis may have answered."""
    known = {}
    for name, answer in answers.items():
        with suppress(ValidationError):
            known[name] = form.validate_python(answer)
    return known


def _names(queues: Iterable[_Queue]) -> tuple[str, ...]:
    return tuple(sorted(queue.name for queue in queues))


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
    """Have a worker take no new tasks, so that it may be stopped once it is idle; `undo` ends that.

    The drain is in the record, so it lasts over a restart of the worker. It is ended for a worker that does
    not answer too.
    """
    operator.require(f"drain worker {worker}")
    session, settings = operator.session, operator.settings
    known = holds.drained(session)
    if worker not in known and _taken_by(settings, worker) is None:
        raise _unknown(settings, worker, known)
    if undo:
        changed = worker in known and holds.undo_drain(session, operator.stamp, worker)
    else:
        changed = holds.drain(session, operator.hold, worker)
    queues = _await_queues(settings, worker, some=undo)
    return Drained(
        worker=worker,
        queues=queues or (),
        answers=queues is not None,
        drain=holds.drained(session).get(worker),
        changed=changed,
        followed=queues is not None and bool(queues) is undo,
    )


def _unknown(settings: Settings, worker: str, drained: Iterable[str]) -> UsageRefused:
    running = ", ".join(sorted(taking(settings))) or "none answers"
    also = f"; drained: {', '.join(drained)}" if drained else ""
    return UsageRefused(f"no worker called '{worker}' answers; running: {running}{also}")


def _await_queues(settings: Settings, worker: str, *, some: bool) -> tuple[str, ...] | None:
    """The queues that the worker consumes once there are some, or none; None if it does not answer."""
    deadline = time.monotonic() + FOLLOW_WAIT
    queues: tuple[str, ...] | None = None
    with suppress(ServiceUnreachable):  # Redis is away: it is not known what the worker does
        while True:
            queues = _taken_by(settings, worker)
            if queues is None or bool(queues) is some or time.monotonic() > deadline:
                return queues
            time.sleep(FOLLOW_INTERVAL)
    return None
