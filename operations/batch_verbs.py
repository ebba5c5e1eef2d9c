"""What an operator does to a whole batch."""

from collections.abc import Callable
from pathlib import Path

from operations.operator import (
    Operator,
    VerbResult,
    check,
    check_seen,
    follow,
    refuse_while_on_hold,
    remove_folder,
    retry_stale,
)
from operations.reports import compose
from pipeline.records import Batch, Job
from pipeline.remedies import Action, Remedy
from pipeline.states import BATCH, BatchState, Bucket, Event, IllegalTransition
from zkstate import batches, deletion, jobs
from zkstate.batches import BatchMove
from zkstate.errors import Missing
from zkstate.record import Lock


def act_on_batch(operator: Operator, bid: str, event: Event, *, seen: int | None = None) -> VerbResult:
    """Raise `event` on the batch; to delete it again completes a deletion that was interrupted.

    `seen`: the version of the batch's status that the caller decided on; Moved if the batch has another one.
    """
    return retry_stale(bid, lambda: _VERBS[event](operator, _load(operator, bid, event, seen), event))


def possible(operator: Operator, bid: str, event: Event, *, seen: int | None = None) -> VerbResult:
    """What `act_on_batch` would do, without doing it; raises what it would raise."""
    batch = _load(operator, bid, event, seen)
    state = batch.status.status
    target = state if state is BatchState.DELETED else BATCH.next(state, event)
    return VerbResult(id=bid, was=state, now=target, version=batch.version)


def _load(operator: Operator, bid: str, event: Event, seen: int | None) -> Batch:
    """The batch, if this principal may raise the event on it as it is now."""
    batch = batches.load(operator.session, bid)
    operator.require(f"{event} {bid}", batch.submission.profile_name)
    check_seen(batch, seen)
    _check(operator, batch, event)
    return batch


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
            f"{unended:,} {'job' if unended == 1 else 'jobs'} of {batch.bid} "
            f"{'has' if unended == 1 else 'have'} not ended: wait, or stop them"
        ).with_remedies(Remedy(Action.CANCEL, batch.bid))


def _move(operator: Operator, batch: Batch, event: Event) -> VerbResult:
    moved = batches.move(operator.session, batch, _request(operator, event))
    return VerbResult(
        id=batch.bid,
        was=batch.status.status,
        now=moved.status.status,
        version=moved.version,
        sent=follow(operator.session, operator.settings, moved),
    )


def _request(operator: Operator, event: Event) -> BatchMove:
    message = f"{event} by {operator.by}{operator.because}"
    return BatchMove(event, operator.by, message, lock=Lock.FREE, via=operator.principal.interface)


def _delete(operator: Operator, batch: Batch, event: Event) -> VerbResult:
    """Tombstones first, folders last: after a crash a repeated delete or the clean-up does the rest."""
    from pipeline.inventory.archive import tombstone  # loads SQLAlchemy

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
        batch = batches.move(operator.session, batch, _request(operator, event))
    deletion.remove_batch(operator.session, batch)
    left = [remove_folder(operator, Path(job.configuration.working_dir)) for job in members]
    return VerbResult(id=batch.bid, was=was, now=BatchState.DELETED, folder_left=max(left, default=""))


def _members(operator: Operator, bid: str) -> list[Job]:
    members = []
    for jid in batches.all_jobs(operator.session, bid):
        try:
            members.append(jobs.load(operator.session, jid))
        except Missing:  # deleted before, perhaps by an interrupted deletion: its tombstone is written
            continue
    return members


_VERBS: dict[Event, Callable[[Operator, Batch, Event], VerbResult]] = {
    Event.RELEASE: _move,
    Event.UPDATE_REPORT: _move,
    Event.DELETE: _delete,
}

VERBS = frozenset(_VERBS)
