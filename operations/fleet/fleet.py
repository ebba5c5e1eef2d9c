"""The fleet as one request sees it: Redis, beat, the workers and their queues; and the draining of a worker.

Redis and the workers are queried once, and only if the answer is needed. The clients of Redis and Celery are
imported as modules, which the command line loads on first use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import kombu.exceptions
import redis
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from operations.certificates import expiry
from operations.explanation import Obstacle
from operations.reasons import Reason
from operations.site import Site
from operations.visibility import require_fleet
from pipeline.errors import Action, Remedy, ServiceUnreachable, UsageRefused
from pipeline.principal import Principal, Role
from pipeline.records import Record
from pipeline.settings import Settings
from tasks import broker, stores, transport
from zkstate.care import deployment
from zkstate.fleet import holds, scheduled
from zkstate.fleet.holds import Hold
from zkstate.fleet.scheduled import leader
from zkstate.record.journal import Stamp

if TYPE_CHECKING:
    from celery.app.control import Inspect

    from tasks.broker import Queued

_REMEDIES = {
    Reason.BROKER_UNREACHABLE: Action.START_BROKER,
    Reason.BROKER_REFUSES: Action.FIX_BROKER,
    Reason.BROKER_FOREIGN: Action.CHANGE_PREFIX,
    Reason.NO_BEAT: Action.START_BEAT,
    Reason.SWEEP_LATE: Action.RESTART_BEAT,
    Reason.NO_WORKER: Action.START_WORKER,
}
"""Remedies for the obstacles that keep the fleet from processing jobs."""

CONTROL = "control"
"""The queue of scheduled work."""

TRIES = 2
"""The pool may hold connections from before a restart of Redis."""


class Worker(Record):
    """A worker that answers."""

    name: str
    queues: tuple[str, ...]
    """Those that it consumes; none if it is drained."""
    processes: int = 0
    busy: int = 0
    """Processes that work on a task now; 0 if the worker did not say."""
    says_busy: bool = True
    """False if the worker did not say what it works on."""


@dataclass(frozen=True)
class Broker:
    """The answer of Redis."""

    queued: Queued | None
    """The queued messages; None if they cannot be read, or belong to another deployment."""
    fault: Obstacle | None
    """Why workers receive no messages."""
    at: datetime
    """When Redis was queried."""


@dataclass(frozen=True)
class Answers:
    """Recent answers of Redis and the workers, for callers that cannot wait for new ones."""

    broker: Broker | None
    """None if nothing is known of Redis."""
    workers: tuple[Worker, ...] | None
    """None if nothing is known of the workers."""


def ask_broker(site: Site) -> Broker:
    """Query Redis: it must answer, accept a write, and have this deployment's messages under the prefix."""
    session, settings, at = site.session, site.settings, datetime.now(UTC)
    address = broker_address(settings)
    try:
        broker.try_write(settings)
        owner = stores.owner(settings)
        recorded = deployment.read(session) if session.connected else None
        ours = recorded is None or owner in ("", recorded.id) or stores.is_ours(settings, recorded)
        if recorded is not None and not ours:
            message = stores.claimed_by_other(settings, owner, recorded.id)
            return Broker(
                None, Obstacle(reason=Reason.BROKER_FOREIGN, waits_for=address, message=message), at
            )
        queued = broker.read_queues(settings)
    except broker.REFUSALS as error:  # Redis's own words: a replica, out of memory, a wrong password
        return Broker(None, Obstacle(reason=Reason.BROKER_REFUSES, waits_for=address, message=str(error)), at)
    except (redis.RedisError, kombu.exceptions.OperationalError):
        message = expiry.expired_broker(settings)
        return Broker(
            None, Obstacle(reason=Reason.BROKER_UNREACHABLE, waits_for=address, message=message), at
        )
    return Broker(queued, None, at)


def ask_workers(settings: Settings) -> tuple[Worker, ...]:
    """The workers that answer within some seconds; ServiceUnreachable if Redis does not answer."""

    for _ in range(TRIES - 1):
        with suppress(ServiceUnreachable):
            return workers(settings)
    return workers(settings)


def broker_address(settings: Settings) -> str:
    """Host and port, without the password."""
    parts = urlsplit(settings.broker_url)
    host = parts.hostname or "?"
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or 6379}"


