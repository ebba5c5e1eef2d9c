"""A batch's record: submit, load, acquire, move. A move is one transaction."""

from collections.abc import Sequence

from pipeline.errors import UsageRefused
from pipeline.principal import LOCAL
from pipeline.profiles.snapshot import ProfileSnapshot
from pipeline.records import Batch, BatchStatus, StatusReport, Submission, Ticket, now
from pipeline.states import BATCH, BatchState, Bucket, Event, FailureKind
from zkstate import codec, counters, paths
from zkstate.errors import Ambiguous, Busy, Missing, Refused, Stale
from zkstate.jobs import MESSAGE_LIMIT, Lock, nobody_holds, token
from zkstate.session import Session
from zkstate.transaction import Check, Create, Delete, Operation, Put, commit, fenced_under, is_taken


class KeyReused(UsageRefused):
    """The idempotency key belongs to another submission."""


def submit(session: Session, submission: Submission) -> str:
    """Keep a submission; its BID. With an idempotency key, the same submission is kept once."""
    if known := submitted_under(session, submission):
        return _same(session, known, submission)
    bid = f"bid{counters.next_number(session, 'batch'):010d}"
    operations: list[Operation] = [
        Create(paths.batch(bid)),
        Create(paths.submission(bid), codec.encode(submission)),
        Create(paths.batch_status(bid), codec.encode(_first_status())),
        Create(paths.open_batch(bid)),
    ]
    key = key_path(submission)
    if key:
        operations.append(Create(key, bid.encode()))
    try:
        commit(session, operations)
    except Refused as refusal:
        if key and refusal.path == key:
            return _same(session, submitted_under(session, submission) or "", submission)
        if refusal.path == paths.batch(bid) and is_taken(refusal):
            return submit(session, submission)  # a tree that was restored node by node counts anew
        raise
    except Ambiguous:
        if session.get_many([paths.submission(bid)])[0] is None:
            return submit(session, submission)
    return bid


def _first_status() -> BatchStatus:
    return BatchStatus(status=BATCH.initial, op=token())


def key_path(submission: Submission) -> str:
    """Where the submission's idempotency key stands; empty if it has none."""
    key = submission.idempotency_key
    return paths.submission_key(key, submission.owner) if key else ""


def submitted_under(session: Session, submission: Submission) -> str | None:
    """The BID of an earlier submission of the same owner under the same idempotency key."""
    path = key_path(submission)
    if not path:
        return None
    node = session.get_many([path])[0]
    if node is not None:
        return node[0].decode()
    return _submitted_by_0_1_0(session, submission) if submission.owner else None


def _submitted_by_0_1_0(session: Session, submission: Submission) -> str | None:
    """The BID under a key without an owner, which belongs to the submitter that its submission names."""
    node = session.get_many([paths.submission_key(submission.idempotency_key or "")])[0]
    if node is None or not submission.owner.startswith(LOCAL):
        return None
    bid = node[0].decode()
    return bid if load(session, bid).submission.submitter == submission.submitter else None


def _same(session: Session, bid: str, submission: Submission) -> str:
    before = load(session, bid).submission
    ignored = {"submitted_at", "owner"}
    if before.model_dump(exclude=ignored) != submission.model_dump(exclude=ignored):
        raise KeyReused(
            f"idempotency key '{submission.idempotency_key}' belongs to {bid}, which was submitted with "
            "other values: use a new key for a new submission"
        )
    return bid


def load(session: Session, bid: str) -> Batch:
    wanted = (paths.submission(bid), paths.batch_status(bid), paths.status_report(bid))
    submission, status, report = session.get_many(wanted)
    if submission is None and status is None:
        raise Missing(f"there is no batch {bid}")
    if submission is None or status is None:
        lacking = wanted[0] if submission is None else wanted[1]
        raise Missing(f"batch {bid} is incomplete: znode {lacking} is missing; see `arkline audit`")
    return Batch(
        bid=bid,
        submission=codec.decode(Submission, submission[0], wanted[0]),
        status=codec.decode(BatchStatus, status[0], wanted[1]),
        version=status[1].version,
        report=codec.decode(StatusReport, report[0], wanted[2]) if report else None,
    )


def acquire(session: Session, ticket: Ticket, by: str) -> Batch:
    """Take the batch's lock; a pending batch stays pending until it moves. Stale or Busy changes nothing."""
    batch = load(session, ticket.id)
    if (batch.status.status, batch.status.epoch) != (ticket.state, ticket.epoch):
        raise Stale(f"{batch.bid} is {batch.status.status} in epoch {batch.status.epoch} by now")
    status = batch.status.model_copy(update={"op": token()})
    lock = Create(paths.batch_lock(batch.bid), f"{status.op} {by}".encode(), ephemeral=True)
    return write(session, batch, status, (lock,))


def profile_snapshot(session: Session, bid: str) -> ProfileSnapshot | None:
    """The profile that the batch started with; None if it has not started, or an older release started it."""
    path = paths.profile_snapshot(bid)
    found = session.get_many([path])[0]
    return codec.decode(ProfileSnapshot, found[0], path) if found else None


def renew_profile(session: Session, batch: Batch, profile: ProfileSnapshot) -> None:
    """Have the batch go on with another profile; Stale if it moved meanwhile."""
    path = paths.profile_snapshot(batch.bid)
    write_it = Create if session.exists(path) is None else Put
    try:
        commit(
            session,
            [Check(paths.batch_status(batch.bid), batch.version), write_it(path, codec.encode(profile))],
        )
    except Refused as refusal:
        raise Stale(f"{batch.bid} has moved on") from refusal


