"""The ids of jobs and batches, listed and counted without reading any of them.

Rule: the folders of the queue and of the batches say which jobs are in which state, so a list or a count
by state costs one listing for each folder. A listing of 100,000 names is some 2 MB and takes kazoo about
0.3 s; ZooKeeper's `jute.maxbuffer` limits requests, not the answers to a client.

The jobs of a batch as its report names them: three nodes of each, and the history of those that failed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from kazoo.protocol.states import ZnodeStat

from pipeline.notify.report.compose import JobOutcome
from pipeline.records import HistoryEntry, Identifiers, Job, JobConfiguration, JobStatus
from pipeline.states import JOB, Bucket, JobState
from zkstate import codec, paths
from zkstate.connection.session import Session
from zkstate.queue import queue
from zkstate.record import batches, histories, jobs
from zkstate.record.jobs import read_parts, require_complete


def all_jobs(session: Session) -> list[str]:
    """The ids of all jobs, oldest first."""
    return sorted(name for name in session.children(paths.JOBS) if paths.is_job(name))


def all_batches(session: Session) -> list[str]:
    """The ids of all batches, oldest first."""
    return sorted(session.children(paths.BATCHES))


def recorded(session: Session) -> int:
    """How many jobs the record has, ended ones included."""
    stat = session.exists(paths.JOBS)
    return stat.numChildren - 1 if stat else 0  # the queue is the other child


def open_batches(session: Session) -> int:
    """How many batches have work left."""
    stat = session.exists(paths.OPEN_BATCHES)
    return stat.numChildren if stat else 0


def in_queue(session: Session, state: JobState) -> list[str]:
    """The queue entries `PP-JID` of the jobs in `state`, most urgent first."""
    entries = paths.read_queue_entries(session.children(paths.queue(state)))
    return sorted(f"{priority:02d}-{jid}" for priority, jid in entries)


def _ids_in_queue(session: Session, state: JobState) -> set[str]:
    return {jid for _, jid in paths.read_queue_entries(session.children(paths.queue(state)))}


def completed_jobs(session: Session) -> list[str]:
    """The ids of all completed jobs, oldest first: they leave the queue when they are cleaned up."""
    jids = set(all_jobs(session))
    for state in JOB.where(lambda facts: facts.queued):
        if state is not JobState.COMPLETED:
            jids.difference_update(_ids_in_queue(session, state))
    return sorted(jids)


def recorded_jobs(session: Session) -> list[str]:
    """The ids of the jobs whose version is in the inventory: in a step after recording, or completed."""
    later = (_ids_in_queue(session, state) for state in JOB.working() if JOB.facts[state].recorded)
    return sorted({*completed_jobs(session), *chain.from_iterable(later)})


def failed_jobs(session: Session) -> list[str]:
    """The ids of all failed jobs, oldest first."""
    return sorted(_ids_in_queue(session, JobState.FAILED))


def of_batch(session: Session, bid: str, state: JobState | None = None) -> list[str]:
    """The ids of a batch's jobs, or of those in `state`, in their order."""
    if state is None:
        present = [bucket for bucket in Bucket if bucket is not Bucket.DELETED]
        return batches.jobs_in(session, bid, *present)
    jids = batches.jobs_in(session, bid, JOB.facts[state].bucket)
    if JOB.facts[state].ended:
        return jids
    in_state = _ids_in_queue(session, state)
    return [jid for jid in jids if jid in in_state]


def load_batch(session: Session, bid: str) -> Iterator[Job]:
    """The jobs of a batch that are not deleted, a page at a time; Missing or Corrupt if one cannot be read.

    A batch may have more jobs than the memory of a worker is meant for.
    """
    return jobs.load_many(session, of_batch(session, bid))


def states_of_batch(session: Session, bid: str, counts: dict[Bucket, int]) -> dict[JobState, int]:
    """How many jobs of a batch are in each state; `counts`: how many are in each of its buckets.

    The fullest queue is not listed: the jobs that are in no other queue count as being there.
    """
    numbers = Counter(
        {state: counts[JOB.facts[state].bucket] for state in JOB.where(lambda facts: facts.ended)}
    )
    queued = queue.counts(session)
    fullest, *others = sorted(
        JOB.where(lambda facts: not facts.ended), key=lambda state: queued[state], reverse=True
    )
    rest = counts[Bucket.PROCESSING]
    if rest and any(queued[state] for state in others):
        unended = set(session.children(paths.bucket(bid, Bucket.PROCESSING)))
        for state in others:
            numbers[state] = len(unended & _ids_in_queue(session, state)) if queued[state] else 0
            rest -= numbers[state]
    numbers[fullest] = max(rest, 0)
    return {state: numbers[state] for state in JobState if numbers[state]}


_PARTS = (paths.job_status, paths.configuration, paths.identifiers)


def outcomes_of_batch(session: Session, bid: str) -> Iterator[JobOutcome]:
    """The jobs that are not deleted, a page at a time; Missing or Corrupt if one cannot be read."""
    for jid, answers in read_parts(session, of_batch(session, bid), _PARTS):
        yield _outcome(session, jid, answers)


def _outcome(session: Session, jid: str, answers: Sequence[tuple[bytes, ZnodeStat] | None]) -> JobOutcome:
    places = [path(jid) for path in _PARTS]
    (status, _), (configuration, _), (identifiers, _) = require_complete(jid, places, answers)
    decoded = codec.decode(JobStatus, status, places[0])
    return JobOutcome(
        jid=jid,
        configuration=codec.decode(JobConfiguration, configuration, places[1]),
        identifiers=codec.decode(Identifiers, identifiers, places[2]),
        status=decoded,
        history=_history(session, jid) if decoded.status is JobState.FAILED else (),
    )


def _history(session: Session, jid: str) -> tuple[HistoryEntry, ...]:
    path = paths.history(jid)
    return histories.read(session, path, session.get(path), HistoryEntry)[0]
