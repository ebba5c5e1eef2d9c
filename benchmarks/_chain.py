"""The baseline: a chain of no-op Celery tasks, one per state of a job.

`python -m benchmarks._chain plain worker ...` is a worker with Celery's own settings, `as_shipped` one with
those of celeryconfig.py. The last task of a chain leaves a mark in Redis. Nothing else is written anywhere.
"""

import os
import sys
from enum import StrEnum
from functools import cache
from pathlib import Path

import redis
from celery import Celery, chain, signature
from celery.signals import worker_ready
from kombu import Queue

import celeryconfig
from entrypoints.stack.child import Process
from pipeline.settings import Settings
from pipeline.states import JOB
from tests.support.fleet import Fleet

TASKS = len(JOB.working())
_ENDED = "chain-ended"
_WAIT = 120
"""Maximum seconds to wait for the next chain to end: all begin before the first one ends."""


class Configuration(StrEnum):
    PLAIN = "plain"
    """Celery's defaults, without results, gossip and mingle."""
    AS_SHIPPED = "as_shipped"
    """The settings of arkline's workers."""


def application(url: str, configuration: Configuration) -> Celery:
    app = Celery("chain", broker=url, set_as_current=False)
    if configuration is Configuration.AS_SHIPPED:
        app.config_from_object(celeryconfig)
        app.conf.update(broker_url=url, task_routes=None, beat_schedule={})
    app.conf.update(
        task_ignore_result=True,
        broker_connection_retry_on_startup=True,
        task_queues=[Queue(f"chain-{configuration}")],
        task_default_queue=f"chain-{configuration}",
    )

    def step(job: int) -> int:
        return job

    def last(job: int) -> None:
        _client(url).rpush(_ENDED, job)

    app.task(name="chain.step", shared=False)(step)
    app.task(name="chain.last", shared=False)(last)
    return app


@cache
def _client(url: str) -> "redis.Redis":
    return redis.Redis.from_url(url, socket_timeout=_WAIT + 10)  # the library's default timeout is shorter


def worker(fleet: Fleet, configuration: Configuration, processes: int) -> Process:
    """Start a worker; it may not be ready yet."""
    name = f"chain-{configuration}"
    arguments = ("worker", "-c", str(processes), "-n", f"{name}@%h", "--without-mingle", "--without-gossip")
    return fleet.start(name, "-m", "benchmarks._chain", configuration, *arguments, wait=False)


def run(app: Celery, jobs: int) -> None:
    """Send the chains of `jobs` jobs, and wait until the last has ended."""
    client = _client(app.conf.broker_url)
    client.delete(_ENDED)
    for job in range(jobs):
        steps = [signature("chain.step", args=(job,), app=app)]
        steps += [signature("chain.step", app=app) for _ in range(TASKS - 2)]
        chain(*steps, signature("chain.last", app=app), app=app).apply_async()
    for job in range(jobs):
        assert client.blpop([_ENDED], timeout=_WAIT), f"chain {job} of {jobs} did not end in {_WAIT} s"


def _touch_ready_file(**_: object) -> None:
    Path(os.environ["ARKLINE_READY_FILE"]).touch()


if __name__ == "__main__":
    worker_ready.connect(_touch_ready_file, weak=False)
    application(Settings().broker_url, Configuration(sys.argv[1])).worker_main(sys.argv[2:])
