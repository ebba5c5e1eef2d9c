"""The verbs that an operator may use on a job or a batch now: what its table allows and nothing refuses."""

from pipeline import codes
from pipeline.errors import Action, ArklineError, Remedy
from pipeline.records import Batch, Job
from pipeline.states import (
    BATCH,
    JOB,
    BatchState,
    Bucket,
    Event,
    IllegalTransition,
    JobState,
    Raiser,
    Room,
)
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.queue.listings import JobRow
from zkstate.record import batches, jobs


def allowed_verbs(thing: Job | Batch | JobRow) -> tuple[Event, ...]:
    """The events that the table lets an operator raise on the job or batch now, in table order.

    The failure of a batch is omitted: it is part of `cancel`, which also stops the batch's jobs.
    """
    if isinstance(thing, Batch):
        possible = BATCH.possible(thing.status.status, Raiser.OPERATOR)
        return tuple(event for event in possible if event is not Event.FAIL)
    if isinstance(thing, JobRow):
        return JOB.possible(
            thing.state, Raiser.OPERATOR, thing.last_successful_status, thing.kind, thing.room or Room.KEPT
        )
    status = thing.status
    return JOB.possible(
        status.status, Raiser.OPERATOR, status.last_successful_status, status.kind, status.room
    )


class Moved(ArklineError):
    code = codes.MOVED

    def __init__(self, thing: Job | Batch) -> None:
        self.name, self.state, self.at = thing.id, thing.status.status, thing.status.since
        self.by = thing.history[-1].by if thing.history else ""
        self.possible = tuple(sorted(allowed_verbs(thing)))
        who = f", changed by {self.by}" if self.by else ""
        super().__init__(
            f"{self.name} has changed since you read it: {self.state} since {self.at:%Y-%m-%d %H:%M:%S} UTC"
            f"{who}; possible now: {', '.join(self.possible) or 'nothing'}"
        )


def check_seen(thing: Job | Batch, version: int | None) -> None:
    """Moved unless the job or batch still has the version that the caller saw; None accepts any."""
    if version not in (None, thing.version):
        raise Moved(thing)


def target_of(
    session: Session, thing: Job | Batch, event: Event, to: JobState | None = None
) -> JobState | BatchState:
    """The state that the event leads to; IllegalTransition, listing what is possible, if not allowed now.

    `to`: the state that the operator chose for a job; None: the state in the table.
    """
    try:
        return _target_of(session, thing, event, to)
    except IllegalTransition as refused:
        refused.possible = allowed_verbs(thing)
        raise


def _target_of(
    session: Session, thing: Job | Batch, event: Event, to: JobState | None
) -> JobState | BatchState:
    status = thing.status
    if status.status is BatchState.DELETED and event is Event.DELETE:
        return status.status
    row_exists = event in (
        JOB.events(thing.status.status, Raiser.OPERATOR)
        if isinstance(thing, Job)
        else BATCH.events(thing.status.status, Raiser.OPERATOR)
    )
    if not row_exists:
        raise IllegalTransition(
            f"{thing.id} is {status.status}: an operator cannot {event} it; possible in this state: "
            f"{', '.join(sorted(allowed_verbs(thing))) or 'nothing'}"
        )
    if isinstance(thing, Job):
        target: JobState | BatchState = jobs.target_of(thing.status, event, to, Raiser.OPERATOR)
    else:
        target = BATCH.next(thing.status.status, event)
    if event is Event.RELEASE:
        _refuse_while_on_hold(session, thing)
    elif isinstance(thing, Batch):
        _refuse_before_jobs_end(session, thing)
    elif event is Event.RESUME:
        _refuse_in_deleted_batch(session, thing)
    return target


def _refuse_while_on_hold(session: Session, thing: Job | Batch) -> None:
    hold = holds.collection_hold(session, thing.profile_name)
    if hold is not None:
        by = f" by {hold.by}" if hold.by else ""
        raise IllegalTransition(
            f"{thing.id} cannot be released while its collection {thing.profile_name} is on hold{by}: the "
            "next worker would hold it again"
        ).with_remedies(Remedy(Action.RELEASE_COLLECTION, thing.profile_name))


def _refuse_in_deleted_batch(session: Session, job: Job) -> None:
    if batches.state_of(session, job.bid) is BatchState.DELETED:
        raise IllegalTransition(f"{job.jid} cannot be resumed: its batch {job.bid} is being deleted")


def _refuse_before_jobs_end(session: Session, batch: Batch) -> None:
    if unended := batches.counts(session, batch.bid)[Bucket.PROCESSING]:
        raise IllegalTransition(
            f"{unended:,} {'job' if unended == 1 else 'jobs'} of {batch.bid} "
            f"{'has' if unended == 1 else 'have'} not ended: wait, or stop them"
        ).with_remedies(Remedy(Action.CANCEL, batch.bid))
