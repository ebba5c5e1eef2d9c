"""Tickets to the broker of the given settings; one that cannot be sent is left to the sweep."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery
from celery.app.control import Control
from kombu import Connection

from pipeline.records import Batch, Job, Ticket
from pipeline.settings import Settings
from zkstate import batches, jobs

NOT_SENT = (
    "Redis does not answer, so that no worker has been told; nothing is lost: "
    "ZooKeeper has it, and it goes on by itself once Redis is back"
)


@contextmanager
def broker(settings: Settings) -> Iterator[Connection]:
    """A connection to Redis that gives up soon, since there is the sweep."""
    with Connection(settings.broker_url, transport_options=_options(settings)) as connection:
        yield connection


@contextmanager
def remote_control(settings: Settings) -> Iterator[Control]:
    """Orders to running workers. Celery sends them by an application's own pool, so this has one."""
    with Celery("arkline-control", broker=settings.broker_url, set_as_current=False) as app:
        app.conf.broker_transport_options = _options(settings)
        yield app.control


def _options(settings: Settings) -> dict[str, Any]:
    from tasks.app import app

    return {
        **app.conf.broker_transport_options,
        "global_keyprefix": settings.broker_prefix,
        "max_retries": 2,
        "interval_start": 0.1,
    }


def send_batch(settings: Settings, batch: Batch) -> str:
    """What to tell if the broker is away; nothing if it took the ticket."""
    from tasks.dispatch import BATCH_TASKS, dispatch_batch

    if batch.status.status not in BATCH_TASKS:
        return ""
    with broker(settings) as connection:
        return "" if dispatch_batch(batches.ticket(batch), connection) else NOT_SENT


def send_job(settings: Settings, job: Job) -> str:
    """What to tell if the broker is away; nothing if it took the ticket."""
    from tasks.dispatch import dispatch_job

    with broker(settings) as connection:
        sent = dispatch_job(jobs.ticket(job), job.status.priority, connection)
    return "" if sent else NOT_SENT


def send_failed(settings: Settings, job: Job) -> None:
    """Have the depositor's system told that the job failed; if the broker is away, the sweep sees to it."""
    from tasks.dispatch import dispatch_failed

    with broker(settings) as connection:
        dispatch_failed(job.jid, job.status.epoch, connection)


def send_fed(settings: Settings, tickets: Iterable[Ticket]) -> None:
    """The tickets of pending jobs that were fed; the rest waits for the sweep once one is not sent."""
    from tasks.dispatch import dispatch_job

    with broker(settings) as connection:
        for ticket in tickets:
            if not dispatch_job(ticket, 0, connection):
                return