class Fleet:
    """Facts about the servers and processes that move jobs forward."""

    def __init__(self, site: Site, answers: Answers | None = None) -> None:
        """`answers`: what Redis and the workers have answered recently; None: ask them when needed."""
        self.site = site
        self.session = site.session
        self.settings = site.settings
        self.redis = broker_address(site.settings)
        self._answers = answers

    @cached_property
    def beat(self) -> str:
        """The process that sends scheduled work; empty if none runs."""
        return leader(self.session)

    @cached_property
    def drained(self) -> dict[str, Hold]:
        """The workers that an operator drained, whether or not they answer."""
        return holds.drained(self.session)

    @cached_property
    def broker(self) -> Broker | None:
        """None if nothing is known of Redis yet."""
        if self._answers is not None:
            return self._answers.broker
        return ask_broker(self.site)

    @property
    def fault(self) -> Obstacle | None:
        """Why workers receive no messages from Redis."""
        return self.broker.fault if self.broker else None

    @property
    def queued(self) -> Queued | None:
        """The messages queued in Redis; None if unknown."""
        return self.broker.queued if self.broker else None

    @property
    def tickets(self) -> frozenset[tuple[str, int]] | None:
        """(id, epoch) of the messages queued in Redis; None if unknown."""
        return None if self.queued is None else self.queued.tickets

    @property
    def foreign_messages(self) -> int:
        return 0 if self.queued is None else self.queued.foreign

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        """The workers that answer; none if they are unknown or Redis accepts no messages for them."""
        if self.fault is not None:
            return ()
        if self._answers is not None:
            return self._answers.workers or ()
        with suppress(ServiceUnreachable):
            return ask_workers(self.settings)
        return ()

    @property
    def knows_workers(self) -> bool:
        """False if Redis or the workers were queried and did not answer."""
        return self._answers is None or (self.broker is not None and self._answers.workers is not None)

    def consumers(self, queue: str) -> tuple[Worker, ...]:
        return tuple(worker for worker in self.workers if queue in worker.queues)

    def obstacles(self, *queues: str) -> tuple[Obstacle, ...]:
        """What keeps work in these queues, and scheduled work, from being done."""
        if self.fault is not None:
            return (self.fault,)
        beat = () if self.beat else (Obstacle(reason=Reason.NO_BEAT),)
        if not self.knows_workers:
            return beat
        idle = [queue for queue in dict.fromkeys((*queues, CONTROL)) if not self.consumers(queue)]
        late = self._late if self.beat and CONTROL not in idle else ()
        return (*beat, *late, *(Obstacle(reason=Reason.NO_WORKER, waits_for=queue) for queue in idle))

    @cached_property
    def _late(self) -> tuple[Obstacle, ...]:
        """A late sweep: only a finished sweep proves that beat and a worker, which both answer, do
        scheduled work."""
        seconds = scheduled.last_sweep(self.session)
        if seconds < scheduled.SWEEP_LIMIT:
            return ()
        return (Obstacle(reason=Reason.SWEEP_LATE, waits_for=self.beat, message=f"{seconds:.0f} s"),)

    def remedies(self, obstacles: Iterable[Obstacle]) -> tuple[Remedy, ...]:
        advice: list[Remedy] = []
        for obstacle in obstacles:
            if obstacle.reason is Reason.SWEEP_LATE:
                advice.append(Remedy(Action.START_WORKER, CONTROL))
            if obstacle.reason is Reason.NO_WORKER:
                advice += [Remedy(Action.UNDO_DRAIN, name) for name in self.drained]
                if any(worker.name in self.drained for worker in self.workers):
                    continue
            if (action := _REMEDIES.get(obstacle.reason)) is not None:
                advice.append(Remedy(action, obstacle.waits_for))
        return tuple(dict.fromkeys(advice))


T = TypeVar("T")

ANSWER_WAIT = 5.0
"""Maximum seconds to wait for the workers' answers; the wait ends once all have answered."""

FOLLOW_INTERVAL = 0.1
"""Seconds between two queries of a worker that should follow the record."""

FOLLOW_WAIT = 15.0
"""Maximum seconds for a worker to follow the record: it takes 2 unless its machine is busy."""

ONE_WAIT = 15.0
"""Maximum seconds to wait for one named worker; its answer ends the wait."""


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
"""The answers of a worker to `active_queues`, `active` and `stats`: only the fields in use."""


