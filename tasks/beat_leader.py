"""Beat with a standby: run several, and one elected leader ticks.

The schedule is in memory and consists of intervals only, so no schedule has to be stored. The leader exits
at the first doubt about its session, before another leader can be elected; its supervisor restarts it.
"""

import os
import signal
import sys
from contextlib import nullcontext
from functools import partial
from typing import Any, NoReturn

from celery.beat import Scheduler, Service

from pipeline.errors import ArklineError, ServiceUnreachable
from pipeline.settings import Settings
from tasks import logs
from tasks.broker import configured
from tasks.stores import await_claim, recorded_id, say_ready
from zkstate.connection.session import Session, connect
from zkstate.fleet.scheduled import lead


def _stop(*_: object) -> NoReturn:
    raise SystemExit(0)


class OnceLogged(Scheduler):
    """Logs once why sending fails, and once that it works again: all tasks are due every few seconds."""

    problem = ""

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Replaces Celery's, which logs a stack trace for each try."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except Exception as error:  # noqa: BLE001 - the caller raises the exception
            cause = str(error.__context__ or error).rpartition("caused error: ")[2]
            if cause != self.problem:
                logs.log().error("scheduled work cannot be sent", task=entry.task, error=cause)
            self.problem = cause
        else:
            if self.problem:
                logs.log().info("scheduled work is sent again")
            self.problem = ""


def _tick(settings: Settings, session: Session) -> None:
    """Tick once a worker has confirmed the stores and this deployment owns the prefix in Redis."""
    await_claim(settings, lambda: nullcontext(session), recorded_id)
    app = configured(settings)
    Service(app, max_interval=app.conf.beat_max_loop_interval, scheduler_cls=OnceLogged).start()


def main() -> int:
    settings = Settings()
    logs.configure(settings.log_level)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        with connect(settings) as session:
            say_ready()
            lead(session, f"beat {os.uname().nodename}:{os.getpid()}", partial(_tick, settings, session))
    except ArklineError as error:
        logs.log().error("beat stopped", error=str(error))
        # as at a lost session: which of the two ends it depends on how the service went away
        return os.EX_TEMPFAIL if isinstance(error, ServiceUnreachable) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
