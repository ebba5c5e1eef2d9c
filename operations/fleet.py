"""The fleet as one answer sees it: Redis, the workers, the beat; asked once, and only if needed.

Celery takes a quarter of a second to load: it is imported where the fleet is asked.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from operations.facts import Obstacle, Reason
from operations.site import Site
from pipeline.errors import Action, Remedy, ServiceUnreachable
from pipeline.records import Record
from pipeline.settings import Settings
from zkstate import deployment, holds, sweep_record
from zkstate.holds import Hold
from zkstate.leadership import leader

if TYPE_CHECKING:
    from tasks.broker import Queued

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
    """Processes that work on a task now."""


@dataclass(frozen=True)
class Broker:
    """What Redis answered."""

    queued: "Queued | None"
    """The messages that wait there; None if they cannot be read, or are another deployment's."""
    fault: Obstacle | None
    """Why workers get no message."""
    at: datetime
    """When it was asked."""


@dataclass(frozen=True)
class Answers:
    """What Redis and the workers answered, for whoever cannot wait until they answer again."""

    broker: Broker | None
    """None: nothing is known of Redis."""
    workers: tuple[Worker, ...] | None
    """None: nothing is known of the workers."""


def ask_broker(site: Site) -> Broker:
    """Redis has to answer, to accept a write, and to have this deployment's messages under the prefix."""
    import redis
    from kombu.exceptions import OperationalError

    from tasks import broker, start_gate

    session, settings, at = site.session, site.settings, datetime.now(UTC)
    address = broker_address(settings)
    try:
        broker.try_write(settings)
        owner = start_gate.owner(settings)
        recorded = deployment.read(session) if session.connected else None
        ours = recorded is None or owner in ("", recorded.id) or start_gate.is_ours(settings, recorded)
        if recorded is not None and not ours:
            message = start_gate.claimed_by_other(settings, owner, recorded.id)
            return Broker(
                None, Obstacle(reason=Reason.BROKER_FOREIGN, waits_for=address, message=message), at
            )
        queued = broker.read_queues(settings)
    except redis.ResponseError as error:  # its own words: a replica, no memory, a wrong password
        return Broker(None, Obstacle(reason=Reason.BROKER_REFUSES, waits_for=address, message=str(error)), at)
    except (redis.RedisError, OperationalError):
        return Broker(None, Obstacle(reason=Reason.BROKER_UNREACHABLE, waits_for=address), at)
    return Broker(queued, None, at)


def ask_workers(settings: Settings) -> tuple[Worker, ...]:
    """A worker that does not answer is waited for some seconds; ServiceUnreachable if Redis does not."""
    from operations.workers import workers

    for _ in range(TRIES - 1):
        with suppress(ServiceUnreachable):
            return workers(settings)
    return workers(settings)


def broker_address(settings: Settings) -> str:
    """Host and port, without the password."""
    parts = urlsplit(settings.broker_url)
    return f"{parts.hostname or '?'}:{parts.port or 6379}"


class Fleet:
    """Facts about the servers and processes that carry jobs onward."""

    def __init__(self, site: Site, answers: Answers | None = None) -> None:
        """`answers`: of a moment ago; None: Redis and the workers are asked when their answer is needed."""
        self.site = site
        self.session = site.session
        self.settings = site.settings
        self._answers = answers

    @cached_property
    def beat(self) -> str:
        """The process that does scheduled work; empty if none runs."""
        return leader(self.session)

    @cached_property
    def drained(self) -> dict[str, Hold]:
        """The workers that an operator drained, whether they answer or not."""
        return holds.drained(self.session)

    @cached_property
    def broker(self) -> Broker | None:
        """None if nothing is known of Redis yet."""
        if self._answers is not None:
            return self._answers.broker
        return ask_broker(self.site)

    @property
    def fault(self) -> Obstacle | None:
        """Why workers get no message from Redis."""
        return self.broker.fault if self.broker else None

    @property
    def queued(self) -> "Queued | None":
        """The messages that wait in Redis; None if they are not known."""
        return self.broker.queued if self.broker else None

    @property
    def tickets(self) -> frozenset[tuple[str, int]] | None:
        """(id, epoch) of the messages that wait in Redis; None if they are not known."""
        return None if self.queued is None else self.queued.tickets

    def messages(self, queues: Iterable[str]) -> dict[str, int]:
        """How many messages wait in each queue; empty if Redis does not answer."""
        from redis import RedisError

        from tasks.broker import waiting_messages

        try:
            return {queue: waiting_messages(self.settings, (queue,)) for queue in queues}
        except RedisError:
            return {}

    @property
    def foreign_messages(self) -> int:
        return 0 if self.queued is None else self.queued.foreign

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        """None that answers, if nothing is known of them, or Redis takes no message to them."""
        if self.fault is not None:
            return ()
        if self._answers is not None:
            return self._answers.workers or ()
        with suppress(ServiceUnreachable):
            return ask_workers(self.settings)
        return ()

    @property
    def knows_workers(self) -> bool:
        """False while Redis or the workers were asked and have not answered."""
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
        """Only what was done proves that a beat and a worker, which both answer, do scheduled work."""
        seconds = sweep_record.last_sweep(self.session)
        if seconds < sweep_record.SWEEP_LIMIT:
            return ()
        return (Obstacle(reason=Reason.SWEEP_LATE, waits_for=self.beat, message=f"{seconds:.0f} s"),)

    def remedies(self, obstacles: Iterable[Obstacle]) -> tuple[Remedy, ...]:
        advice: list[Remedy] = []
        for obstacle in obstacles:
            if obstacle.reason is Reason.BROKER_UNREACHABLE:
                advice.append(Remedy(Action.START_BROKER, obstacle.waits_for))
            elif obstacle.reason is Reason.BROKER_REFUSES:
                advice.append(Remedy(Action.FIX_BROKER, obstacle.waits_for))
            elif obstacle.reason is Reason.BROKER_FOREIGN:
                advice.append(Remedy(Action.CHANGE_PREFIX, obstacle.waits_for))
            elif obstacle.reason is Reason.NO_BEAT:
                advice.append(Remedy(Action.START_BEAT))
            elif obstacle.reason is Reason.SWEEP_LATE:
                advice += [
                    Remedy(Action.START_WORKER, CONTROL),
                    Remedy(Action.RESTART_BEAT, obstacle.waits_for),
                ]
            elif obstacle.reason is Reason.NO_WORKER:
                advice += [Remedy(Action.UNDO_DRAIN, name) for name in self.drained]
                if not any(worker.name in self.drained for worker in self.workers):
                    advice.append(Remedy(Action.START_WORKER, obstacle.waits_for))
        return tuple(dict.fromkeys(advice))
