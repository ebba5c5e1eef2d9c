"""A batch's record: submit, load, acquire, move, with its report and the profile of its jobs. A move is one
transaction.

Rule: the status report has the first ids of a long report, the report parts have the others. The parts are
written under the batch's fence before the report that names them. A crash in between leaves parts that no
report names; the next long report of the batch removes them.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from kazoo.exceptions import NoNodeError

from pipeline import codes
from pipeline.checks import CheckedFiles
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.outcome import Deposited
from pipeline.principal import LOCAL
from pipeline.profiles.profile import Profile, Profiles
from pipeline.profiles.snapshot import ProfileSnapshot, public_profile, with_secrets
from pipeline.records import (
    Batch,
    BatchHistoryEntry,
    BatchStatus,
    Record,
    StatusReport,
    Submission,
    Ticket,
    now,
)
from pipeline.states import BATCH, BatchState, Bucket, Event
from zkstate import codec, paths
from zkstate.connection import remembered
from zkstate.connection.session import Session
from zkstate.connection.transaction import Check, Create, Delete, Operation, Put, Role, commit, token
from zkstate.errors import Ambiguous, Busy, Missing, Stale, Taken, TooBig
from zkstate.record import histories, record, subscriptions
from zkstate.record.node import Node, uncontended
from zkstate.record.record import Lock, Move

PART_JOBS = 10_000
"""Ids of jobs in one node: 160 KB."""


class _ReportPart(Record):
    failed_jobs: tuple[str, ...] = ()
    successful_jobs: tuple[str, ...] = ()
    unfinished_jobs: tuple[str, ...] = ()


def write_report(session: Session, batch: Batch, report: StatusReport) -> StatusReport:
    """Write all but the first part of a long report; returns the report to be stored in its own node.

    Stale if another attempt has taken over the batch.
    """
    first, *others = _divided_report(report)
    if not others and not (batch.report and batch.report.parts):
        return report
    fence = Check(paths.batch_status(batch.bid), batch.version)
    folder = paths.report_parts(batch.bid)
    session.ensure_node(folder)
    names = tuple(f"{batch.status.reports + 1:04d}-{number:04d}" for number in range(1, len(others) + 1))
    present = set(session.children(folder))
    named = batch.report.parts or () if batch.report else ()
    for name in sorted(present - set(names) - set(named)):
        commit(session, [fence, Delete(f"{folder}/{name}")])
    for name, part in zip(names, others, strict=True):
        path, data = f"{folder}/{name}", codec.encode(part)
        commit(session, [fence, Put(path, data) if name in present else Create(path, data)])
    return report.model_copy(update={**dict(first), "parts": names or None})


def whole_report(session: Session, batch: Batch) -> StatusReport | None:
    """The last report with all of its ids; one more round of reads if the report has parts."""
    report = batch.report
    if report is None or not report.parts:
        return report
    places = [f"{paths.report_parts(batch.bid)}/{name}" for name in report.parts]
    read = []
    for place, node in zip(places, session.get_many(places), strict=True):
        if node is None:
            raise Missing(f"znode {place} is missing")
        read.append(codec.decode(_ReportPart, node[0], place))
    whole_report = {
        outcome: tuple(jid for part in (report, *read) for jid in getattr(part, outcome))
        for outcome in _ReportPart.model_fields
    }
    return report.model_copy(update={**whole_report, "parts": None})


def _divided_report(report: StatusReport) -> Iterator[_ReportPart]:
    """The ids in parts, the failed jobs first."""
    ids = [(outcome, jid) for outcome in _ReportPart.model_fields for jid in getattr(report, outcome)]
    for start in range(0, max(1, len(ids)), PART_JOBS):
        part: dict[str, list[str]] = {}
        for outcome, jid in ids[start : start + PART_JOBS]:
            part.setdefault(outcome, []).append(jid)
        yield _ReportPart.model_validate(part)


def profile_snapshot(session: Session, bid: str) -> ProfileSnapshot | None:
    """The profile snapshot; None if the batch has not started, or release 0.1.0 started it."""
    return Node(paths.profile_snapshot(bid), ProfileSnapshot).read(session)


def profile_of(session: Session, profiles: Profiles, bid: str, name: str) -> Profile:
    """The profile of the batch's jobs, with the current secrets of its file; cached until it is renewed.

    The profile in the file if the batch has not started; ProfileError if the file is invalid.
    """
    path = paths.profile_snapshot(bid)

    def decode(data: bytes) -> Profile:
        return public_profile(codec.decode(ProfileSnapshot, data, path))

    known = remembered.read(session, path, decode)
    return profiles.get(name) if known.value is None else with_secrets(known.value, profiles)


def renew_profile(session: Session, batch: Batch, profile: ProfileSnapshot) -> None:
    """Give the batch another profile snapshot, which also lists the earlier renewals.

    Stale if the batch moved meanwhile, or somebody else renewed its profile.
    """
    path = paths.profile_snapshot(batch.bid)
    node = session.find(path)
    if node is None:
        put: Create | Put = Create(path, codec.encode(profile), role=Role.FENCE)
    else:
        data = codec.encode(profile.after(codec.decode(ProfileSnapshot, node[0], path)))
        put = Put(path, data, node[1].version, role=Role.FENCE)
    try:
        commit(session, [Check(paths.batch_status(batch.bid), batch.version), put])
    finally:
        remembered.forget(session, path)


@dataclass(frozen=True)
class BatchMove(Move):
    """A move of a batch; `profile` is for all its jobs, `report` is what the depositor received.

    `deposited`: what all completed jobs of the batch have added to storage; `checked`: what checks found in
    the files of all its jobs. `title` tells subscribers of the end; `asks`: somebody has to consent.
    """

    profile: ProfileSnapshot | None = None
    report: StatusReport | None = None
    deposited: Deposited | None = None
    checked: tuple[CheckedFiles, ...] | None = None
    title: str = ""
    asks: bool = False


SUBMISSION_LIMIT = 128 * 1024
"""Bytes of a submission: every job of the batch repeats its descriptions."""


def submit(session: Session, submission: Submission) -> str:
    """Store a submission; returns its BID. Errors as in `submit_once`."""
    return submit_once(session, submission)[0].bid


def submit_once(
    session: Session,
    submission: Submission,
    prepare: Callable[[], None] = lambda: None,
    counts: Callable[[Batch], bool] = lambda batch: True,
) -> tuple[Batch, bool]:
    """Store a submission; returns its batch, and whether an earlier one with its idempotency key created it.

    `prepare` is called before a batch is created. If an earlier batch with the key does not count, the key
    belongs to the new one from then on. TooBig if the submission is larger than SUBMISSION_LIMIT.
    """
    if (size := len(codec.encode(submission))) > SUBMISSION_LIMIT:
        raise TooBig(
            f"the submission has {size:,} bytes; the record keeps at most {SUBMISSION_LIMIT:,} bytes of a "
            "submission: shorten its descriptions, notes and local ids, or put the description into the "
            "object's own metadata files"
        )
    while True:
        known = _under_key(session, submission)
        if known is not None and counts(batch := load(session, known[0])):
            return _same(batch, submission), True
        prepare()
        if created := _submit(session, submission, known[1] if known else None):
            return created, False


def _submit(session: Session, submission: Submission, key_version: int | None) -> Batch | None:
    """The new batch; None if the transaction was not applied and has to be retried.

    `key_version`: that of the key's node, which the new batch gets; None if there is no such node.
    """
    bid = f"bid{next_number(session):010d}"
    status = BatchStatus(status=BATCH.initial, op=token())
    first = BatchHistoryEntry(state=BATCH.initial, by=submission.submitter)
    operations: list[Operation] = [
        Create(paths.batch(bid), role=Role.NAME),
        Create(paths.submission(bid), codec.encode(submission)),
        Create(paths.batch_status(bid), codec.encode(status)),
        Create(paths.batch_history(bid), codec.encode_history((first,))),
        Create(paths.open_batch(bid)),
    ]
    if key := key_path(submission):
        data = bid.encode()
        new = key_version is None
        operations.append(
            Create(key, data, role=Role.NAME) if new else Put(key, data, key_version, role=Role.NAME)
        )
    try:
        commit(session, operations)
    except Taken:
        # the same submission took the key at the same moment; or the number is taken, in a record that was
        # restored node by node and counts from the beginning
        return None
    except Ambiguous:
        try:  # as the leader has it: the next server may be behind, and the batch would be stored twice
            session.get_synced(paths.submission(bid))
        except Missing:
            return None
    return Batch(bid=bid, submission=submission, status=status, version=0, history=(first,))


def next_number(session: Session) -> int:
    """A number that no batch has had; a crash, or a write whose answer was lost, leaves a gap.

    The number is the version after an unconditional write, so that writers never contend.
    """
    path = paths.counter("batch")
    while True:
        try:
            return int(session.ask(session.zk.set_async, path, b"").version)
        except NoNodeError:
            session.ensure_node(path)


def key_path(submission: Submission) -> str:
    """The path of the submission's idempotency key; empty if it has none."""
    key = submission.idempotency_key
    return paths.submission_key(key, submission.owner) if key else ""


