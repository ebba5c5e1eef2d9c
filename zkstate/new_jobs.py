"""The nodes of new jobs, composed: what jobs of one transaction have in common is encoded once."""

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

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
from zkstate import codec, paths
from zkstate.record import token
from zkstate.session import Session
from zkstate.transaction import TRANSACTION_LIMIT, Create, size_of

CHUNK = 40
"""Jobs in one transaction, ten operations each; ZooKeeper serves no other client while it applies one."""

CHUNK_BYTES = TRANSACTION_LIMIT // 4
"""Bytes after which a transaction gets no further job."""

JOB_LIMIT = TRANSACTION_LIMIT // 2
"""Bytes of one new job."""


def compose(
    session: Session, batch: Batch, plan: Plan, last: int, working: Path, by: str
) -> tuple[list[str], list[Create]]:
    """As many of the next jobs as fit into a transaction: their ids, and their creation.

    `last`: the number of the job that was created last.
    """
    start = batch.status.created
    size = beside = 0  # bytes; the paths of all jobs are equally long
    jids: list[str] = []
    operations: list[Create] = []
    submission, folder = batch.submission, str(working / batch.bid)
    common = dict(submission) | {"submission_type": submission.type, "batch_id": batch.bid}
    at_first = cache(partial(_at_first, by))
    for number, planned in enumerate(plan.jobs[start : start + CHUNK], 1):
        jid = f"jid{last + number:010d}"
        own = {"key": token()} | dict(planned) | {"working_dir": f"{folder}/{jid}"}
        configuration = JobConfiguration.model_validate(common | own)
        priority = DEFAULT_PRIORITY if planned.priority is None else planned.priority
        job = _job(jid, configuration, planned, priority, at_first(priority))
        beside = beside or size_of(session, job) - _data(job)
        size += _checked(beside + _data(job), planned)
        jids.append(jid)
        operations += job
        if size > CHUNK_BYTES:
            break
    return jids, operations


def _data(job: Sequence[Create]) -> int:
    return sum([len(node.data) for node in job])


def _checked(size: int, planned: PlannedJob) -> int:
    if size > JOB_LIMIT:
        raise content(
            f"{quote_name(planned.payload_name)} has {size:,} bytes of descriptions and identifiers; the "
            f"record keeps {JOB_LIMIT:,} bytes of an object: shorten them, or put the description into the "
            "object's own metadata files"
        )
    return size


class _AtFirst(NamedTuple):
    """What the records of new jobs have in common, as JSON."""

    status: bytes
    history: bytes
    priority: bytes
    space_needed: bytes
    unnamed: bytes
    """The identifiers of an object that has none."""


def _at_first(by: str, priority: int) -> _AtFirst:
    """One token for all jobs of a transaction: it settles whether this write was the last one of a node."""
    return _AtFirst(
        status=codec.encode(JobStatus(status=JOB.initial, priority=priority, op=token())),
        history=codec.encode_history((HistoryEntry(state=JOB.initial, by=by),)),
        priority=codec.encode_int(priority),
        space_needed=codec.encode_int(0),
        unnamed=codec.encode(Identifiers()),
    )


def _job(
    jid: str, configuration: JobConfiguration, planned: PlannedJob, priority: int, first: _AtFirst
) -> Sequence[Create]:
    bid, identifiers = configuration.batch_id, first.unnamed
    if planned.primary_id is not None or planned.local_id:
        identifiers = codec.encode(Identifiers(primary_id=planned.primary_id, local_id=planned.local_id))
    return (
        Create(paths.job(jid)),
        Create(paths.job_bid(jid), bid.encode()),
        Create(paths.configuration(jid), codec.encode_validated(configuration)),
        Create(paths.identifiers(jid), identifiers),
        Create(paths.job_status(jid), first.status),
        Create(paths.priority(jid), first.priority),
        Create(paths.space_needed(jid), first.space_needed),
        Create(paths.history(jid), first.history),
        Create(paths.queue_entry(JOB.initial, priority, jid)),
        Create(paths.batch_entry(bid, Bucket.PROCESSING, jid)),
    )
