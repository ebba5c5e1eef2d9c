"""A job's record: load, acquire, move, clean up. A move is one transaction, and only `move` moves a job.

A move changes the entries of the job in the queue of its state and in its batch. A failed job also gives up
its reservation of working storage when other jobs need the room: in one transaction under its version, so
that a job that is resumed at the same moment keeps its reservation.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kazoo.protocol.states import ZnodeStat

from pipeline import checks
from pipeline.checks import CheckSummary
from pipeline.errors import Action, Remedy
from pipeline.outcome import Done
from pipeline.records import (
    HistoryEntry,
    Identifiers,
    Job,
    JobConfiguration,
    JobStatus,
    Ticket,
    now,
)
from pipeline.states import FAILING, JOB, Bucket, Event, FailureKind, JobState, Raiser, Room, bucket
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import Create, Delete, Operation, Put, Role, commit, token
from zkstate.errors import Contended, Missing, Stale
from zkstate.record import histories, record, space, subscriptions
from zkstate.record.callbacks import OwedCallback
from zkstate.record.node import Parts, read_each, read_parts, uncontended
from zkstate.record.record import MESSAGE_LIMIT, Lock, Move


def change_queue(job: Job, status: JobStatus) -> tuple[Operation, ...]:
    """Operations that change the job's queue entry and, if the target has another bucket, its batch entry.

    A completed job has no queue entry. The batch entries change first, so that a follower of the changes
    always finds the job in at least one place.
    """
    source, target = job.status.status, status.status
    left = Delete(paths.queue_entry(source, job.status.priority, job.jid))
    entered = Create(paths.queue_entry(target, status.priority, job.jid))
    queues = (left,) if is_done(target) else (left, entered)
    return queues if bucket(source) is bucket(target) else (*change_bucket(job, bucket(target)), *queues)


def is_done(state: JobState) -> bool:
    """Whether a job in `state` keeps only its record; its last mover removes its working directory."""
    return bool(JOB.rows(state, Event.CLEAN_UP))


def count_unended(job: Job, status: JobStatus) -> tuple[Operation, ...]:
    """Operations of a move whose last result tells how many jobs of the batch have not ended."""
    if JOB.facts[status.status].ended and bucket(job.status.status) is Bucket.PROCESSING:
        return (Put(paths.bucket(job.bid, Bucket.PROCESSING), b""),)
    return ()


def unended(counting: Sequence[Operation], results: Sequence[Any]) -> dict[str, object]:
    """How many jobs have not ended; None if the move did not count, or its answer was lost."""
    return {"unended": results[-1].numChildren if counting and results else None}


def change_bucket(job: Job, target: Bucket) -> tuple[Operation, ...]:
    """Operations that change the job's entry in its batch; Stale for a resume if the batch is deleted."""
    role = Role.FENCE if target is Bucket.PROCESSING else Role.PLAIN
    return (
        Create(paths.batch_entry(job.bid, target, job.jid), role=role),
        Delete(paths.batch_entry(job.bid, bucket(job.status.status), job.jid)),
    )


_Read = tuple[bytes, ZnodeStat]

LOAD_PAGE = 40
"""Jobs that are read at a time, five nodes each."""

DESCRIPTION = (paths.job_status, paths.configuration, paths.identifiers)
"""The nodes whose content is shown in lists."""

_PARTS = (*DESCRIPTION, paths.history)
_WHOLE = (*_PARTS, paths.space_needed)

_ATTEMPTS = {Lock.CARRY: 1, Lock.TAKE: 2}
"""Attempts that a move counts: the one at the next state, and the one at this state if not yet counted."""