def under_key(session: Session, key: str, owner: str) -> Batch | None:
    """The last batch that was submitted under this owner's idempotency key, if it is still there."""
    path = paths.submission_key(key, owner)
    node = session.find(path)
    with suppress(Missing):
        return load(session, _named(node[0], path)) if node else None
    return None


def _named(data: bytes, path: str) -> str:
    """The BID in the node of a key; Corrupt if it has none, as nobody knows what was submitted under it."""
    bid = data.decode(errors="replace")
    if not paths.owned(paths.BATCHES, [bid]):
        raise codec.damaged(path, "does not name a batch: submit under a new idempotency key")
    return bid


def submitted_under(session: Session, submission: Submission) -> str | None:
    """The BID of an earlier submission of the same owner under the same idempotency key."""
    known = _under_key(session, submission)
    return known[0] if known else None


def _under_key(session: Session, submission: Submission) -> tuple[str, int | None] | None:
    """The BID under the submission's key, and the version of the key's own node."""
    path = key_path(submission)
    if not path:
        return None
    node = session.find(path)
    if node is not None:
        return _named(node[0], path), node[1].version
    earlier = _submitted_by_0_1_0(session, submission) if submission.owner else None
    return (earlier, None) if earlier else None


def _submitted_by_0_1_0(session: Session, submission: Submission) -> str | None:
    """The BID under a key without an owner, which belongs to the submitter that its submission names."""
    path = paths.submission_key(submission.idempotency_key or "")
    node = session.find(path)
    if node is None or not submission.owner.startswith(LOCAL):
        return None
    bid = _named(node[0], path)
    return bid if load(session, bid).submission.submitter == submission.submitter else None


