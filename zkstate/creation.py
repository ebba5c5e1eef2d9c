"""The jobs of a batch are created in chunks: a chunk and the batch's progress are one transaction.

A crash between two chunks leaves `created` jobs; the next attempt continues from there, so that no job
is lost and none is created twice.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.http.urls import redact_url
from pipeline.manifests.split import Plan, PlannedJob
from pipeline.names import quote_name
from pipeline.outcome import content
from pipeline.records import (
    DEFAULT_PRIORITY,
    Batch,
    HistoryEntry,
    Identifiers,
    JobConfiguration,
    JobStatus,
)
from pipeline.states import JOB, Bucket
from zkstate import codec, paths, record
from zkstate.errors import Contended
from zkstate.record import token
from zkstate.session import Session
from zkstate.transaction import TRANSACTION_LIMIT, Create, Operation, Put, Role, size_of

CHUNK = 40
"""Jobs in one transaction, ten operations each; ZooKeeper serves no other client while it applies one."""

CHUNK_BYTES = TRANSACTION_LIMIT // 4
"""Bytes after which a transaction gets no further job."""

JOB_LIMIT = TRANSACTION_LIMIT // 2
"""Bytes of one new job."""

_COUNTER = paths.counter("job")


def create_jobs(
    session: Session, batch: Batch, plan: Plan, working: Path, by: str, attempt: Attempt
) -> Iterator[Batch]:
    """Create the jobs of `plan` that do not exist yet; yields the batch as each chunk leaves it."""
    if batch.status.plan_sha256 not in (None, plan.sha256):
        raise content(
            f"the manifest {redact_url(batch.submission.payload_url)} changed while it was being split, "
            f"after {batch.status.created} jobs were created from it: submit the rest as a new batch"
        )
    session.ensure_node(_COUNTER, codec.encode_int(0))
    while batch.status.created < len(plan.jobs):
        attempt.check()
        batch = _create_chunk(session, batch, plan, working, by)
        yield batch


def _create_chunk(session: Session, batch: Batch, plan: Plan, working: Path, by: str) -> Batch:
    while True:
        data, stat = session.get(_COUNTER)
        last = codec.decode_int(data, _COUNTER)
        number, operations = _next_jobs(session, batch, plan, last, working, by)
        count = Put(_COUNTER, codec.encode_int(last + number), stat.version, Role.SHARED)
        created = batch.status.created + number
        changes = {"created": created, "plan_sha256": plan.sha256, "op": token()}
        try:
            return record.write(session, batch, batch.status.model_copy(update=changes), (count, *operations))
        except Contended:
            continue  # another batch created jobs in between


def _next_jobs(
    session: Session, batch: Batch, plan: Plan, last: int, working: Path, by: str
) -> tuple[int, list[Operation]]:
    """As many of the next jobs as fit into a transaction: their number, and their creation."""
    start = batch.status.created
    number = size = 0
    operations: list[Operation] = []
    submission, folder = batch.submission, str(working / batch.bid)
    common = dict(submission) | {"submission_type": submission.type, "batch_id": batch.bid}
    for number, planned in enumerate(plan.jobs[start : start + CHUNK], 1):
        jid = f"jid{last + number:010d}"
        own = {"key": token()} | dict(planned) | {"working_dir": f"{folder}/{jid}"}
        configuration = JobConfiguration.model_validate(common | own)
        job = _job(jid, configuration, planned, by)
        size += _size(session, planned, job)
        operations += job
        if size > CHUNK_BYTES:
            break
    return number, operations


def _size(session: Session, planned: PlannedJob, job: Sequence[Operation]) -> int:
    size = size_of(session, job)
    if size > JOB_LIMIT:
        raise content(
            f"{quote_name(planned.payload_name)} has {size:,} bytes of descriptions and identifiers; the "
            f"record keeps {JOB_LIMIT:,} bytes of an object: shorten them, or put the description into the "
            "object's own metadata files"
        )
    return size


def _job(jid: str, configuration: JobConfiguration, planned: PlannedJob, by: str) -> Sequence[Operation]:
    bid = configuration.batch_id
    priority = DEFAULT_PRIORITY if planned.priority is None else planned.priority
    identifiers = Identifiers(primary_id=planned.primary_id, local_id=planned.local_id)
    status = JobStatus(status=JOB.initial, priority=priority, op=token())
    history = (HistoryEntry(state=JOB.initial, by=by),)
    return (
        Create(paths.job(jid)),
        Create(paths.job_bid(jid), bid.encode()),
        Create(paths.configuration(jid), codec.encode(configuration)),
        Create(paths.identifiers(jid), codec.encode(identifiers)),
        Create(paths.job_status(jid), codec.encode(status)),
        Create(paths.priority(jid), codec.encode_int(priority)),
        Create(paths.space_needed(jid), codec.encode_int(0)),
        Create(paths.history(jid), codec.encode_history(history)),
        Create(paths.queue_entry(JOB.initial, priority, jid)),
        Create(paths.batch_entry(bid, Bucket.PROCESSING, jid)),
    )
