"""Checks whether the record is consistent: the command and the tests use the same code.

On a running system, a finding may be a move in progress, since the nodes are not all read at one moment:
`audit` reads the record twice and reports the findings of both reads.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipeline.records import Batch, BatchStatus, Entry, Job, Record
from pipeline.states import BATCH, JOB, QUEUED, BatchState, Bucket, Event, JobState, Machine, S, bucket
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Missing
from zkstate.record import batches, jobs, space


class Finding(Record, frozen=True):
    """One inconsistency: the path, the problem, and its meaning."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True)
class Tree:
    """The whole record, as it was read at nearly one moment."""

    jobs: dict[str, Job]
    queues: dict[JobState, dict[str, int]]
    batches: dict[str, Batch]
    buckets: dict[str, dict[Bucket, frozenset[str]]]
    open_batches: frozenset[str]
    locks: frozenset[str]
    broken: tuple[Finding, ...]


def audit(session: Session) -> tuple[Finding, ...]:
    first = look(session)
    if not first:
        return ()
    again = set(look(session))
    return tuple(finding for finding in first if finding in again)


def look(session: Session) -> tuple[Finding, ...]:
    tree = read(session)
    return (
        *tree.broken,
        *_jobs(tree),
        *_queues(tree),
        *_batches(tree),
        *_space(session, tree),
        *_waiting(session, tree),
    )


def _waiting(session: Session, tree: Tree) -> Iterator[Finding]:
    """Only jobs that wait may be listed as waiting: a listed job takes no place."""
    listed = set(session.children(paths.WAITING))
    waits = {jid for jid, job in tree.jobs.items() if job.status.waits_for and job.status.waits_for.listed}
    for jid in sorted(listed - waits):
        yield Finding(path=paths.waiting(jid), problem="lists a job that does not wait, and takes a place")
    for jid in sorted(waits - listed):
        yield Finding(path=paths.waiting(jid), problem="is missing: the job waits and takes a place")


def read(session: Session) -> Tree:
    broken: list[Finding] = []
    all_jobs: dict[str, Job] = {}
    locks = set()
    for jid in session.children(paths.JOBS):
        try:
            all_jobs[jid] = jobs.load(session, jid)
        except (Corrupt, Missing) as error:
            broken.append(Finding(path=paths.job(jid), problem=str(error)))
        if session.exists(paths.job_lock(jid)) is not None:
            locks.add(jid)
    queues: dict[JobState, dict[str, int]] = {}
    for state in QUEUED:
        names = session.children(paths.queue(state))
        entries = tuple(paths.read_queue_entries(names))
        queues[state] = {jid: pp for pp, jid in entries}
        own = {paths.queue_entry(state, pp, jid) for pp, jid in entries}
        broken += _strays(sorted({f"{paths.queue(state)}/{name}" for name in names} - own))
    folders = (paths.OPEN_BATCHES, paths.WAITING, paths.CALLBACKS)
    for folder, names in zip(folders, session.children_of_many(folders), strict=True):
        foreign = sorted({*names} - {*paths.owned(folder, names)})
        broken += _strays(f"{folder}/{name}" for name in foreign)
    all_batches: dict[str, Batch] = {}
    buckets = {}
    for bid in session.children(paths.BATCHES):
        try:
            all_batches[bid] = batches.load(session, bid)
        except (Corrupt, Missing) as error:
            broken.append(Finding(path=paths.batch(bid), problem=str(error)))
        if session.exists(paths.buckets(bid)) is not None:
            buckets[bid] = {b: frozenset(session.children(paths.bucket(bid, b))) for b in Bucket}
    return Tree(
        all_jobs,
        queues,
        all_batches,
        buckets,
        frozenset(session.children(paths.OPEN_BATCHES)),
        frozenset(locks),
        tuple(broken),
    )


def _strays(nodes: Iterable[str]) -> Iterator[Finding]:
    for path in nodes:
        yield Finding(path=path, problem="is not a node of arkline, which leaves it alone: delete it")


def _jobs(tree: Tree) -> Iterator[Finding]:
    for jid, job in tree.jobs.items():
        state = job.status.status
        places = [s for s, entries in tree.queues.items() if jid in entries]
        cleaned = state is JobState.COMPLETED and not places
        if places != [state] and not cleaned:
            where = ", ".join(places) or "no queue"
            yield Finding(path=paths.job_status(jid), problem=f"is {state}, but is in {where}")
        for place in places:
            if tree.queues[place][jid] != job.status.priority:
                entry = paths.queue_entry(place, tree.queues[place][jid], jid)
                yield Finding(path=entry, problem=f"the job's priority is {job.status.priority}")
        if jid in tree.locks and state not in JOB.working():
            yield Finding(path=paths.job_lock(jid), problem=f"a {state} job is locked")
        yield from _bucket_of(tree, job)
        yield from _legal(job)


def _bucket_of(tree: Tree, job: Job) -> Iterator[Finding]:
    buckets = tree.buckets.get(job.bid)
    if buckets is None:
        yield Finding(path=paths.job_bid(job.jid), problem=f"its batch {job.bid} has no such job")
        return
    actual = [name for name, jids in buckets.items() if job.jid in jids]
    expected = bucket(job.status.status)
    if actual != [expected]:
        where = ", ".join(actual) or "no bucket"
        problem = f"{job.status.status} belongs in {expected} of {job.bid}, but is in {where}"
        yield Finding(path=paths.job_status(job.jid), problem=problem)