@dataclass(frozen=True)
class JobMove(Move):
    """A move of a job; `done` has the values that the state's work changes.

    `to`: the state that an operator's event leads to; None: the first one that the table gives. `overruled`:
    the digests of the findings that an operator overrules with this move, separated by spaces.
    """

    done: Done = field(default_factory=Done)
    to: JobState | None = None
    overruled: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, **({"overruled": self.overruled} if self.overruled else {})}

    @property
    def gives_up_room(self) -> bool:
        """Whether the job fails and its reservation is released at once.

        For wrong content, which the depositor has to correct, or if an operator or the sweep fails the job.
        """
        gives_up = self.kind is FailureKind.CONTENT or self.lock is not Lock.MINE
        return self.event in FAILING and gives_up


def load(session: Session, jid: str) -> Job:
    """The whole job in one round of reads; Missing or Corrupt names the path."""
    return next(load_many(session, (jid,)))


def load_to_begin(session: Session, jid: str) -> Job:
    """Like `load`, without the space needed, which the state after pending estimates again."""
    ((_, answers),) = read_parts(session, (jid,), _PARTS, 1)
    return _decoded(session, jid, answers)


def load_many(session: Session, jids: Sequence[str]) -> Iterator[Job]:
    """The jobs in the given order, LOAD_PAGE per round of reads; Missing or Corrupt names the path."""
    for jid, answers in read_parts(session, jids, _WHOLE, LOAD_PAGE):
        yield _decoded(session, jid, answers)


def load_present(session: Session, jids: Sequence[str]) -> Iterator[Job]:
    """Like `load_many`, but skips jobs with a missing znode, which were deleted a moment ago."""
    for jid, answers in read_parts(session, jids, _WHOLE, LOAD_PAGE):
        try:
            job = _decoded(session, jid, answers)
        except Missing:
            continue
        yield job


def require_complete(jid: str, parts: Sequence[Callable[[str], str]], answers: Parts) -> list[_Read]:
    """The nodes of a job; Missing if there is no such job, or if one of its nodes is missing."""
    if all(node is None for node in answers):
        raise Missing(f"there is no job {jid}")
    for path, node in zip(parts, answers, strict=True):
        if node is None:
            if answers[0] is not None:
                codec.refuse_merritt(answers[0][0], paths.job_status(jid))
            raise Missing(f"job {jid} is incomplete: znode {path(jid)} is missing").with_remedies(
                Remedy(Action.REPAIR, jid)
            )
    return [node for node in answers if node is not None]


def describe(jid: str, nodes: Sequence[_Read]) -> tuple[JobStatus, JobConfiguration, Identifiers]:
    """Decode the nodes of DESCRIPTION, which come first in `nodes`."""
    (status, _), (configuration, _), (identifiers, _), *_ = nodes
    return (
        codec.decode(JobStatus, status, paths.job_status(jid)),
        codec.decode(JobConfiguration, configuration, paths.configuration(jid)),
        codec.decode(Identifiers, identifiers, paths.identifiers(jid)),
    )


def _decoded(session: Session, jid: str, answers: Parts) -> Job:
    nodes = require_complete(jid, _WHOLE[: len(answers)], answers)
    (_, stat), _, (_, named), listed, *needed = nodes
    history, parts = histories.read(session, paths.history(jid), listed, HistoryEntry)
    status, configuration, identifiers = describe(jid, nodes)
    return Job(
        jid=jid,
        bid=configuration.batch_id,
        configuration=configuration,
        identifiers=identifiers,
        status=status,
        version=stat.version,
        priority=status.priority,
        space_needed=codec.decode_int(needed[0][0], paths.space_needed(jid)) if needed else 0,
        identifiers_version=named.version,
        history=history,
        history_parts=parts,
    )


def acquire(session: Session, ticket: Ticket, by: str) -> Job:
    """Take the lock of the ticket's job; Stale or Busy if the ticket is void."""
    return record.acquire(session, load(session, ticket.id), ticket, by)


