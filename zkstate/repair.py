"""A job whose nodes cannot be read gets readable ones: from its other nodes, its queue entry and its history.

Rule: everything is replaced in one transaction, fenced by the version of the status node; its history entry
keeps the damaged bytes.
"""

from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import UsageRefused
from pipeline.records import HistoryEntry, Identifiers, Job, JobConfiguration, JobStatus, Submission
from pipeline.states import JOB, Bucket, JobState, bucket
from zkstate import codec, ownership, paths, rebuild, record, salvage, space
from zkstate.damage import Nodes, Repairer, entry_facts, read_nodes
from zkstate.errors import Contended, Corrupt, Missing
from zkstate.rebuild import JobSurroundings
from zkstate.session import Session
from zkstate.transaction import Create, Delete, Operation

PRIORITIES = range(100)


def repair_job(session: Session, jid: str, working: Path, repairer: Repairer) -> Job:
    """The job with readable nodes, in the state in which it was; UsageRefused if every node can be read.

    Stale if the job changes meanwhile.
    """
    while True:
        try:
            return _repair_job(session, jid, working, repairer)
        except Contended:
            continue  # other jobs changed the sum of reserved bytes


def _repair_job(session: Session, jid: str, working: Path, repairer: Repairer) -> Job:
    if session.exists(paths.job(jid)) is None:
        raise Missing(f"there is no job {jid}")
    session.ensure_node(paths.job_status(jid))  # a status that is gone is as good as an empty one
    stat = session.exists(paths.job_status(jid))
    version = stat.version if stat else 0
    newest = paths.history(jid)
    parts = tuple(f"{newest}/{name}" for name in sorted(session.children(newest)))
    fixed = (paths.job_bid, paths.configuration, paths.identifiers, paths.job_status)
    numbers = (paths.priority, paths.space_needed)
    nodes = read_nodes(session, [*(path(jid) for path in (*fixed, *numbers)), *parts, newest])
    queued, queue_entries = _queue_entries(session, jid)
    released = space.release_unreadable(session, jid)
    histories = [nodes.entries(path, HistoryEntry) for path in (*parts, newest)]
    bid = _batch_of(session, jid, nodes)
    around = JobSurroundings(
        bid=bid,
        profile_name=_profile_name(session, bid),
        working_dir=str(working / bid / jid),
        version=version,
        queued=queued,
        history=tuple(entry for part in histories for entry in part),
    )
    configuration, identifiers, resumable = _values(jid, nodes, around)
    status = nodes.read(JobStatus, path := paths.job_status(jid))
    if status is None:
        nodes.note(path)
        status = rebuild.job_status(nodes.data[path] or b"", around, resumable=resumable)
    else:
        lost = {} if resumable else rebuild.unresumable(status.status)
        status = record.next_epoch(status, {"dispatched_at": status.dispatched_at, **lost})
    needed = _numbers(session, jid, nodes, status)
    nodes.repair_histories(HistoryEntry, parts, newest, histories, required=True)
    if not (nodes.damaged or released):
        raise UsageRefused(f"every znode of {jid} can be read: there is nothing to repair")
    entry = HistoryEntry(state=status.status, table=JOB.version, **entry_facts(nodes.damaged, repairer))
    put = nodes.put(newest, codec.encode_history((*histories[-1], entry)))
    job = Job(
        jid=jid,
        bid=bid,
        configuration=configuration,
        identifiers=identifiers,
        status=status,
        version=version,
        priority=status.priority,
        space_needed=needed,
        history=(*around.history, entry),
        history_parts=tuple(map(len, histories[:-1])),
    )
    places = (*_requeue(job, queue_entries), *_rebucket(session, job), *_leave_waiting(session, jid))
    return record.write(session, job, status, (*nodes.puts, put, *places, *released))


