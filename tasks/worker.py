"""A worker process besides its tasks: logs, readiness, watchdog, and the end of its session."""

import gc
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

from celery.signals import (
    celeryd_init,
    setup_logging,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutting_down,
)

from pipeline.errors import UsageRefused
from tasks import draining, interruption, logs, remote_control, watchdog
from tasks.start_gate import await_claim, confirmed_id, keep_claim
from tasks.worker_context import Stop, WorkerContext
from zkstate.session import connect

FETCH_GRACE = 3.0
"""Seconds that a stopping worker waits for a download, which the next attempt continues where it stopped."""

OBJECTS_BEFORE_COLLECTION = 10_000
"""New objects that Python's collector of cycles waits for; its own default is 700."""


def connect_signals(context: WorkerContext) -> None:
    """Connect to Celery's signals, which are global to the process: call this once."""
    settings = context.settings

    def set_up_logging(**_: Any) -> None:
        logs.configure(settings.log_level)

    def close_session(**_: Any) -> None:
        context.drop_session()

    def touch_ready_file(**_: Any) -> None:
        """The process that started this worker waits for this file."""
        if ready := os.environ.get("ARKLINE_READY_FILE"):
            Path(ready).touch()

    def start_watchdog(sender: Any, **_: Any) -> None:
        """See tasks.watchdog; a worker that is stopping consumes no messages on purpose."""
        queues, concurrency = sender.app.amqp.queues, sender.controller.concurrency
        stopped = threading.Event()
        worker_shutting_down.connect(lambda **_: stopped.set(), weak=False)

        def sample() -> watchdog.Sample:
            return watchdog.take_sample(settings, tuple(queues.consume_from), concurrency)

        watch = partial(watchdog.watch, sample, watchdog.end, settings.stalled_after, stopped)
        threading.Thread(target=watch, name="watchdog", daemon=True).start()

    def await_record(sender: str, **_: Any) -> None:
        """Before Celery connects and forks: nothing is consumed until the stores are confirmed.

        `sender` is the worker's name.
        """
        logs.configure(settings.log_level)
        try:
            own = await_claim(settings, partial(connect, settings), partial(confirmed_id, settings))
        except UsageRefused as error:  # Celery would log the error and start
            raise SystemExit(str(error)) from error
        stopped = threading.Event()
        worker_ready.connect(lambda **_: keep_claim(settings, own, stopped), weak=False)
        worker_shutting_down.connect(lambda **_: stopped.set(), weak=False)
        draining.follow(settings, sender, own_drain, stopped)
        own_drain.known.wait()

    own_drain = draining.OwnDrain(context.serve)
    context.app.steps["consumer"].add(draining.step(own_drain))
    celeryd_init.connect(lambda **_: remote_control.restrict(), weak=False)
    celeryd_init.connect(await_record, weak=False)
    setup_logging.connect(set_up_logging, weak=False)
    # after that time the process has lost its session, and its attempt is over
    end_if_hung = partial(interruption.start_hang_guard, settings.zk_session_timeout)
    worker_process_init.connect(lambda **_: end_if_hung(), weak=False)
    worker_process_init.connect(_collect_less_garbage, weak=False)
    worker_process_shutdown.connect(close_session, weak=False)
    worker_shutting_down.connect(partial(_limit_warm_stop, context), weak=False)
    worker_ready.connect(touch_ready_file, weak=False)
    worker_ready.connect(start_watchdog, weak=False)


def _collect_less_garbage(**_: Any) -> None:
    """What the libraries made while they were loaded stays, and need not be looked at again and again.

    That took 4 percent of a small job's CPU in Python.
    """
    gc.freeze()
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION, 20, 20)


def _limit_warm_stop(context: WorkerContext, how: str = "", **_: Any) -> None:
    """A warm stop lets running steps finish until the grace period ends; then they hand back."""
    if how != "Warm":
        return
    context.ask_to_stop(Stop.ONWARD)
    for seconds, stop in ((FETCH_GRACE, Stop.FETCHES), (context.settings.stop_grace, Stop.ALL)):
        grace = threading.Timer(seconds, context.ask_to_stop, (stop,))
        grace.daemon = True
        grace.start()
