"""Shares of the processes: who works for whom, and what of another submitter or collection is next.

Nothing is read unless tickets wait in Redis and several parties have open batches.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice

from kazoo.exceptions import NoNodeError

from pipeline.records import BatchStatus, FencedStatus, JobStatus
from pipeline.states import BATCH, JOB, JobState
from zkstate import paths
from zkstate.connection.locks import ServerClock
from zkstate.connection.session import Session
from zkstate.errors import Missing
from zkstate.queue import fairness
from zkstate.queue.fairness import Load, Party
from zkstate.queue.recovery import Live
from zkstate.record.reading import BATCHES, JOBS, Kind, ignore_damage, read_statuses
from zkstate.record.record import St

OVERDUE_AFTER = 10.0
"""Seconds that a ticket may wait in Redis before the shares are compared."""

YIELD_WITHIN = 60.0
"""Seconds in which a download that was asked to yield does so, if its source can continue it."""

IN_TURN = 8
"""Jobs and batches that go before those of others in one sweep: a process that becomes free does several."""


@dataclass(frozen=True)
class Turn:
    """The jobs and unsplit batches that go first now, and the attempt that gives up its process, if any."""

    names: tuple[str, ...]
    yielding: str | None
    anew: bool = False
    """The attempt at the one that yields ends, even if its work has to start anew."""


@dataclass(frozen=True)
class _Busy:
    """A job that a process works on, or a batch that a process splits."""

    name: str
    state: JobState | None
    """None: a batch."""
    since: int
    """When the process took the lock, by the server's clock."""
    asked_at: int | None
    """When the attempt was asked to yield; None if it was not."""
    party: Party


def next_turn(session: Session, live: Live, clock: ServerClock, share: int) -> Turn | None:
    """What has waited longest while another party has more than `share` percent of the processes.

    `live`: the tickets in Redis. None if no party has more than its share, or nobody else waits.
    """
    if not live or len(fairness.open_batches(session)) < 2:
        return None
    late = _late(session, live, clock)
    if not late:
        return None
    busy = list(_busy(session, clock))
    load, most = Load(one.party for one in busy), max(1, len(busy) * share // 100)
    parties = _parties(session, late)

    @cache
    def over(party: Party) -> list[_Busy]:
        return [one for one in busy if _goes_first(party, one.party, load, most)]

    names = tuple(islice((name for name in late if name in parties and over(parties[name])), IN_TURN))
    return _turn(names, over(parties[names[0]]), clock) if names else None


def _turn(names: tuple[str, ...], others: Sequence[_Busy], clock: ServerClock) -> Turn:
    """Who yields: for a batch a split, for a job a download; the other kind if there is none.

    Some processes may only split. A job waits for one of the others, so it takes one split after the other.
    """
    splits = [one for one in others if one.state is None]
    downloads = [one for one in others if one.state is JobState.DOWNLOADING]
    for_job = is_job(names[0])
    if splits and not (for_job and downloads):
        chosen = min(splits, key=_since) if for_job else max(splits, key=_since)
        return Turn(names, chosen.name, anew=True)
    return _turn_of_downloads(names, downloads, clock)


def _turn_of_downloads(names: tuple[str, ...], downloads: Sequence[_Busy], clock: ServerClock) -> Turn:
    """The longest download is asked first, because its source may be able to continue it.

    If a download that was asked is still there after YIELD_WITHIN, its source cannot continue it: the
    youngest one, which loses least, ends. So the older ones of a party end undisturbed.
    """
    asked = [one.asked_at for one in downloads if one.asked_at is not None]
    if asked and clock.now_ms() - min(asked) > YIELD_WITHIN * 1000:
        return Turn(names, max(downloads, key=_since).name, anew=True)
    longest = min((one for one in downloads if one.asked_at is None), key=_since, default=None)
    return Turn(names, longest.name if longest else None)


def _since(one: _Busy) -> int:
    return one.since


def is_job(name: str) -> bool:
    return name.startswith("jid")


def _goes_first(one: Party, other: Party, load: Load, most: int) -> bool:
    """True if the other's collection or submitter has more than `most` processes, and this one's fewer."""
    pairs = (
        (one.collection, other.collection, load.collections),
        (one.submitter, other.submitter, load.submitters),
    )
    return any(theirs and own != theirs and of[theirs] > most > of[own] for own, theirs, of in pairs)


def _late(session: Session, live: Live, clock: ServerClock) -> list[str]:
    """The jobs and unsplit batches that have waited for OVERDUE_AFTER without a lock, the longest first.

    A ticket of an earlier epoch stays in Redis until a worker takes it: nobody waits for it.
    """

    def waits(kind: Kind[St], names: list[str]) -> Iterator[tuple[int, str]]:
        read = read_statuses(session, names, kind, ignore_damage, clock.written_ms)
        for name, status, locked, written in read:
            if (name, status.epoch) in live and _is_next_for_a_process(status) and not locked:
                yield written, name

    names = sorted({name for name, _ in live})
    waiting = [
        *waits(JOBS, [name for name in names if is_job(name)]),
        *waits(BATCHES, [name for name in names if not is_job(name)]),
    ]
    return [name for at, name in sorted(waiting) if clock.now_ms() - at > OVERDUE_AFTER * 1000]


def _is_next_for_a_process(status: FencedStatus) -> bool:
    if isinstance(status, BatchStatus):
        return _is_unsplit(status)
    return isinstance(status, JobStatus) and status.status in JOB.working()


def _is_unsplit(status: BatchStatus) -> bool:
    return status.total is None and BATCH.facts[status.status].fetches


def _busy(session: Session, clock: ServerClock) -> Iterator[_Busy]:
    """The jobs with a lock, in the states that occupy a place, and the batches that are being split."""
    states = JOB.where(lambda facts: facts.occupies_place)
    queued = {
        jid: state
        for state in states
        for _, jid in paths.read_queue_entries(session.children(paths.queue(state)))
    }
    bids = [bid for own in fairness.open_batches(session).values() for bid in own]
    split = {
        bid: None
        for bid, status, locked, _ in read_statuses(session, bids, BATCHES, ignore_damage)
        if locked and _is_unsplit(status)
    }
    names: dict[str, JobState | None] = {**queued, **split}
    locks = session.exists_many(
        [paths.job_lock(name) if is_job(name) else paths.batch_lock(name) for name in names]
    )
    locked_now = {name: lock for name, lock in zip(names, locks, strict=True) if lock is not None}
    parties = _parties(session, list(locked_now))
    for name, lock in locked_now.items():
        if name in parties:
            asked_at = clock.written_ms(lock) if lock.version else None
            yield _Busy(name, names[name], lock.ctime, asked_at, parties[name])


def _parties(session: Session, names: Sequence[str]) -> dict[str, Party]:
    """Name of a job or a batch -> its party."""
    return {
        **fairness.of_jobs(session, [name for name in names if is_job(name)]),
        **fairness.of_batches(session, [name for name in names if not is_job(name)]),
    }


def ask_to_yield(session: Session, name: str, *, anew: bool = False) -> None:
    """Ask the attempt at a job to end if a later one can continue its work: its guard sees the write.

    `anew`: a second write, after which the attempt at a job or a batch ends in any case.
    """
    path = paths.job_lock(name) if is_job(name) else paths.batch_lock(name)
    with suppress(Missing, NoNodeError):
        data, _ = session.get(path)
        for _ in range(2 if anew else 1):
            session.ask(session.zk.set_async, path, data)