def _same(batch: Batch, submission: Submission) -> Batch:
    before = batch.submission
    # Clients up to 0.3.0 gave the user of their machine as submitter, and a name changes nothing either.
    ignored = {"submitted_at", "owner", "submitter", "deposit_name"}
    if before.new_version is None:  # nobody was asked, and the name was that of the URL
        ignored |= {"new_version", "payload_filename"}
    if before.model_dump(exclude=ignored) != submission.model_dump(exclude=ignored):
        raise UsageRefused(
            f"idempotency key '{submission.idempotency_key}' belongs to {batch.bid}, which was submitted "
            "with other values: use a new key for a new submission",
            code=codes.KEY_REUSED,
        )
    return batch


def load(session: Session, bid: str) -> Batch:
    """The whole batch in one round of reads; Missing or Corrupt names the path."""
    places = (
        paths.submission(bid),
        paths.batch_status(bid),
        paths.status_report(bid),
        paths.batch_history(bid),
    )
    submission, status, report, history = session.get_many(places)
    if submission is None and status is None:
        raise Missing(f"there is no batch {bid}")
    if submission is None or status is None:
        lacking = places[0] if submission is None else places[1]
        raise Missing(f"batch {bid} is incomplete: znode {lacking} is missing").with_remedies(
            Remedy(Action.REPAIR, bid)
        )
    decoded = codec.decode(BatchStatus, status[0], places[1])
    entries, parts = histories.read(session, places[3], history, BatchHistoryEntry) if history else ((), ())
    return Batch(
        bid=bid,
        submission=codec.decode(Submission, submission[0], places[0]),
        status=decoded,
        version=status[1].version,
        report=codec.decode(StatusReport, report[0], places[2]) if report else None,
        history=entries,
        history_parts=parts,
    )


def state_of(session: Session, bid: str) -> BatchState:
    """The state, from the status node alone; Missing if there is no such batch."""
    place = paths.batch_status(bid)
    return codec.decode(BatchStatus, session.get(place)[0], place).status


def acquire(session: Session, ticket: Ticket, by: str) -> Batch:
    """Take the lock of the ticket's batch; a pending batch stays pending until it moves."""
    return record.acquire(session, load(session, ticket.id), ticket, by)