def move(  # noqa: PLR0913 - a move is told everything it commits
    session: Session,
    batch: Batch,
    event: Event,
    *,
    message: str = "",
    kind: FailureKind | None = None,
    report: StatusReport | None = None,
    profile: ProfileSnapshot | None = None,
    lock: Lock = Lock.MINE,
) -> Batch:
    """Take the batch where `event` leads, with its lock, buckets, report and place among the open ones."""
    source = batch.status.status
    target = BATCH.next(source, event)
    status = batch.status.model_copy(
        update={
            "status": target,
            "last_modified": now(),
            "message": (message or batch.status.message)[:MESSAGE_LIMIT],
            "kind": kind or batch.status.kind,
            "epoch": batch.status.epoch + 1,
            "op": token(),
            "reports": batch.status.reports + (report is not None),
            "dispatched_at": now(),
            "redispatches": 0,
            "tries": 0,
            "delay": 0,
        }
    )
    operations: list[Operation] = []
    if event is Event.ACQUIRE:
        operations.append(Create(paths.buckets(batch.bid)))
        operations += [Create(paths.bucket(batch.bid, name)) for name in Bucket]
        if profile is not None:
            operations.append(Create(paths.profile_snapshot(batch.bid), codec.encode(profile)))
    elif lock is Lock.MINE:
        operations.append(Delete(paths.batch_lock(batch.bid)))
    else:
        operations += nobody_holds(paths.batch_lock(batch.bid))
    if report is not None:
        operations.append(_put_report(batch, report))
    operations += _open_or_close(batch.bid, source, target)
    return write(session, batch, status, operations, report)


def _put_report(batch: Batch, report: StatusReport) -> Operation:
    path = paths.status_report(batch.bid)
    data = codec.encode(report)
    return Create(path, data) if batch.report is None else Put(path, data)


def _open_or_close(bid: str, source: BatchState, target: BatchState) -> tuple[Operation, ...]:
    before, after = (BATCH.facts[state].open for state in (source, target))
    if before and not after:
        return (Delete(paths.open_batch(bid)),)
    if after and not before:
        return (Create(paths.open_batch(bid)),)
    return ()


def hand_back(
    session: Session,
    batch: Batch,
    *,
    message: str = "",
    delay: float = 0,
    tried: bool = False,
    in_line: bool = False,
) -> Batch:
    """Release the lock without moving; the sweep takes the batch up again after `delay` seconds.

    `in_line`: nothing failed, it waits for its turn.
    """
    status = batch.status.model_copy(
        update={
            "message": message[:MESSAGE_LIMIT] or batch.status.message,
            "epoch": batch.status.epoch + 1,
            "op": token(),
            "delay": delay,
            "tries": batch.status.tries + tried,
            "in_line": in_line,
        }
    )
    return write(session, batch, status, (Delete(paths.batch_lock(batch.bid)),))


def redispatch(session: Session, batch: Batch) -> Ticket:
    """A new ticket under a new epoch, which voids every older one."""
    status = batch.status.model_copy(
        update={
            "epoch": batch.status.epoch + 1,
            "op": token(),
            "delay": 0,
            "dispatched_at": now(),
            "redispatches": batch.status.redispatches + 1,
        }
    )
    return ticket(write(session, batch, status, nobody_holds(paths.batch_lock(batch.bid))))


def ticket(batch: Batch) -> Ticket:
    return Ticket(id=batch.bid, state=batch.status.status, epoch=batch.status.epoch)


def counts(session: Session, bid: str) -> dict[Bucket, int]:
    """How many jobs are in each bucket, without listing them."""
    found = session.exists_many([paths.bucket(bid, name) for name in Bucket])
    return {name: stat.numChildren if stat else 0 for name, stat in zip(Bucket, found, strict=True)}


def jobs_in(session: Session, bid: str, name: Bucket) -> list[str]:
    return sorted(session.children(paths.bucket(bid, name)))


def all_jobs(session: Session, bid: str) -> list[str]:
    return sorted(jid for name in Bucket for jid in jobs_in(session, bid, name))


def finish_if_ended(session: Session, bid: str) -> Batch | None:
    """Move the batch to reporting if it is split and its last job has ended; None if it is not so.

    Whichever of two last jobs comes later sees the empty bucket, because it reads its own write.
    """
    stat = session.exists(paths.bucket(bid, Bucket.PROCESSING))
    if stat is None or stat.numChildren:
        return None
    batch = load(session, bid)
    if batch.status.status is not BatchState.PROCESSING or batch.status.total is None:
        return None
    try:
        return move(session, batch, Event.SUCCEED, lock=Lock.FREE)
    except (Stale, Busy):
        return None


def write(
    session: Session,
    batch: Batch,
    status: BatchStatus,
    others: Sequence[Operation],
    report: StatusReport | None = None,
) -> Batch:
    """Commit a new status with `others`, fenced by the version that was read; Stale or Busy otherwise."""
    path = paths.batch_status(batch.bid)
    version = fenced_under(
        session,
        Put(path, codec.encode(status), batch.version),
        others,
        lambda data: codec.decode(BatchStatus, data, path).op == status.op,
        paths.batch_lock(batch.bid),
    )
    return batch.model_copy(update={"status": status, "version": version, "report": report or batch.report})
