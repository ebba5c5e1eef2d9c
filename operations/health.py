"""How healthy the fleet is: what jobs need and miss, what waits and why, what is tried next."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from operations.broker import broker_address
from operations.facts import Reason
from operations.fleet import CONTROL, Fleet
from pipeline.machine import Queue
from pipeline.records import Record
from pipeline.remedies import Action, Remedy
from pipeline.states import Documented, JobState
from zkstate import activity
from zkstate.activity import Active
from zkstate.holds import Hold
from zkstate.session import Session

FAULTS = 5
"""Different faults that are named; `waiting` counts all jobs that wait for a retry."""

_SERVICES = (
    ("EZID", "ezid"),
    ("storage service", "storage-service"),
    ("S3", "s3"),
    ("s3://", "s3"),
    ("SMTP", "smtp"),
    ("mail", "smtp"),
    ("inventory", "inventory"),
    ("callback", "callback"),
    ("working storage", "working-storage"),
)
"""Words in the message of a transient fault, and the shared service that it is about."""


class Health(Documented):
    OK = "ok", "Everything that jobs need is there."
    DEGRADED = "degraded", "Some jobs cannot move."
    STOPPED = "stopped", "No job can move."


class Problem(Record):
    reason: Reason
    waits_for: str = ""
    """The queue, server or service."""
    stops_all: bool = False


class QueueHealth(Record):
    queue: str
    workers: int
    processes: int
    busy: int
    """Processes that work on a task of this or of another queue."""


class Fault(Record):
    """A transient fault that active jobs and batches met at their last try."""

    service: str
    """`source` if it is none of the shared services."""
    message: str
    jobs: int
    next_try: datetime


class FleetHealth(Record):
    status: Health
    problems: tuple[Problem, ...]
    remedies: tuple[Remedy, ...]
    queues: tuple[QueueHealth, ...]
    drained: tuple[str, ...]
    """Workers that answer and consume no queue."""
    redis: str
    redis_answers: bool
    zookeeper: str
    """It answers, or there would be no report."""
    beat: str
    """The process that does scheduled work; empty if none runs."""
    waiting: dict[Reason, int]
    """Jobs and batches that have not ended, by what they wait for."""
    faults: tuple[Fault, ...]
    next_try: datetime | None = None


def fleet_health(
    session: Session, fleet: Fleet, counts: dict[JobState, int], pause: Hold | None
) -> FleetHealth:
    """Reads a bounded number of jobs; waits a second for the answers of the workers."""
    active = (*activity.active_jobs(session, counts), *activity.active_batches(session))
    waiting = _waiting(active, counts, pause)
    faults = _faults(active)
    problems = (
        *_of_fleet(fleet, waiting),
        *((Problem(reason=Reason.QUEUE_PAUSED),) if pause else ()),
        *(Problem(reason=Reason.BETWEEN_TRIES, waits_for=fault.service) for fault in faults),
    )
    retries = [job.retry_at for job in active if job.retry_at]
    return FleetHealth(
        status=_verdict(problems),
        problems=problems,
        remedies=(
            *fleet.remedies(fleet.obstacles(*Queue)),
            *((Remedy(Action.UNPAUSE),) if pause else ()),
        ),
        queues=tuple(_queue(fleet, name) for name in Queue),
        drained=tuple(worker.name for worker in fleet.workers if not worker.queues),
        redis=broker_address(fleet.settings),
        redis_answers=fleet.tickets is not None,
        zookeeper=fleet.settings.zk_hosts,
        beat=activity.beat_leader(session),
        waiting=waiting,
        faults=faults,
        next_try=min(retries, default=None),
    )


def _verdict(problems: Sequence[Problem]) -> Health:
    if any(problem.stops_all for problem in problems):
        return Health.STOPPED
    return Health.DEGRADED if problems else Health.OK


def _of_fleet(fleet: Fleet, waiting: dict[Reason, int]) -> Iterable[Problem]:
    """Servers and processes that are missing.

    Without a beat, jobs still move while others end; so it stops all only if no worker has a job.
    """
    no_consumer = [queue for queue in Queue if queue != CONTROL and not fleet.consumers(queue)]
    idle = bool(waiting) and not waiting.get(Reason.BEING_WORKED_ON)
    for obstacle in fleet.obstacles(*Queue):
        stops_all = {
            Reason.BROKER_UNREACHABLE: True,
            Reason.NO_WORKER: len(no_consumer) == len(Queue) - 1,
            Reason.NO_BEAT: idle,
        }[obstacle.reason]
        yield Problem(reason=obstacle.reason, waits_for=obstacle.waits_for, stops_all=stops_all)


def _queue(fleet: Fleet, name: str) -> QueueHealth:
    consumers = fleet.consumers(name)
    return QueueHealth(
        queue=name,
        workers=len(consumers),
        processes=sum(worker.processes for worker in consumers),
        busy=sum(worker.busy for worker in consumers),
    )


def _waiting(active: Sequence[Active], counts: dict[JobState, int], pause: Hold | None) -> dict[Reason, int]:
    found = Counter(_reason(job) for job in active)
    dispatched = sum(1 for job in active if job.state == JobState.PENDING and job.id.startswith("jid"))
    line = Reason.QUEUE_PAUSED if pause else Reason.WAITING_FOR_TURN
    found[line] += counts[JobState.PENDING] - dispatched
    found[Reason.WAITING_FOR_SPACE] += counts[JobState.PROVISIONING]
    found[Reason.COLLECTION_ON_HOLD] += counts[JobState.HELD]
    return {reason: found[reason] for reason in Reason if found[reason] > 0}


def _reason(job: Active) -> Reason:
    if job.locked:
        return Reason.BEING_WORKED_ON
    if job.retry_at is None:
        return Reason.BEING_DISPATCHED
    return Reason.BETWEEN_TRIES if job.tries else Reason.WAITING_FOR_HOST


def _faults(active: Iterable[Active]) -> tuple[Fault, ...]:
    """The most frequent faults first."""
    by_message: dict[str, list[datetime]] = {}
    for job in active:
        if job.retry_at is not None and job.tries:
            by_message.setdefault(job.message, []).append(job.retry_at)
    faults = [
        Fault(service=_service(message), message=message, jobs=len(moments), next_try=min(moments))
        for message, moments in by_message.items()
    ]
    return tuple(sorted(faults, key=lambda fault: -fault.jobs)[:FAULTS])


def _service(message: str) -> str:
    return next((service for word, service in _SERVICES if word in message), "source")
