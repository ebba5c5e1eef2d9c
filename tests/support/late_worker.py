"""A worker that subscribes a second after Celery calls it ready: `-m tests.support.late_worker`."""

import sys
import time
from typing import Any

from celery.signals import celeryd_init, worker_ready

from tasks import worker_program

PAUSE = 1.0
"""Seconds, as on a busy machine."""


@celeryd_init.connect(weak=False)
def _wait_after_others(**_: Any) -> None:
    """Connected last, the pause follows all that the project does when Celery calls the worker ready."""
    worker_ready.connect(lambda **_: time.sleep(PAUSE), weak=False)


if __name__ == "__main__":
    sys.exit(worker_program.main())
