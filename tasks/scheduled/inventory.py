"""Scheduled work that completes the inventory: its index of objects, embargoes that it does not know, and the
numbers of what is stored by collection and day.

Earlier releases entered objects without both, and storage, from which objects are rebuilt, does not know the
depositor. A recording may be interrupted, and storage unable to deliver a file. The inventory marks what is
done: a run continues where the last one ended, whichever process has it.
"""

import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, date, datetime

from pipeline.inventory import archive
from pipeline.inventory.growth import SpaceDay
from pipeline.inventory.search.index import Unindexed
from pipeline.inventory.sql import SqlInventory
from pipeline.outcome import DamagedObject, StepFailed
from pipeline.preservation.embargo import read_embargo
from pipeline.storage.ocfl.storage import OcflStorage
from pipeline.working_storage import capacity, mount
from tasks.logs import log
from tasks.scheduled.fixity import Turn
from tasks.worker_context import WorkerContext
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Missing
from zkstate.record import batches, space

INDEXING, EMBARGOES, GROWTH = "index_objects", "embargoes", "growth"
"""The names of the work, of which one process of the fleet does each at a time."""

PAUSE = 0.2
"""Seconds between two transactions of the indexing, at least: a recording that waits for SQLite's lock asks
for it ten times a second, and would not get it from transactions that follow each other at once."""

EMBARGOES_AT_A_TIME = 500


def index_objects(context: WorkerContext, session: Session, _: ServerClock) -> None:
    turn = Turn(context.settings, AttemptGuard(session, context.stopping))
    inventory = context.clients().inventory
    entered = 0
    try:
        while not turn.over() and (portion := inventory.unindexed_versions()):
            depositors = _depositors(session, inventory, portion)
            began = time.monotonic()
            entered += inventory.index_versions(portion, depositors)
            time.sleep(max(PAUSE, time.monotonic() - began))
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


def read_embargoes(context: WorkerContext, session: Session, _: ServerClock) -> None:
    turn = Turn(context.settings, AttemptGuard(session, context.stopping))
    clients, after = context.clients(), 0
    try:
        while portion := clients.inventory.unread_embargoes(after, EMBARGOES_AT_A_TIME):
            for one in portion:
                if turn.over():
                    return
                try:
                    read_embargo(clients.inventory, clients.storage, one)
                except DamagedObject as damage:
                    log().warning("embargo not read", ark=one.ark, error=damage.message)
            after = portion[-1].object_id
    except StepFailed as failure:  # of storage or the inventory; another run follows in a minute
        log().warning("embargoes wait", error=failure.message)


def count_growth(context: WorkerContext, session: Session, clock: ServerClock) -> None:
    """Count versions that are not counted, and keep the day's figures of working storage."""
    turn = Turn(context.settings, AttemptGuard(session, context.stopping))
    inventory, counted = context.clients().inventory, 0
    try:
        while not turn.over() and (portion := inventory.count_portion()):
            counted += portion
        if counted:
            log().info("versions and runs of checks counted", counted=counted)
        today = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).date()
        if not turn.stopped() and all(last.day < today for last in inventory.space_by_day(1)):
            inventory.enter_space(_space_on(today, context, session))
    except StepFailed as failure:  # of the inventory or of working storage; another run follows in a minute
        log().warning("the numbers of what is stored wait", error=failure.message)


def _space_on(today: date, context: WorkerContext, session: Session) -> SpaceDay:
    settings, storage = context.settings, context.clients().storage
    mount.require(settings, space.WorkingStorage(session))
    working, root_total, root_free = capacity.usage(settings), None, None
    if isinstance(storage, OcflStorage):
        with suppress(OSError):  # not on this host now: the figure is absent
            root = shutil.disk_usage(settings.storage)
            root_total, root_free = root.used + root.free, root.free
    return SpaceDay(today, working.total, working.used, root_total, root_free)