def move(session: Session, batch: Batch, request: BatchMove) -> Batch:
    """Move the batch as the event requires, with its history, lock, buckets, report and open-batch entry.

    Raises IllegalTransition; Stale (the record has changed, or the lock is gone); Busy (a lock that should
    be free is held).
    """
    target = BATCH.next(batch.status.status, request.event)
    moment = now()
    # the message of a failure stays; that of a wait is over with the move
    message, cause = batch.failure
    status = record.next_epoch(
        batch.status,
        {
            "status": target,
            "last_modified": moment,
            **record.with_cause(
                request.message or message, (request.cause if request.kind else None) or cause
            ),
            "kind": request.kind or batch.status.kind,
            "total": _total_after(batch, request),
            # also for an interrupted report, because its mail may have been sent under this number
            "reports": batch.status.reports + BATCH.facts[batch.status.status].reports,
            "dispatched_at": moment,
            "deposited": request.deposited or batch.status.deposited,
            "checked": batch.status.checked if request.checked is None else request.checked,
        },
    )
    report = request.report and write_report(session, batch, request.report)
    if report is not None and batch.report is not None:
        report = report.model_copy(update=batch.report.model_extra)
    extended = histories.extend(batch, target, request.facts | {"at": moment})
    operations = (
        *_start(batch, request),
        *_put_report(batch, report),
        *_open_or_close(batch, target),
        *_refuse_unended(batch, target),
        *extended.operations,
        *record.lock_operations(session, batch, request.lock),
    )

    def write() -> Batch:
        entered = subscriptions.of_batch(session, batch, status, request.title, asks=request.asks)
        known = report or batch.report
        return record.write(session, batch, status, (*operations, *entered), report=known, **extended.changes)

    return uncontended(write)


def _total_after(batch: Batch, request: BatchMove) -> int | None:
    """The total after the move; it is final for a batch whose split fails."""
    unsplit = batch.status.total is None
    return batch.status.created if unsplit and request.event is Event.FAIL else batch.status.total


def _start(batch: Batch, request: BatchMove) -> tuple[Operation, ...]:
    """Operations that create buckets and profile snapshot of a batch that starts, or fails before that."""
    if BATCH.facts[batch.status.status].split or request.event not in (Event.ACQUIRE, Event.FAIL):
        return ()
    buckets = (Create(paths.buckets(batch.bid)), *(Create(paths.bucket(batch.bid, name)) for name in Bucket))
    if request.profile is None:
        return buckets
    return (*buckets, Create(paths.profile_snapshot(batch.bid), codec.encode(request.profile)))


def _put_report(batch: Batch, report: StatusReport | None) -> tuple[Operation, ...]:
    if report is None:
        return ()
    path = paths.status_report(batch.bid)
    data = codec.encode(report)
    return (Create(path, data) if batch.report is None else Put(path, data),)


def _open_or_close(batch: Batch, target: BatchState) -> tuple[Operation, ...]:
    path = paths.open_batch(batch.bid)
    was_open, is_open = (BATCH.facts[state].open for state in (batch.status.status, target))
    if was_open and not is_open:
        return (Delete(path),)
    if is_open and not was_open:
        return (Create(path),)
    return ()


def _refuse_unended(batch: Batch, target: BatchState) -> tuple[Operation, ...]:
    """Operations that fail with Stale if a job has not ended, and after which none can be resumed."""
    if target is not BatchState.DELETED or not BATCH.facts[batch.status.status].split:
        return ()
    return (Delete(paths.bucket(batch.bid, Bucket.PROCESSING), role=Role.FENCE),)


def finish_split(session: Session, batch: Batch) -> Batch:
    """Record the number of jobs, which are all created, and release the lock."""
    update = {"total": batch.status.created, "message": "", "op": token(), "delay": 0}
    status = batch.status.model_copy(update=update)
    return record.write(session, batch, status, record.lock_operations(session, batch, Lock.MINE))


def counts(session: Session, bid: str) -> dict[Bucket, int]:
    """How many jobs are in each bucket, without listing them."""
    numbers = session.count_children(*(paths.bucket(bid, name) for name in Bucket))
    return dict(zip(Bucket, numbers, strict=True))


def jobs_in(session: Session, bid: str, *names: Bucket) -> list[str]:
    """The ids of the jobs in these buckets, in their order; the buckets are listed at once."""
    listed = session.children_of_many([paths.bucket(bid, name) for name in names])
    return sorted(filter(paths.is_jid, chain.from_iterable(listed)))


def all_jobs(session: Session, bid: str) -> list[str]:
    return jobs_in(session, bid, *Bucket)


def finish_if_ended(session: Session, bid: str, by: str) -> Batch | None:
    """Move the batch to reporting if it is split and its last job has ended; None otherwise.

    Of two last jobs, the later one sees the empty bucket, because a session reads its own writes.
    """
    stat = session.exists(paths.bucket(bid, Bucket.PROCESSING))
    if stat is None or stat.numChildren:
        return None
    batch = load(session, bid)
    if batch.status.status is not BatchState.PROCESSING or batch.status.total is None:
        return None
    try:
        return move(session, batch, BatchMove(Event.SUCCEED, by, lock=Lock.FREE))
    except (Stale, Busy):
        return None