def _legal(job: Job) -> Iterator[Finding]:
    path = paths.history(job.jid)
    first = job.history[0] if job.history else None
    if first is None or (first.state is not JOB.initial and first.damaged is None):
        yield Finding(path=path, problem=f"does not begin with {JOB.initial}")
        return
    yield from _legal_moves(path, JOB, job.history, job.status.status)


def _legal_moves(path: str, machine: Machine[S], history: Sequence[Entry[S]], status: S) -> Iterator[Finding]:
    """Check that the history is a path through the tables of its time that ends in the current state.

    A repair may have dropped unreadable entries: the path begins with the last repair.
    """
    repaired = max((number for number, entry in enumerate(history) if entry.damaged is not None), default=0)
    history = history[repaired:]
    for before, entry in pairwise(history):
        possible = machine.targets(before.state, entry.event, entry.table) if entry.event else {before.state}
        if entry.state not in possible:
            problem = f"{entry.event} cannot lead from {before.state} to {entry.state}"
            yield Finding(path=path, problem=problem)
    if history[-1].state is not status:
        problem = f"ends with {history[-1].state}, but the {machine.name} is {status}"
        yield Finding(path=path, problem=problem)


def _queues(tree: Tree) -> Iterator[Finding]:
    damaged = {finding.path for finding in tree.broken}
    for state, entries in tree.queues.items():
        for jid, pp in entries.items():
            if jid not in tree.jobs and paths.job(jid) not in damaged:
                yield Finding(path=paths.queue_entry(state, pp, jid), problem="there is no such job")


def _batches(tree: Tree) -> Iterator[Finding]:
    for bid, batch in tree.batches.items():
        status = batch.status
        should_be_open = BATCH.facts[status.status].open
        if should_be_open != (bid in tree.open_batches):
            fault = "is missing" if should_be_open else "should not be there"
            yield Finding(path=paths.open_batch(bid), problem=f"{fault}: the batch is {status.status}")
        if batch.history:  # release 0.1.0 wrote none
            yield from _legal_moves(paths.batch_history(bid), BATCH, batch.history, status.status)
        unsplit = not BATCH.facts[status.status].split
        if unsplit == (bid in tree.buckets) and status.status is not BatchState.DELETED:
            fault = "should not be there" if unsplit else "is missing"
            yield Finding(path=paths.buckets(bid), problem=f"{fault}: the batch is {status.status}")
        yield from _entries(tree, bid, status)
    for bid in tree.open_batches - set(tree.batches):
        yield Finding(path=paths.open_batch(bid), problem="there is no such batch")


def _entries(tree: Tree, bid: str, status: BatchStatus) -> Iterator[Finding]:
    buckets = tree.buckets.get(bid, {})
    seen = Counter(jid for jids in buckets.values() for jid in jids)
    for jid, times in seen.items():
        if times > 1:
            yield Finding(path=paths.buckets(bid), problem=f"{jid} is in {times} buckets")
    for name, jids in buckets.items():
        for jid in jids:
            if name is not Bucket.DELETED and jid not in tree.jobs:
                yield Finding(path=paths.batch_entry(bid, name, jid), problem="there is no such job")
    if status.status is BatchState.DELETED:
        return
    if buckets and len(seen) != status.created:
        problem = f"has {len(seen)} jobs, but its status says {status.created}"
        yield Finding(path=paths.buckets(bid), problem=problem)
    # a failed job may be resumed at any time, also while its batch is reported
    if status.status is BatchState.COMPLETED and (
        buckets.get(Bucket.FAILED) or buckets.get(Bucket.PROCESSING)
    ):
        yield Finding(path=paths.batch_status(bid), problem="completed with jobs that did not complete")


def _space(session: Session, tree: Tree) -> Iterator[Finding]:
    held = space.reservations(session)
    try:
        total = space.promised(session).bytes
    except Corrupt as damage:
        yield Finding(path=paths.SPACE, problem=str(damage))
        return
    if total != sum(held.values()):
        problem = (
            f"says {total} bytes are reserved, but the reservations of jobs sum up to {sum(held.values())}"
        )
        yield Finding(path=paths.SPACE, problem=problem)
    for jid, size in held.items():
        job = tree.jobs.get(jid)
        if job is None:
            yield Finding(path=paths.reservation(jid), problem="there is no such job")
        elif not _may_hold_space(job, tree):
            yield Finding(
                path=paths.reservation(jid), problem=f"a {job.status.status} job holds {size} bytes"
            )
        elif size != job.space_needed:
            problem = f"holds {size} bytes, but the job needs {job.space_needed}"
            yield Finding(path=paths.reservation(jid), problem=problem)


def _may_hold_space(job: Job, tree: Tree) -> bool:
    if job.status.status is JobState.COMPLETED:
        return job.jid in tree.queues[JobState.COMPLETED]
    granted = (Event.SUCCEED, JobState.DOWNLOADING)
    return any((entry.event, entry.state) == granted or entry.damaged is not None for entry in job.history)
