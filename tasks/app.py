"""The Celery application with all tasks: `app` for workers and Flower, `make_context` for given settings."""

from functools import cache

from celery import Celery

from pipeline.settings import Settings
from pipeline.states import BATCH, JOB
from pipeline.umask import keep_private
from tasks import callback, run, worker
from tasks.batch import BATCHES
from tasks.broker import configured
from tasks.run import JOBS
from tasks.scheduled import beat
from tasks.worker_context import WorkerContext


def make_context(settings: Settings) -> WorkerContext:
    """A separate application with every task registered, and the context of its tasks."""
    context = WorkerContext(settings, configured(settings))
    run.register(context, JOB.tasks(), JOBS)
    run.register(context, BATCH.tasks(), BATCHES)
    callback.register(context)
    beat.register(context)
    return context


@cache
def _from_environment() -> Celery:
    keep_private()
    context = make_context(Settings())
    worker.connect_signals(context)
    return context.app


def __getattr__(name: str) -> Celery:
    """`app`, made from the environment when a worker or Celery's command line asks for it."""
    if name == "app":
        return _from_environment()
    raise AttributeError(name)
