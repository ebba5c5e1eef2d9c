"""What an operator does to a whole batch."""

from collections.abc import Callable
from pathlib import Path

from operations.operator import (
    TRIES,
    Operator,
    VerbResult,
    check,
    follow,
    refuse_while_on_hold,
    remove_folder,
)
from operations.reports import compose
from operations.wording import counted
from pipeline.inventory.archive import tombstone
from pipeline.records import Batch, Job
from pipeline.states import BATCH, BatchState, Bucket, Event, IllegalTransition
from zkstate import batches, deletion, jobs
from zkstate.errors import Busy, Missing, Stale
from zkstate.jobs import Lock


def act_on_batch(operator: Operator, bid: str, event: Event) -> VerbResult:
    """Raise `event` on the batch. A deletion that was interrupted is gone on with."""
    for _ in range(TRIES):
        batch = batches.load(operator.session, bid)
        _check(operator, batch, event)
        try:
            return _VERBS[event](operator, batch)
        except Stale:
            continue
    raise Busy(f"{bid} moves faster than it can be changed: try again")


def possible(operator: Operator, bid: str, event: Event) -> VerbResult:
    """What `act_on_batch` would do, without doing it; raises what it would raise."""
    batch = batches.load(operator.session, bid)
    _check(operator, batch, event)
    state = batch.status.status
    return VerbResult(
        id=bid, was=state, now=state if state is BatchState.DELETED else BATCH.next(state, event)
    )


def _check(operator: Operator, batch: Batch, event: Event) -> None:
    if event is Event.DELETE and batch.status.status is BatchState.DELETED:
        return
    check(batch, event)
    if event is Event.RELEASE:
        refuse_while_on_hold(operator.session, batch.submission.profile_name, batch.bid)
        return
    unended = batches.counts(operator.session, batch.bid)[Bucket.PROCESSING]
    if unended:
        raise IllegalTransition(
            f"{counted(unended, 'job')} of {batch.bid} {'has' if unended == 1 else 'have'} not ended: "
            f"wait, or stop them by `arkline cancel {batch.bid}`"
        )


def _move(operator: Operator, batch: Batch, event: Event) -> VerbResult:
    moved = batches.move(operator.session, batch, event, lock=Lock.FREE)
    return VerbResult(
        id=batch.bid,
        was=batch.status.status,
        now=moved.status.status,
        note=follow(operator.session, operator.settings, moved),
    )


def _release(operator: Operator, batch: Batch) -> VerbResult:
    return _move(operator, batch, Event.RELEASE)


def _update_report(operator: Operator, batch: Batch) -> VerbResult:
    return _move(operator, batch, Event.UPDATE_REPORT)


def _delete(operator: Operator, batch: Batch) -> VerbResult:
    """Tombstones first, folders last: after a crash, deleting again or `cleanup` goes on."""
    was = batch.status.status
    members = _members(operator, batch.bid)
    if was is not BatchState.DELETED:
        tombstone(
            operator.inventory(),
            batch,
            by=operator.by,
            reason=operator.reason,
            jobs=members,
            report=compose(operator.session, batch, operator.inventory).model_dump(mode="json"),
        )
        batch = batches.move(operator.session, batch, Event.DELETE, lock=Lock.FREE)
    deletion.remove_batch(operator.session, batch)
    notes = {remove_folder(operator, Path(job.configuration.working_dir)) for job in members}
    return VerbResult(id=batch.bid, was=was, now=BatchState.DELETED, note=min(notes, default=""))


def _members(operator: Operator, bid: str) -> list[Job]:
    members = []
    for jid in batches.all_jobs(operator.session, bid):
        try:
            members.append(jobs.load(operator.session, jid))
        except Missing:  # deleted before, or by a deletion that was interrupted: its tombstone is written
            continue
    return members


_VERBS: dict[Event, Callable[[Operator, Batch], VerbResult]] = {
    Event.RELEASE: _release,
    Event.UPDATE_REPORT: _update_report,
    Event.DELETE: _delete,
}

VERBS = frozenset(_VERBS)