def workers(settings: Settings) -> tuple[Worker, ...]:
    """The workers that answer, by name; waits for slow ones."""
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
            says_busy=name in tasks,
        )
        for name, consumed in sorted(_known(queues, _QUEUES).items())
    )


def listed(site: Site, principal: Principal) -> Workers:
    """The workers that answer, and the drained ones; needs the record and Redis."""
    require_fleet(principal, "see the workers")
    return Workers(workers=workers(site.settings), drained=holds.drained(site.session))


def taking(settings: Settings, worker: str = "", wait: float = ANSWER_WAIT) -> dict[str, tuple[str, ...]]:
    """Worker -> the queues that it consumes; only workers that answer in time, or only this one."""
    (queues,) = _ask(settings, lambda inspect: inspect.active_queues(), wait=wait, worker=worker)
    return {name: _names(consumed) for name, consumed in _known(queues, _QUEUES).items()}


def _taken_by(settings: Settings, worker: str) -> tuple[str, ...] | None:
    """The queues that this worker consumes; None if it does not answer."""
    return taking(settings, worker, ONE_WAIT).get(worker)


def _known(answers: Mapping[str, Any], form: TypeAdapter[T]) -> dict[str, T]:
    """The answers in this form, without others: anyone who can write to Redis may have answered."""
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
    """The answers by worker; asked concurrently, since every question takes the full wait."""
    control = broker.publisher(settings).control
    inspect = partial(control.inspect, [worker] if worker else None, timeout=wait)
    try:
        with ThreadPoolExecutor(len(questions)) as threads:
            answers = [threads.submit(question, inspect()) for question in questions]
            return [answer.result() or {} for answer in answers]
    except (kombu.exceptions.OperationalError, redis.RedisError) as error:
        raise ServiceUnreachable(
            f"Redis at {broker_address(settings)} does not answer: is it running? (ARKLINE_BROKER_URL)"
        ) from error


def drain(
    site: Site,
    principal: Principal,
    worker: str,
    *,
    reason: str = "",
    undo: bool = False,
    until_stop: bool = False,
) -> Drained:
    """Stop a worker from taking new tasks, so that it can be stopped when idle; `undo` ends the drain.

    The drain is in the record, so it survives a restart of the worker, unless it lasts `until_stop`. It can
    be ended even if the worker does not answer.
    """
    principal.require(Role.OPERATOR, f"drain worker {worker}")
    session, settings = site.session, site.settings
    known = holds.drained(session)
    if worker not in known:
        _check_runs(settings, worker, known)
    if undo:
        changed = worker in known and holds.end(session, Stamp.of(principal, reason), worker=worker)
    else:
        hold = Hold.of(principal, reason).model_copy(update={"until_stop": until_stop or None})
        changed = holds.place(session, hold, worker=worker)
    queues = _await_queues(settings, worker, some=undo)
    return Drained(
        worker=worker,
        queues=queues or (),
        answers=queues is not None,
        drain=holds.drained(session).get(worker),
        changed=changed,
        followed=queues is not None and bool(queues) is undo,
    )


def _check_runs(settings: Settings, worker: str, drained: Iterable[str]) -> None:
    """UsageRefused unless the worker answers; at once if all answer, and none has this name."""
    asked = 0

    def ask(inspect: Inspect) -> Any:
        nonlocal asked
        answers = inspect.active_queues()
        asked = transport.receivers()
        return answers

    (answers,) = _ask(settings, ask)
    if worker in answers:
        return
    # the first question is lost to a worker that has just started
    if len(answers) >= asked or _taken_by(settings, worker) is None:
        names = ", ".join(sorted(_known(answers, _QUEUES))) or "none answers"
        also = f"; drained: {', '.join(drained)}" if drained else ""
        raise UsageRefused(f"no worker called '{worker}' answers; running: {names}{also}")


def _await_queues(settings: Settings, worker: str, *, some: bool) -> tuple[str, ...] | None:
    """The worker's queues, once it consumes some (or none); None if it does not answer."""
    deadline = time.monotonic() + FOLLOW_WAIT
    queues: tuple[str, ...] | None = None
    with suppress(ServiceUnreachable):  # Redis is unreachable: the worker's queues are unknown
        while True:
            queues = _taken_by(settings, worker)
            if queues is None or bool(queues) is some or time.monotonic() > deadline:
                return queues
            time.sleep(FOLLOW_INTERVAL)
    return None
