"""The Celery application with all tasks: `app` for workers and Flower, `make_context` for given settings."""

from functools import cache

from celery import Celery

from pipeline.files import keep_private
from pipeline.settings import Settings
from tasks import batch, beat, callback, job, worker
from tasks.publisher import configured
from tasks.worker_context import WorkerContext


def make_context(settings: Settings) -> WorkerContext:
    """A separate application with every task registered, and the context of its tasks."""
    context = WorkerContext(settings, configured(settings))
    for tasks in (job, batch, callback, beat):
        tasks.register(context)
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
