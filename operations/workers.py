"""The Celery workers of the fleet: who takes from which queue, and draining one of them."""

from urllib.parse import urlsplit

from kombu.exceptions import OperationalError

from celeryconfig import QUEUES
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.records import Record
from pipeline.settings import Settings
from tasks.publisher import publisher

PATIENCE = 1.0
"""Seconds to wait for workers' answers; a worker whose every process is busy answers all the same."""


class Drained(Record):
    """A worker and the queues that it takes from now."""

    worker: str
    queues: tuple[str, ...]


def shown_broker(settings: Settings) -> str:
    """The broker's address without its password."""
    parts = urlsplit(settings.broker_url)
    return f"{parts.hostname or '?'}:{parts.port or 6379}"


def taking(settings: Settings, worker: str | None = None) -> dict[str, tuple[str, ...]]:
    """Worker -> the queues that it takes from; only the workers that answer in time, or that one."""
    asked = None if worker is None else [worker]
    try:
        answers = publisher(settings).control.inspect(asked, timeout=PATIENCE).active_queues() or {}
    except OperationalError as error:
        raise ServiceUnreachable(
            f"Redis at {shown_broker(settings)} does not answer: is it running? (ARKLINE_BROKER_URL)"
        ) from error
    return {worker: tuple(sorted(queue["name"] for queue in queues)) for worker, queues in answers.items()}


def consumers_of(settings: Settings, task: str) -> tuple[str, tuple[str, ...]]:
    """The queue that the task goes to, and the workers that take from it."""

    queue = str(publisher(settings).amqp.router.route({}, task)["queue"].name)
    workers = (worker for worker, queues in taking(settings).items() if queue in queues)
    return queue, tuple(sorted(workers))


def drain(settings: Settings, worker: str, *, undo: bool = False) -> Drained:
    """Let a worker take nothing new, so that it may be stopped once it is idle; its restart undoes it."""

    known = taking(settings)
    if worker not in known:
        names = ", ".join(sorted(known)) or "none answers"
        raise UsageRefused(f"no worker called '{worker}' answers; running: {names}")
    control = publisher(settings).control
    for queue in QUEUES:
        order = control.add_consumer if undo else control.cancel_consumer
        order(queue, destination=[worker], reply=True, timeout=PATIENCE)
    return Drained(worker=worker, queues=taking(settings, worker).get(worker, ()))
