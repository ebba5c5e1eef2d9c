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
from pipeline.errors import Action, Remedy, ServiceUnreachable
from pipeline.records import Record
from pipeline.settings import Settings
from zkstate.leadership import leader
from zkstate.session import Session

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
    """Empty if it was drained."""
    processes: int = 0
    busy: int = 0
    """Processes that work on a task now."""


@dataclass(frozen=True)
class Answers:
    """What Redis and the workers answered, for whoever cannot wait until they answer again."""

    queued: "Queued | None"
    workers: tuple[Worker, ...]
    at: datetime
    """When they were asked."""


def ask_fleet(session: Session, settings: Settings) -> Answers:
    """Asks Redis and the workers; a worker that does not answer is waited for some seconds."""
    at = datetime.now(UTC)
    fleet = Fleet(session, settings)
    return Answers(fleet.queued, fleet.workers, at)


def broker_address(settings: Settings) -> str:
    """Host and port, without the password."""
    parts = urlsplit(settings.broker_url)
    return f"{parts.hostname or '?'}:{parts.port or 6379}"


class Fleet:
    """Facts about the servers and processes that carry jobs onward."""

    def __init__(self, session: Session, settings: Settings, answers: Answers | None = None) -> None:
        """`answers`: of a moment ago; None: Redis and the workers are asked when their answer is needed."""
        self._session = session
        self.settings = settings
        self._answers = answers

    @cached_property
    def beat(self) -> str:
        """The process that does scheduled work; empty if none runs."""
        return leader(self._session)

    @cached_property
    def queued(self) -> "Queued | None":
        """The messages that wait in Redis; None if Redis does not answer."""
        if self._answers is not None:
            return self._answers.queued
        from kombu.exceptions import OperationalError

        from tasks.broker import read_queues

        try:
            return read_queues(self.settings)
        except OperationalError:
            return None

    @property
    def tickets(self) -> frozenset[tuple[str, int]] | None:
        """(id, epoch) of the messages that wait in Redis; None if Redis does not answer."""
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
        """Empty if Redis does not answer."""
        if self._answers is not None:
            return self._answers.workers
        if self.tickets is None:
            return ()
        from operations.workers import workers

        for _ in range(TRIES):
            with suppress(ServiceUnreachable):
                return workers(self.settings)
        return ()

    def consumers(self, queue: str) -> tuple[Worker, ...]:
        return tuple(worker for worker in self.workers if queue in worker.queues)

    def obstacles(self, *queues: str) -> tuple[Obstacle, ...]:
        """What keeps work in these queues, and scheduled work, from being done."""
        if self.tickets is None:
            return (Obstacle(reason=Reason.BROKER_UNREACHABLE, waits_for=broker_address(self.settings)),)
        beat = () if self.beat else (Obstacle(reason=Reason.NO_BEAT),)
        idle = [queue for queue in dict.fromkeys((*queues, CONTROL)) if not self.consumers(queue)]
        return (*beat, *(Obstacle(reason=Reason.NO_WORKER, waits_for=queue) for queue in idle))

    def remedies(self, obstacles: Iterable[Obstacle]) -> tuple[Remedy, ...]:
        advice: list[Remedy] = []
        for obstacle in obstacles:
            if obstacle.reason is Reason.BROKER_UNREACHABLE:
                advice.append(Remedy(Action.START_BROKER, obstacle.waits_for))
            elif obstacle.reason is Reason.NO_BEAT:
                advice.append(Remedy(Action.START_BEAT))
            elif obstacle.reason is Reason.NO_WORKER:
                drained = [worker.name for worker in self.workers if not worker.queues]
                advice += [Remedy(Action.UNDO_DRAIN, name) for name in drained] or [
                    Remedy(Action.START_WORKER, obstacle.waits_for)
                ]
        return tuple(dict.fromkeys(advice))
