"""The nodes of new jobs, composed: what jobs of one transaction have in common is encoded once."""

from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from pipeline.manifests.planned_jobs import Plan, PlannedJob
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
from zkstate.direct.requests import NodeTemplate
from zkstate.record import token
from zkstate.session import Session
from zkstate.transaction import TRANSACTION_LIMIT, CreateAll, template

CHUNK = 40
"""Jobs in one transaction, ten operations each; ZooKeeper serves no other client while it applies one."""

CHUNK_BYTES = TRANSACTION_LIMIT // 4
"""Bytes after which a transaction gets no further job."""

JOB_LIMIT = TRANSACTION_LIMIT // 2
"""Bytes of one new job."""


def compose(
    session: Session, batch: Batch, plan: Plan, last: int, working: Path, by: str
) -> tuple[list[str], list[CreateAll]]:
    """As many of the next jobs as fit into a transaction: their ids, and their creation.

    `last`: the number of the job that was created last.
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
        )
    return size


class _AtFirst(NamedTuple):
    """What new jobs of one priority have in common."""

    template: NodeTemplate
    unnamed: bytes
    """The identifiers of an object that has none."""


def _at_first(session: Session, by: str, bid: str, priority: int, length: int) -> _AtFirst:
    """For ids of this length. The contents of configuration and identifiers are each job's own.

    One token for all jobs of a transaction: it settles whether this write was the last one of a node.
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