def move(session: Session, job: Job, request: JobMove) -> Job:
    """Move the job as the event requires, with its queue entry, batch entry, history, lock and space.

    Raises IllegalTransition; Stale (the record has changed, or the lock is gone); Busy (a lock that should
    be free is held); Outdated (`done.reservation` was made from a sum that has changed).
    """
    status = _status_after(job, request)
    facts = request.facts | {"message": status.message, "kind": status.kind, "at": status.since}
    extended = histories.extend(job, status.status, facts)
    needed = job.space_needed if request.done.space_needed is None else request.done.space_needed
    identifiers = job.identifiers
    if request.done.description is not None:
        identifiers = identifiers.model_copy(update={"description": request.done.description})
    operations = (
        *change_queue(job, status),
        *_put_values(job, status, request.done, identifiers),
        *extended.operations,
        *record.leave_waiting(session, job),
        *record.lock_operations(session, job, request.lock, status, request.by),
    )
    counting = count_unended(job, status)
    return uncontended(
        lambda: record.write(
            session,
            job,
            status,
            (
                *operations,
                *_reserve(session, job, request, status.status, needed),
                *subscriptions.of_review(session, job, status.status),
                *counting,
            ),
            partial(unended, counting),
            priority=status.priority,
            space_needed=needed,
            identifiers=identifiers,
            **extended.changes,
        )
    )


def target_of(was: JobStatus, event: Event, to: JobState | None = None, by: Raiser | None = None) -> JobState:
    """The state that the event leads to; IllegalTransition if there is none."""
    return JOB.next(was.status, event, was.last_successful_status, was.kind, was.room, to, by)


def _status_after(job: Job, request: JobMove) -> JobStatus:
    was = job.status
    target = target_of(was, request.event, request.to)
    last_success = was.last_successful_status
    if request.event is Event.SUCCEED:
        last_success = was.status
    elif request.event in (Event.RESUME, Event.DOWNLOAD_AGAIN, Event.APPROVE):
        # a step that is repeated has not succeeded yet, and a download that is reviewed only once approved
        last_success = JOB.before(JobState.FAILED, Event.RESUME, target)
    moment = now()
    return record.next_epoch(
        was,
        {
            "status": target,
            "last_successful_status": last_success,
            "room": Room.YIELDED if request.gives_up_room and not is_done(target) else Room.KEPT,
            "last_modification_date": moment,
            "retry_count": was.retry_count + (request.event is Event.RESUME),
            **record.with_cause(
                request.message or request.done.message,
                request.cause if request.event in FAILING else None,
            ),
            "kind": request.kind if request.event in FAILING else None,
            "priority": was.priority if request.done.priority is None else request.done.priority,
            "remark": was.remark if request.done.remark is None else request.done.remark[:MESSAGE_LIMIT],
            "deposited": was.deposited if request.done.deposited is None else request.done.deposited,
            "checks": _checks_after(was, request, target),
            "dispatched_at": None if target is JobState.PENDING else moment,
            "attempt": was.attempt + _ATTEMPTS.get(request.lock, 0),
        },
    )


def _checks_after(was: JobStatus, request: JobMove, target: JobState) -> tuple[CheckSummary, ...] | None:
    """What checks found; of content that is to be downloaded or checked again, nothing is known."""
    again = request.event in (Event.RESUME, Event.DOWNLOAD_AGAIN) and not JOB.facts[target].stored
    before = () if again or was.checks is None else was.checks
    new = request.done.checks
    return (checks.latest(*before, *new) if new else before) or None  # what was noted is shortened already


def _put_values(job: Job, status: JobStatus, done: Done, identifiers: Identifiers) -> Iterator[Operation]:
    """Operations for values beside the status; a failure requires a callback, unless the callback failed."""
    for path, number in (paths.space_needed, done.space_needed), (paths.priority, done.priority):
        if number is not None:
            yield Put(path(job.jid), codec.encode_int(number))
    if identifiers != job.identifiers:
        yield Put(paths.identifiers(job.jid), codec.encode(identifiers))
    if status.status is JobState.FAILED and job.status.status is not JobState.NOTIFY:
        yield Create(paths.owed_callback(job.jid, status.epoch), codec.encode(OwedCallback()))


