"""Makes room in working storage: failed jobs give up what a waiting job needs."""

import shutil
from collections.abc import Iterator, Mapping

from pipeline.outcome import AttemptOver
from pipeline.states import Room
from pipeline.working_storage import capacity
from pipeline.working_storage.workspace import Holder, Workspace, plan
from tasks.logs import log
from tasks.worker_context import WorkerContext
from zkstate import room
from zkstate.errors import Busy, Corrupt, Missing, Stale
from zkstate.locks import AttemptGuard
from zkstate.record import lock_path
from zkstate.session import Session

BY = "provisioning"
"""The name under which failed jobs lose their reservations and their content."""


def make_room(
    context: WorkerContext, session: Session, reservations: Mapping[str, int], jid: str, needed: int
) -> bool:
    """Have failed jobs give up as much as job `jid` lacks; False if they do not hold as much."""
    occupied = capacity.occupancy(context.settings)
    outstanding = occupied.outstanding(reservations, except_for=jid)
    lacking = max(0, needed - occupied.on_disk.get(jid, 0))
    limit = occupied.limit(context.settings.working_threshold)
    holders = _holders(session, outstanding, dict(occupied.on_disk))
    planned = plan(occupied.used + sum(outstanding.values()) + lacking - limit, list(holders))
    if planned is None:
        return False
    for holder in planned.reservations:
        _yield(session, holder)
    for holder in planned.contents:
        _empty(context, session, holder)
    if planned.contents:
        capacity.measure_again()
    return True


def _holders(session: Session, outstanding: dict[str, int], on_disk: dict[str, int]) -> Iterator[Holder]:
    """The failed jobs that have something, the oldest failure first."""
    names = sorted({*outstanding, *on_disk} - {capacity.OUTSIDE_OF_JOBS})
    for jid, status in room.failed_jobs(session, names).items():
        content = 0 if status.room is Room.EMPTY else on_disk.get(jid, 0)
        yield Holder(jid, outstanding.get(jid, 0), content)


def _yield(session: Session, jid: str) -> None:
    try:
        room.yield_reservation(session, jid, BY)
    except (Stale, Busy, Missing, Corrupt):
        return  # it was resumed or deleted meanwhile
    log().warning("a failed job gave up its reservation", jid=jid)


def _empty(context: WorkerContext, session: Session, jid: str) -> None:
    guard = AttemptGuard(session, context.stopping)
    try:
        with room.emptying(session, jid, BY) as job:
            guard.watch_lock(lock_path(job))
            for folder in Workspace.of(job, context.settings.working).content:
                guard.check()
                shutil.rmtree(folder, ignore_errors=True)
    except (Stale, Busy, Missing, Corrupt):
        return  # it was resumed or deleted meanwhile
    except AttemptOver:
        context.drop_session()  # a lock must not outlive the work that it protects
        raise
    log().warning("removed the content of a failed job", jid=jid)
