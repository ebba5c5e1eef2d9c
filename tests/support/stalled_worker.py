"""A worker that stops consuming messages once it is ready: `-m tests.support.stalled_worker`.

The worker is alive, connected and answers pings, as after the faults that tasks.worker describes.
"""

import sys
from typing import Any

from celery.signals import worker_ready
from kombu.transport.redis import Channel

from tasks import worker_program


@worker_ready.connect(weak=False)
def _stop_consuming(**_: Any) -> None:
    setattr(Channel, "_brpop_start", lambda self, timeout=None: None)  # noqa: B010 - not in its stubs


if __name__ == "__main__":
    sys.exit(worker_program.main())
