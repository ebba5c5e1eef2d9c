"""The Celery application: `celery -A tasks.app worker|flower`; beat runs as `python -m tasks.beat_leader`."""

import os
import threading
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import setup_logging, worker_process_shutdown, worker_ready, worker_shutting_down

from pipeline.settings import Settings
from tasks import logs
from tasks.worker_context import PROCESS

app = Celery("arkline", include=["tasks.job", "tasks.batch", "tasks.beat", "tasks.callback"])
app.config_from_object("celeryconfig")


@setup_logging.connect(weak=False)
def _set_up_logging(**_: Any) -> None:
    logs.configure(Settings().log_level)


@worker_process_shutdown.connect(weak=False)
def _close_session(**_: Any) -> None:
    PROCESS.drop_session()


@worker_shutting_down.connect(weak=False)
def _limit_the_wait(how: str = "", **_: Any) -> None:
    """A warm stop lets running steps end, but not for ever: after the grace they hand their jobs back."""
    if how == "Warm":
        grace = threading.Timer(Settings().stop_grace, PROCESS.ask_to_stop)
        grace.daemon = True
        grace.start()


@worker_ready.connect(weak=False)
def _say_ready(**_: Any) -> None:
    """Touch the file that whoever started this worker waits for."""
    if ready := os.environ.get("ARKLINE_READY_FILE"):
        Path(ready).touch()


@worker_ready.connect(weak=False)
def _watch(sender: Any, **_: Any) -> None:
    """See tasks.watchdog; a worker that is stopping takes no messages on purpose."""
    from tasks import watchdog

    settings, concurrency = Settings(), sender.controller.concurrency
    dog = watchdog.Watchdog(
        lambda: watchdog.look(settings, concurrency), watchdog.end, settings.stalled_after
    )
    worker_shutting_down.connect(lambda **_: dog.stop(), weak=False)
    dog.start()
