"""The jobs of a batch are created in chunks: a chunk and the batch's progress are one transaction.

A crash between two chunks leaves `created` jobs; the next attempt continues from there, so that no job
is lost and none is created twice.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.manifests.split import Plan, PlannedJob
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
from zkstate import codec, counters, paths, record
from zkstate.errors import Contended
from zkstate.record import token
from zkstate.session import Session
from zkstate.transaction import Create, Operation, Put, Role

CHUNK = 40
"""Jobs in one transaction, ten operations each; ZooKeeper serves no other client while it applies one."""

_COUNTER = paths.counter("job")


def create_jobs(
    session: Session, batch: Batch, plan: Plan, working: Path, by: str, attempt: Attempt
) -> Iterator[Batch]:
    """Create the jobs of `plan` that do not exist yet; yields the batch as each chunk leaves it."""
    if batch.status.plan_sha256 not in (None, plan.sha256):
        raise content(
            f"the manifest {batch.submission.payload_url} changed while it was being split, after "
            f"{batch.status.created} jobs were created from it: submit the rest as a new batch"
        )
    while batch.status.created < len(plan.jobs):
        attempt.check()
        batch = _create_chunk(session, batch, plan, working, by)
        yield batch


def last_number(session: Session) -> int:
    """The highest job number that was assigned so far; 0 if there was none."""
    node = session.get_many([_COUNTER])[0]
    return codec.decode_int(node[0], _COUNTER) if node else 0


def _create_chunk(session: Session, batch: Batch, plan: Plan, working: Path, by: str) -> Batch:
    start = batch.status.created
    chunk = plan.jobs[start : start + CHUNK]
    status = batch.status.model_copy(
        update={"created": start + len(chunk), "plan_sha256": plan.sha256, "op": token()}
    )
    counters.ensure_node(session, _COUNTER, codec.encode_int(0))
    while True:
        data, stat = session.get(_COUNTER)
        last = codec.decode_int(data, _COUNTER)
        count = Put(_COUNTER, codec.encode_int(last + len(chunk)), stat.version, Role.SHARED)
        operations: list[Operation] = [count]
        for number, planned in enumerate(chunk, last + 1):
            operations += _job(f"jid{number:010d}", batch, planned, working, by)
        try:
            return record.write(session, batch, status, operations)
        except Contended:
            continue  # another batch created jobs in between


def _job(jid: str, batch: Batch, planned: PlannedJob, working: Path, by: str) -> Sequence[Operation]:
    submission = batch.submission
    priority = DEFAULT_PRIORITY if planned.priority is None else planned.priority
    configuration = JobConfiguration(
        batch_id=batch.bid,
        profile_name=submission.profile_name,
        submitter=submission.submitter,
        payload_url=planned.payload_url,
        payload_type=planned.payload_type,
        payload_name=planned.payload_name,
        response_type=submission.response_type,
        submission_mode=submission.submission_mode,
        working_dir=str(working / batch.bid / jid),
        digest=planned.digest,
        size=planned.size,
        erc_who=planned.erc_who,
        erc_what=planned.erc_what,
        erc_when=planned.erc_when,
        erc_where=submission.erc_where,
        dublin_core=submission.dublin_core,
        notification=submission.notification,
        note=submission.note,
        submission_type=submission.type,
        submitted_at=submission.submitted_at,
    )
    identifiers = Identifiers(primary_id=planned.primary_id, local_id=planned.local_id)
    status = JobStatus(status=JOB.initial, priority=priority, op=token())
    history = (HistoryEntry(state=JOB.initial, by=by),)
    return (
        Create(paths.job(jid)),
        Create(paths.job_bid(jid), batch.bid.encode()),
        Create(paths.configuration(jid), codec.encode(configuration)),
        Create(paths.identifiers(jid), codec.encode(identifiers)),
        Create(paths.job_status(jid), codec.encode(status)),
        Create(paths.priority(jid), codec.encode_int(priority)),
        Create(paths.space_needed(jid), codec.encode_int(0)),
        Create(paths.history(jid), codec.encode_history(history)),
        Create(paths.queue_entry(JOB.initial, priority, jid)),
        Create(paths.batch_entry(batch.bid, Bucket.PROCESSING, jid)),
    )