def _values(jid: str, nodes: Nodes, around: JobSurroundings) -> tuple[JobConfiguration, Identifiers, bool]:
    """Configuration and identifiers, and whether they are as they were, so that the job may be resumed."""
    if nodes.data[path := paths.job_bid(jid)] != around.bid.encode():
        nodes.replace(path, around.bid.encode())
    resumable = True
    configuration = nodes.read(JobConfiguration, path := paths.configuration(jid))
    if configuration is None or configuration.batch_id != around.bid:
        configuration = rebuild.configuration(nodes.data[path] or b"", around)
        nodes.replace(path, codec.encode(configuration))
        resumable = False
    identifiers = nodes.read(Identifiers, path := paths.identifiers(jid))
    if identifiers is None:
        identifiers = rebuild.identifiers(nodes.data[path] or b"")
        nodes.replace(path, codec.encode(identifiers))
        resumable = False
    return configuration, identifiers, resumable


def _numbers(session: Session, jid: str, nodes: Nodes, status: JobStatus) -> int:
    """Replace what is no number; the bytes that the job needs."""
    if nodes.read(int, path := paths.priority(jid)) is None:
        nodes.replace(path, codec.encode_int(status.priority))
    needed = nodes.read(int, path := paths.space_needed(jid))
    if needed is None:
        needed = space.reservations(session).get(jid, 0)
        nodes.replace(path, codec.encode_int(needed))
    return int(needed)


def _queue_entries(session: Session, jid: str) -> tuple[tuple[JobState, int] | None, list[str]]:
    """The queue that lists the job and its priority there, and all its entries: one round of reads."""
    states = JOB.where(lambda facts: facts.queued)
    places = [(state, pp) for state in states for pp in PRIORITIES]
    names = [paths.queue_entry(state, pp, jid) for state, pp in places]
    present = [
        (place, name)
        for place, name, stat in zip(places, names, session.exists_many(names), strict=True)
        if stat is not None
    ]
    return (present[0][0] if present else None), [name for _, name in present]


def _requeue(job: Job, entries: Sequence[str]) -> list[Operation]:
    """Exactly one entry; a completed job that was cleaned up has none."""
    right = paths.queue_entry(job.status.status, job.status.priority, job.jid)
    if not entries and job.status.status is JobState.COMPLETED:
        return []
    wrong: list[Operation] = [Delete(entry) for entry in entries if entry != right]
    return wrong if right in entries else [*wrong, Create(right)]


def _rebucket(session: Session, job: Job) -> list[Operation]:
    right = bucket(job.status.status)
    stats = session.exists_many([paths.batch_entry(job.bid, name, job.jid) for name in Bucket])
    present = [name for name, stat in zip(Bucket, stats, strict=True) if stat is not None]
    wrong: list[Operation] = [
        Delete(paths.batch_entry(job.bid, name, job.jid)) for name in present if name is not right
    ]
    return wrong if right in present else [*wrong, Create(paths.batch_entry(job.bid, right, job.jid))]


def _leave_waiting(session: Session, jid: str) -> list[Operation]:
    path = paths.waiting(jid)
    return [Delete(path)] if session.exists(path) is not None else []


def _batch_of(session: Session, jid: str, nodes: Nodes) -> str:
    """The batch that lists the job: the named one, else whichever does."""
    named = (nodes.data[paths.job_bid(jid)] or b"").decode("ascii", "replace")
    every = ownership.children(session, paths.BATCHES)
    for bid in ([named] if named in every else []) + every:
        entries = [paths.batch_entry(bid, name, jid) for name in Bucket]
        if any(stat is not None for stat in session.exists_many(entries)):
            return bid
    raise Corrupt(f"no batch lists {jid}, and its own znodes name none that exists: restore the record")


def _profile_name(session: Session, bid: str) -> str:
    node = session.find(paths.submission(bid))
    lost = {"payload_url": rebuild.LOST, "type": "file", "profile_name": rebuild.LOST}
    return salvage.fields(Submission, node[0] if node else b"", lost).profile_name
