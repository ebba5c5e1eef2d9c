"""Shares of the processes: who works for whom, and which job of another submitter or collection is next.

Nothing is read unless tickets wait in Redis and jobs of several parties are under way.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from kazoo.exceptions import NoNodeError

from pipeline.records import JobStatus
from pipeline.states import JOB, JobState
from zkstate import codec, fairness, paths
from zkstate.errors import Missing
from zkstate.fairness import Load, Party
from zkstate.locks import ServerClock
from zkstate.reading import read_each
from zkstate.recovery import Live
from zkstate.session import Session

OVERDUE_AFTER = 10.0
"""Seconds that a ticket may wait in Redis before the shares are compared."""


@dataclass(frozen=True)
class Turn:
    """A job whose turn it is, and the job that gives up its process, if one can."""

    jid: str
    yielding: str | None


@dataclass(frozen=True)
class _Busy:
    """A job that a process works on; `since`: when the process took the job, by the server's clock."""

    jid: str
    state: JobState
    since: int
    party: Party


def next_turn(session: Session, live: Live, clock: ServerClock, share: int) -> Turn | None:
    """The job that has waited longest while another party has more than `share` percent of the processes.

    `live`: the tickets in Redis. None if no party has more than its share, or nobody else waits.
    """
    waiting = sorted({name for name, _ in live if paths.is_job(name)})
    if not waiting or len(fairness.open_batches(session)) < 2:
        return None
    late = _late(session, waiting, clock)
    if not late:
        return None
    busy = _busy(session, frozenset(waiting))
    load, most = Load(job.party for job in busy), max(1, len(busy) * share // 100)
    parties = fairness.of_jobs(session, late)
    for jid in late:
        others = [job for job in busy if jid in parties and _goes_first(parties[jid], job.party, load, most)]
        if others:
            downloads = [job for job in others if job.state is JobState.DOWNLOADING]
            longest = min(downloads, key=lambda job: job.since, default=None)
            return Turn(jid, longest.jid if longest else None)
    return None


def _goes_first(one: Party, other: Party, load: Load, most: int) -> bool:
    """True if the other's collection or submitter has more than `most` processes, and this one's fewer."""
    pairs = (
        (one.collection, other.collection, load.collections),
        (one.submitter, other.submitter, load.submitters),
    )
    return any(theirs and own != theirs and of[theirs] > most > of[own] for own, theirs, of in pairs)


def _late(session: Session, waiting: Sequence[str], clock: ServerClock) -> list[str]:
    """The jobs that have waited for OVERDUE_AFTER, the longest first."""
    read = read_each(session, waiting, paths.job_status, partial(codec.decode, JobStatus))
    written = sorted((clock.written_ms(stat), jid) for jid, _, stat in read)
    return [jid for at, jid in written if clock.now_ms() - at > OVERDUE_AFTER * 1000]


def _busy(session: Session, waiting: frozenset[str]) -> list[_Busy]:
    """The jobs with a lock, in the states that occupy a place."""
    states = JOB.where(lambda facts: facts.occupies_place)
    listed = [
        (state, jid)
        for state in states
        for _, jid in map(paths.read_queue_entry, session.children(paths.queue(state)))
        if jid not in waiting
    ]
    locks = session.exists_many([paths.job_lock(jid) for _, jid in listed])
    locked = [(state, jid, lock.ctime) for (state, jid), lock in zip(listed, locks, strict=True) if lock]
    parties = fairness.of_jobs(session, [jid for _, jid, _ in locked])
    return [_Busy(jid, state, since, parties[jid]) for state, jid, since in locked if jid in parties]


def ask_to_yield(session: Session, jid: str) -> None:
    """Ask the attempt at a job to end if a later one can continue its work: its guard sees the write."""
    path = paths.job_lock(jid)
    with suppress(Missing, NoNodeError):
        data, _ = session.get(path)
        session.ask(session.zk.set_async, path, data)