def _reserve(
    session: Session, job: Job, request: JobMove, target: JobState, needed: int
) -> tuple[Operation, ...]:
    """Operations by which the move changes the job's reservation of working storage."""
    if request.done.reservation is not None:
        return space.grant(job.jid, request.done.reservation)
    if request.gives_up_room or is_done(target):
        return space.replace(session, job.jid, None)
    if request.event in (Event.RESUME, Event.DOWNLOAD_AGAIN):
        keeps = JOB.facts[target].holds_space and job.status.room is not Room.EMPTY
        return space.replace(session, job.jid, needed if keeps else None)
    if JOB.facts[target].holds_space and (needed != job.space_needed or request.done.space_grew):
        return space.replace(session, job.jid, needed)
    return ()


def clean_up(session: Session, job: Job) -> None:
    """Release the reservation and the queue entry of a job that an earlier release completed.

    The record stays. Idempotent.
    """
    JOB.next(job.status.status, Event.CLEAN_UP)
    entry = paths.queue_entry(job.status.status, job.status.priority, job.jid)
    while True:
        try:
            commit(session, (Delete(entry, role=Role.SHARED), *space.replace(session, job.jid, None)))
        except Contended:
            if session.exists(entry) is not None:
                continue  # the sum of the reservations has changed
        return


YIELDED = "its reservation of working storage was given to other jobs"
EMPTIED = "its content was removed from working storage, because other jobs need the room"


def statuses(session: Session, jids: Sequence[str]) -> dict[str, JobStatus]:
    """The statuses of these jobs, the oldest state first; skips missing and damaged ones."""
    decode = partial(codec.decode, JobStatus)
    read = read_each(session, jids, paths.job_status, decode)
    return dict(sorted(((jid, status) for jid, status, _ in read), key=lambda entry: entry[1].since))


def failed_jobs(session: Session, jids: Sequence[str]) -> dict[str, JobStatus]:
    """The failed jobs among `jids`, the oldest failure first; skips damaged ones."""
    known = statuses(session, jids)
    return {jid: status for jid, status in known.items() if status.status is JobState.FAILED}


def yield_reservation(session: Session, jid: str, by: str) -> None:
    """Release a failed job's reservation; its content stays. Stale or Busy if the job has changed."""
    job = _in_state(session, jid, JobState.FAILED)
    _give_up(session, job, by, Room.YIELDED, YIELDED, record.lock_operations(session, job, Lock.FREE))


@contextmanager
def emptying(session: Session, jid: str, by: str) -> Iterator[Job]:
    """Lock a failed job, or one that waits for working storage, while its content is removed.

    Afterwards it has no reservation, and the room of a failed job is EMPTY. Raises Busy or Stale if the job
    is in another state. A crash inside leaves a failed job with a reservation but without its content; the
    next removal or a resume repairs that.
    """
    job = _in_state(session, jid, JobState.FAILED, JobState.PROVISIONING)
    taken = job.status.model_copy(update={"op": token()})
    lock = Create(record.lock_path(job), f"{taken.op} {by}".encode(), ephemeral=True, role=Role.LOCK)
    locked = record.write(session, job, taken, (lock,))
    yield locked
    room = Room.EMPTY if job.status.status is JobState.FAILED else job.status.room
    _give_up(session, locked, by, room, EMPTIED, record.lock_operations(session, locked, Lock.MINE))


def _in_state(session: Session, jid: str, *states: JobState) -> Job:
    job = load(session, jid)
    if job.status.status not in states:
        raise Stale(f"{jid} is {job.status.status}")
    return job


def _give_up(
    session: Session, job: Job, by: str, room: Room, message: str, lock: Sequence[Operation]
) -> None:
    status = job.status.model_copy(update={"op": token(), "room": room})
    extended = histories.extend(job, job.status.status, {"by": by, "message": message})
    operations = (*lock, *extended.operations)
    uncontended(
        lambda: record.write(session, job, status, (*operations, *space.replace(session, job.jid, None)))
    )
