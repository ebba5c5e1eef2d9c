"""The fleet as one answer sees it: Redis, the workers, the beat; asked once, and only if needed.

Celery takes a quarter of a second to load: it is imported where the fleet is asked.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property

from operations.broker import Worker, broker_address
from operations.facts import Obstacle, Reason
from pipeline.errors import ServiceUnreachable
from pipeline.remedies import Action, Remedy
from pipeline.settings import Settings
from zkstate import views
from zkstate.session import Session

CONTROL = "control"
"""The queue of scheduled work."""


TIMES_ASKED = 2
"""Before no worker is believed to run: a busy machine answers late."""


class Fleet:
    """Facts about the servers and processes that carry jobs onward."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self.settings = settings

    @cached_property
    def beat_runs(self) -> bool:
        return views.beat_runs(self._session)

    @cached_property
    def tickets(self) -> frozenset[tuple[str, int]] | None:
        """(id, epoch) of the messages that wait in Redis; None if Redis does not answer."""
        from kombu.exceptions import OperationalError

        from tasks.broker import live_tickets

        try:
            return live_tickets(self.settings)
        except OperationalError:
            return None

    @cached_property
    def workers(self) -> tuple[Worker, ...]:
        """Empty if Redis does not answer."""
        if self.tickets is None:
            return ()
        from operations.workers import workers

        for _ in range(TIMES_ASKED):
            with suppress(ServiceUnreachable):  # the pool may hold connections from before a restart
                if found := workers(self.settings):
                    return found
        return ()

    def consumers(self, queue: str) -> tuple[Worker, ...]:
        return tuple(worker for worker in self.workers if queue in worker.queues)

    def obstacles(self, *queues: str) -> tuple[Obstacle, ...]:
        """What keeps work in these queues, and scheduled work, from being done."""
        if self.tickets is None:
            return (Obstacle(reason=Reason.BROKER_UNREACHABLE, waits_for=broker_address(self.settings)),)
        beat = () if self.beat_runs else (Obstacle(reason=Reason.NO_BEAT),)
        idle = [queue for queue in dict.fromkeys((*queues, CONTROL)) if not self.consumers(queue)]
        return (*beat, *(Obstacle(reason=Reason.NO_WORKER, waits_for=queue) for queue in idle))

    def remedies(self, obstacles: Iterable[Obstacle]) -> tuple[Remedy, ...]:
        found: list[Remedy] = []
        for obstacle in obstacles:
            if obstacle.reason is Reason.BROKER_UNREACHABLE:
                found.append(Remedy(Action.START_BROKER, obstacle.waits_for))
            elif obstacle.reason is Reason.NO_BEAT:
                found.append(Remedy(Action.START_BEAT))
            elif obstacle.reason is Reason.NO_WORKER:
                drained = [worker.name for worker in self.workers if not worker.queues]
                found += [Remedy(Action.UNDO_DRAIN, name) for name in drained] or [
                    Remedy(Action.START_WORKER, obstacle.waits_for)
                ]
        return tuple(dict.fromkeys(found))
