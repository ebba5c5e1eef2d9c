"""A worker process besides its tasks: logs, readiness, watchdog, and the end of its session."""

import os
import threading
from pathlib import Path
from typing import Any

from celery.signals import setup_logging, worker_process_shutdown, worker_ready, worker_shutting_down

from tasks import logs, watchdog
from tasks.worker_context import WorkerContext


def connect_signals(context: WorkerContext) -> None:
    """Connect to Celery's signals, which are global to the process: call this once."""
    settings = context.settings

    def set_up_logging(**_: Any) -> None:
        logs.configure(settings.log_level)

    def close_session(**_: Any) -> None:
        context.drop_session()

    def limit_warm_stop(how: str = "", **_: Any) -> None:
        """A warm stop lets running steps finish until the grace period ends; then they hand back."""
        if how == "Warm":
            grace = threading.Timer(settings.stop_grace, context.ask_to_stop)
            grace.daemon = True
            grace.start()

    def touch_ready_file(**_: Any) -> None:
        """The process that started this worker waits for this file."""
        if ready := os.environ.get("ARKLINE_READY_FILE"):
            Path(ready).touch()

    def start_watchdog(sender: Any, **_: Any) -> None:
        """See tasks.watchdog; a worker that is stopping consumes no messages on purpose."""
        queues, concurrency = sender.app.amqp.queues, sender.controller.concurrency
        dog = watchdog.Watchdog(
            lambda: watchdog.take_sample(settings, queues.consume_from, concurrency),
            watchdog.end,
            settings.stalled_after,
        )
        worker_shutting_down.connect(lambda **_: dog.stop(), weak=False)
        dog.start()

    setup_logging.connect(set_up_logging, weak=False)
    worker_process_shutdown.connect(close_session, weak=False)
    worker_shutting_down.connect(limit_warm_stop, weak=False)
    worker_ready.connect(touch_ready_file, weak=False)
    worker_ready.connect(start_watchdog, weak=False)
