"""Versions that the inventory's index does not have as yet: entered by scheduled work, portion by portion.

Releases without an index entered them, or they were rebuilt from storage, which does not know the depositor.
The inventory marks what is done: a run continues where the last one ended, whichever process has it.
"""

from collections.abc import Iterable

from pipeline.inventory import archive
from pipeline.inventory.search_index import Unindexed
from pipeline.inventory.sql import SqlInventory
from pipeline.outcome import StepFailed
from tasks.fixity import Turn
from tasks.logs import log
from tasks.worker_context import WorkerContext
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Missing
from zkstate.record import batches

WORK = "index_objects"
"""The name of the work, which one process of the fleet does at a time."""


def run(context: WorkerContext, session: Session, _: ServerClock) -> None:
    turn = Turn(context.settings, AttemptGuard(session, context.stopping))
    inventory = context.clients().inventory
    entered = 0
    try:
        while not turn.over() and (portion := inventory.unindexed_versions()):
            depositors = _depositors(session, inventory, portion)
            entered += inventory.index_versions(portion, depositors)
        left = inventory.indexing() if entered else None
    except StepFailed as failure:  # of the inventory; another run follows in a minute
        log().warning("the index of objects waits", error=failure.message)
        return
    if entered:
        facts = {"indexed": left.indexed, "objects": left.objects} if left else {}
        log().info(
            "versions entered in the index of objects", versions=entered, complete=left is None, **facts
        )


def _depositors(session: Session, inventory: SqlInventory, portion: Iterable[Unindexed]) -> dict[str, str]:
    """Batch -> identity of who submitted it, from the record or the archive; '' if neither knows it."""
    bids = dict.fromkeys(version.bid for version in portion if version.depositor is None)
    return {bid: _depositor(session, inventory, bid) for bid in bids}


def _depositor(session: Session, inventory: SqlInventory, bid: str) -> str:
    try:
        return batches.load(session, bid).submission.owner
    except (Missing, Corrupt):
        archived = archive.find_batch(inventory, bid)
        return archived.submission.owner if archived else ""
