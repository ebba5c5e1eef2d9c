"""The jobs of a batch are created in chunks: a chunk and the batch's progress are one transaction.

A crash between two chunks leaves `created` jobs; the next attempt continues from there, so that no job is
lost and none is created twice. Most chunks are sent before the answer to the previous one arrives. Such a
chunk requires that the previous one was applied: it checks the versions that the previous one leaves, and a
node that only that one creates.

The common part of the jobs of one transaction is encoded once.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pipeline import causes
from pipeline.attempt import Attempt
from pipeline.errors import ArklineError
from pipeline.http.urls import redact_url
from pipeline.manifests.split import Plan, PlannedJob
from pipeline.names import quote_name
from pipeline.outcome import content
from pipeline.records import (
    DEFAULT_PRIORITY,
    Batch,
    BatchStatus,
    HistoryEntry,
    Identifiers,
    JobConfiguration,
    JobStatus,
)
from pipeline.states import JOB, Bucket
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.connection.transaction import (
    TRANSACTION_LIMIT,
    Check,
    CreateAll,
    Operation,
    Put,
    Role,
    Sent,
    send,
    settle,
    template,
    token,
)
from zkstate.direct.requests import NodeTemplate
from zkstate.errors import Missing, Stale
from zkstate.record import record
from zkstate.record.node import uncontended

CHUNK = 40
"""Jobs in one transaction, ten operations each; ZooKeeper serves no other client while it applies one."""

CHUNK_BYTES = TRANSACTION_LIMIT // 4
"""Bytes after which no further job is added to a transaction."""

JOB_LIMIT = TRANSACTION_LIMIT // 2
"""Maximum bytes of one new job."""


def compose(
    session: Session, batch: Batch, plan: Plan, last: int, working: Path, by: str
) -> tuple[list[str], list[CreateAll]]:
    """Compose the creation of as many jobs as fit into a transaction; returns their ids and the operations.

    `last`: the number of the last job that was created.
    """
    start, size = batch.status.created, 0  # bytes
    jids: list[str] = []
    operations: list[CreateAll] = []
    submission, folder = batch.submission, str(working / batch.bid)
    common = dict(submission) | {"submission_type": submission.type, "batch_id": batch.bid}
    at_first = cache(partial(_at_first, session, by, batch.bid))
    for number, planned in enumerate(plan.jobs[start : start + CHUNK], 1):
        jid = f"jid{last + number:010d}"
        own = {"key": token(), "working_dir": f"{folder}/{jid}"}
        configuration = JobConfiguration.model_validate(common | vars(planned) | own)
        first = at_first(DEFAULT_PRIORITY if planned.priority is None else planned.priority, len(jid))
        contents = codec.encode_validated(configuration), _identifiers(planned, first)
        encoded = first.template.encode(jid.encode(), contents)
        size += _checked(len(encoded), planned)
        jids.append(jid)
        operations.append(CreateAll(first.template, jid, encoded))
        if size > CHUNK_BYTES:
            break
    return jids, operations


def _checked(size: int, planned: PlannedJob) -> int:
    if size > JOB_LIMIT:
        raise content(
            f"{quote_name(planned.payload_name)} has {size:,} bytes of descriptions and identifiers; the "
            f"record keeps {JOB_LIMIT:,} bytes of an object: shorten them, or put the description into the "
            "object's own metadata files"
        ).because(causes.LIMIT_EXCEEDED(limit=f"of {JOB_LIMIT:,} bytes for the record of an object"))
    return size


class _AtFirst(NamedTuple):
    """The common part of new jobs with one priority."""

    template: NodeTemplate
    unnamed: bytes
    """The identifiers of an object that has none."""


def _at_first(session: Session, by: str, bid: str, priority: int, length: int) -> _AtFirst:
    """The common part for ids of `length` bytes; configuration and identifiers differ between jobs.

    All jobs of a transaction have one token, which shows whether this write was the last one of a node.
    """
    status = codec.encode(JobStatus(status=JOB.initial, priority=priority, op=token()))
    history = codec.encode_history((HistoryEntry(state=JOB.initial, by=by),))
    jid = "j" * length
    nodes = (
        (paths.job(jid), b""),
        (paths.job_bid(jid), bid.encode()),
        (paths.configuration(jid), None),
        (paths.identifiers(jid), None),
        (paths.job_status(jid), status),
        (paths.priority(jid), codec.encode_int(priority)),
        (paths.space_needed(jid), codec.encode_int(0)),
        (paths.history(jid), history),
        (paths.queue_entry(JOB.initial, priority, jid), b""),
        (paths.batch_entry(bid, Bucket.PROCESSING, jid), b""),
    )
    return _AtFirst(template(session, jid, nodes), codec.encode(Identifiers()))


def _identifiers(planned: PlannedJob, first: _AtFirst) -> bytes:
    if planned.primary_id is None and not planned.local_id:
        return first.unnamed
    return codec.encode(Identifiers(primary_id=planned.primary_id, local_id=planned.local_id))


IN_FLIGHT = 2
"""Chunks in flight at a time: ZooKeeper applies one while the next is composed."""

WINDOW = 16
"""Chunks between two checks of the attempt and of the record: 640 jobs, some 0.3 s."""

_COUNTER = paths.counter("job")


class _Counter(NamedTuple):
    """The counter of jobs: the number of the last job, and the version of the counter's node."""

    last: int
    version: int


