"""Reads the embargoes that the inventory does not know: of objects that an earlier release recorded, of those
whose recording was interrupted, and of those whose file storage could not deliver.

Work that was interrupted continues with what is still unread.
"""

import time

from pipeline.outcome import DamagedObject, StepFailed
from pipeline.preservation.embargo import read_embargo
from tasks.logs import log
from tasks.worker_context import WorkerContext
from zkstate.connection.clock import ServerClock
from zkstate.connection.session import Session

WORK = "embargoes"

PORTION = 500
RUN_SECONDS = 20.0
"""Seconds after which a run reads no further embargo, so that it keeps its process from few jobs."""


def run(context: WorkerContext, _session: Session, _clock: ServerClock) -> None:
    clients, began, after = context.clients(), time.monotonic(), 0
    try:
        while portion := clients.inventory.unread_embargoes(after, PORTION):
            for one in portion:
                if context.stopping() or time.monotonic() - began > RUN_SECONDS:
                    return
                try:
                    read_embargo(clients.inventory, clients.storage, one)
                except DamagedObject as damage:
                    log().warning("embargo not read", ark=one.ark, error=damage.message)
            after = portion[-1].object_id
    except StepFailed as failure:  # of storage or the inventory; another run follows in a minute
        log().warning("embargoes wait", error=failure.message)