class _Chunk(NamedTuple):
    """One transaction, and the state that it leaves."""

    batch: Batch
    """The batch afterwards; its version is right if this transaction is the next write of its status."""
    counter: _Counter
    operations: tuple[Operation, ...]
    entry: str
    """A node that this transaction alone creates, whatever else writes the counter or the status."""


def create_jobs(
    session: Session, batch: Batch, plan: Plan, working: Path, by: str, attempt: Attempt
) -> Iterator[Batch]:
    """Create the jobs of `plan` that do not exist yet; yields the batch as each chunk leaves it."""
    if batch.status.plan_sha256 not in (None, plan.sha256):
        raise content(
            f"the manifest {redact_url(batch.submission.payload_url)} changed while it was being split, "
            f"after {batch.status.created} jobs were created from it: submit the rest as a new batch"
        )
    while batch.status.created < len(plan.jobs):
        attempt.check()
        # alone: this detects a lost or changed record, and a job that cannot be written
        batch = _create_chunk(session, batch, plan, working, by)
        yield batch
        attempt.check()
        for progressed in _create_in_flight(session, batch, plan, working, by):
            batch = progressed
            yield batch


def _create_chunk(session: Session, batch: Batch, plan: Plan, working: Path, by: str) -> Batch:
    def create() -> Batch:
        chunk = _next_chunk(session, batch, _read_counter(session), plan, working, by)
        return record.write(session, batch, chunk.batch.status, chunk.operations)

    return uncontended(create)  # another batch may create jobs in between


def _create_in_flight(session: Session, batch: Batch, plan: Plan, working: Path, by: str) -> Iterator[Batch]:
    """Create the next chunks; ends early after one that was not applied, or whose answer was lost."""
    window = sent(session, batch, plan, working, by)
    flights = deque(islice(window, IN_FLIGHT))
    while flights:
        chunk, answer = flights.popleft()
        try:
            settle(session, answer)
        except ArklineError:
            for _, later in flights:
                with suppress(ArklineError):
                    settle(session, later)
            yield _as_written(session, [batch, chunk.batch, *(later.batch for later, _ in flights)])
            return
        batch = chunk.batch
        yield batch
        flights.extend(islice(window, 1))


def sent(session: Session, batch: Batch, plan: Plan, working: Path, by: str) -> Iterator[tuple[_Chunk, Sent]]:
    """Compose and send the next chunks lazily, each as if those before it were applied."""
    if batch.status.created == len(plan.jobs):
        return
    connections, counter = session.connections, _read_counter(session)
    fence: tuple[Operation, ...] = ()
    for _ in range(WINDOW):
        # another record may answer behind another connection
        if batch.status.created == len(plan.jobs) or session.connections != connections:
            return
        try:
            chunk = _next_chunk(session, batch, counter, plan, working, by)
        except ArklineError:
            return  # raised again once the jobs before it exist
        path, data = paths.batch_status(batch.bid), codec.encode(chunk.batch.status)
        put = Put(path, data, batch.version, Role.FENCE)
        yield chunk, send(session, (put, *fence, *chunk.operations))
        batch, counter, fence = chunk.batch, chunk.counter, (Check(chunk.entry, 0, Role.SHARED),)


def _as_written(session: Session, known: Sequence[Batch]) -> Batch:
    """The batch among `known` that the record holds; Stale if another attempt has changed the batch."""
    path = paths.batch_status(known[0].bid)
    if not session.wait_connected(time.monotonic() + session.answer_timeout):
        raise session.unreachable()
    try:
        data, stat = session.get_synced(path)
    except Missing as gone:
        raise Stale(f"{path} has been deleted") from gone
    written = codec.decode(BatchStatus, data, path).op
    for batch in known:
        if (batch.status.op, batch.version) == (written, stat.version):
            return batch
    raise Stale(f"{path} has changed since it was read")


def _read_counter(session: Session) -> _Counter:
    if (node := session.find(_COUNTER)) is None:
        session.ensure_node(_COUNTER, codec.encode_int(0))
        node = session.get(_COUNTER)
    data, stat = node
    return _Counter(codec.decode_int(data, _COUNTER), stat.version)


def _next_chunk(
    session: Session, batch: Batch, counter: _Counter, plan: Plan, working: Path, by: str
) -> _Chunk:
    jids, operations = compose(session, batch, plan, counter.last, working, by)
    last = counter.last + len(jids)
    count = Put(_COUNTER, codec.encode_int(last), counter.version, Role.SHARED)
    created = batch.status.created + len(jids)
    changes = {"created": created, "plan_sha256": plan.sha256, "op": token()}
    status = batch.status.model_copy(update=changes)
    return _Chunk(
        batch.model_copy(update={"status": status, "version": batch.version + 1}),
        _Counter(last, counter.version + 1),
        (count, *operations),
        paths.batch_entry(batch.bid, Bucket.PROCESSING, jids[-1]),
    )
