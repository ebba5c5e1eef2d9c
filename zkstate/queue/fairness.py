"""The order of work, such that no collection and no submitter keeps the others waiting.

Places: among jobs of one priority, the collection with the fewest active jobs is next, and no party gets more
than its share of the places. Rule: the backlog is never read completely. The front of the queue is read and,
for a collection with few jobs there, the first jobs of its open batches.

Processes: a party with more than its share of them gives one up to a party that waits for one. Nothing is
read unless tickets wait in Redis and several parties have open batches.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple, cast

from kazoo.exceptions import NoNodeError

from pipeline.profiles.profile import quota_in
from pipeline.records import BatchStatus, FencedStatus, JobStatus, Submission
from pipeline.settings import Settings
from pipeline.states import BATCH, JOB, OCCUPYING, Bucket, JobState
from zkstate import codec, paths
from zkstate.connection.clock import ServerClock
from zkstate.connection.session import Session
from zkstate.connection.transaction import Check, Put, Role, commit
from zkstate.errors import Missing, Stale
from zkstate.record import batches
from zkstate.record.node import ignore_damage, read_each
from zkstate.record.record import BATCHES, JOBS, Kind, St, read_statuses

Live = Collection[tuple[str, int]]
"""(id, epoch) of the tickets that are still in the broker."""

Quota = Callable[[str], int | None]
"""A collection's name -> its maximum of active jobs; None: no limit."""

LISTINGS = 16
"""Maximum batches that are listed to find jobs of collections with few jobs at the front."""

REMEMBERED = 10_000
"""Maximum batches whose party is cached; it never changes."""


class Party(NamedTuple):
    """The party that a job belongs to: its collection, and the principal that submitted its batch."""

    collection: str
    submitter: str = ""
    """Empty if the batch was submitted to release 0.1.0."""


def unlimited(_: str) -> int | None:
    return None


@dataclass(frozen=True)
class Limits:
    """How many active jobs a party may have."""

    quota: Quota = unlimited
    share: int | None = None
    """Limit for every submitter, and for every collection without a quota; None: no limit."""

    def of_collection(self, name: str) -> int | None:
        own = self.quota(name)
        return self.share if own is None else own

    def full(self, party: Party, load: "Load") -> bool:
        """True if the party may not have one more job."""
        most = self.of_collection(party.collection)
        if most is not None and load.collections[party.collection] >= most:
            return True
        known = bool(party.submitter) and self.share is not None
        return known and load.submitters[party.submitter] >= (self.share or 0)


NO_LIMITS = Limits()


def site_limits(settings: Settings) -> Limits:
    """The limits from the settings and the profiles; a fraction of a place counts as a whole one."""
    share = -(-settings.in_flight * settings.share_of_places // 100)
    return Limits(quota_in(settings.profiles), share if share < settings.in_flight else None)


class Load:
    """Active jobs, by collection and by submitter."""

    def __init__(self, parties: Iterable[Party] = ()) -> None:
        self.collections: Counter[str] = Counter()
        self.submitters: Counter[str] = Counter()
        self.add(parties)

    def add(self, parties: Iterable[Party]) -> None:
        for party in parties:
            self.collections[party.collection] += 1
            self.submitters[party.submitter] += 1


def open_batches(session: Session) -> dict[Party, list[str]]:
    """The parties that have an open batch, each with its batches, the oldest first."""
    parties: dict[Party, list[str]] = {}
    bids = session.children(paths.OPEN_BATCHES)
    for bid, party in of_batches(session, bids).items():
        parties.setdefault(party, []).append(bid)
    return parties


def live_jobs(session: Session, belongs: Callable[[Party], bool]) -> int:
    """The number of unended jobs of the parties that `belongs` selects, counted without listing them."""
    bids = [bid for party, own in open_batches(session).items() if belongs(party) for bid in own]
    return sum(session.count_children(*(paths.bucket(bid, Bucket.PROCESSING) for bid in bids)))


def matters(parties: Collection[Party], limits: Limits) -> bool:
    """False if the order of the queue alone decides: one collection is open, and has no quota."""
    collections = {party.collection for party in parties}
    return len(collections) > 1 or any(limits.quota(name) is not None for name in collections)


def all_full(parties: Iterable[Party], load: Load, limits: Limits) -> bool:
    """True if no party may have one more job, so that the rest of the queue need not be read."""
    return all(limits.full(party, load) for party in parties)


def at_work(session: Session) -> Load:
    """The number of places in the fleet that the jobs of each party occupy; jobs that wait occupy none."""
    names = [name for state in OCCUPYING for name in session.children(paths.queue(state))]
    waiting = set(session.children(paths.WAITING))
    jids = [jid for _, jid in paths.read_queue_entries(names) if jid not in waiting]
    return Load(of_jobs(session, jids).values())


def of_jobs(session: Session, jids: Sequence[str]) -> dict[str, Party]:
    """JID -> its party, in the given order; skips jobs that were removed, or whose batch cannot be read."""
    nodes = session.get_many([paths.job_bid(jid) for jid in jids])
    named = zip(jids, nodes, strict=True)
    bids = {jid: node[0].decode(errors="replace") for jid, node in named if node is not None}
    known = of_batches(session, paths.owned(paths.BATCHES, set(bids.values())))
    return {jid: known[bid] for jid, bid in bids.items() if bid in known}


def elsewhere(
    session: Session,
    pending: Collection[str],
    front: Mapping[str, Party],
    parties: Mapping[Party, list[str]],
    enough: int,
) -> dict[str, Party]:
    """JID -> party: `pending` jobs behind the front, of parties with fewer than `enough` at the front."""
    in_front = Counter(front.values())
    behind: dict[str, Party] = {}
    listings = 0
    for party in sorted(parties, key=lambda party: in_front[party]):
        for bid in parties[party]:
            if in_front[party] >= enough or listings == LISTINGS:
                break
            listings += 1
            members = batches.jobs_in(session, bid, Bucket.PROCESSING)
            more = [jid for jid in members if jid in pending and jid not in front]
            more = more[: enough - in_front[party]]
            in_front[party] += len(more)
            behind.update(dict.fromkeys(more, party))
    return behind


def turns(waiting: Mapping[str, Party], load: Load, limits: Limits) -> Iterator[str]:
    """JIDs in the order in which they may start: the collection with the fewest active jobs is next.

    Within a collection, the oldest job is next. `waiting`: JID -> party, in the order of the queue. Each JID
    counts towards `load` once it is yielded.
    """
    queues: dict[Party, deque[tuple[int, str]]] = {}
    for place, (jid, party) in enumerate(waiting.items()):
        queues.setdefault(party, deque()).append((place, jid))
    while eligible := [party for party in queues if queues[party] and not limits.full(party, load)]:
        party = min(eligible, key=lambda party: (load.collections[party.collection], queues[party][0]))
        load.add([party])
        yield queues[party].popleft()[1]


def of_batches(session: Session, bids: Sequence[str]) -> dict[str, Party]:
    """BID -> its party; skips unreadable batches, which the audit reports."""
    known = cast(dict[str, Party], session.remembered.setdefault("parties", {}))
    if len(known) > REMEMBERED:
        known.clear()
    unknown = [bid for bid in bids if bid not in known]
    decode = partial(codec.decode, Submission)
    for bid, submission, _ in read_each(session, unknown, paths.submission, decode, ignore_damage):
        known[bid] = Party(submission.profile_name, submission.owner)
    return {bid: known[bid] for bid in bids if bid in known}


OVERDUE_AFTER = 10.0
"""Seconds that a ticket may wait in Redis before the shares are compared."""

YIELD_WITHIN = 60.0
"""Seconds within which a download yields after it was asked to, if its source can continue it."""

IN_TURN = 8
"""Maximum jobs and batches put before others in one sweep: a process that becomes free does several."""


@dataclass(frozen=True)
class Turn:
    """The jobs and unsplit batches that come first now, and the attempt that gives up its process, if any."""

    names: tuple[str, ...]
    yielding: str | None
    anew: bool = False
    """Whether the yielding attempt ends even if its work has to start from the beginning."""


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
    """The work that has waited longest while another party has more than `share` percent of the processes.

    `live`: the tickets in Redis. None if no party has more than its share, or no other party waits.
    """
    if not live or len(open_batches(session)) < 2:
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
    """Choose who yields: a split for a batch, a download for a job; the other kind if there is none.

    Some processes may only split. A job waits for one of the others, so splits yield to it one after another.
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
    youngest one, which loses least, ends. So the older ones of a party finish undisturbed.
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


def _kind_of(name: str) -> Kind[Any]:
    return JOBS if is_job(name) else BATCHES


def _goes_first(one: Party, other: Party, load: Load, most: int) -> bool:
    """True if `other`'s collection or submitter has more than `most` processes, and `one`'s has fewer."""
    pairs = (
        (one.collection, other.collection, load.collections),
        (one.submitter, other.submitter, load.submitters),
    )
    return any(theirs and own != theirs and of[theirs] > most > of[own] for own, theirs, of in pairs)


def _late(session: Session, live: Live, clock: ServerClock) -> list[str]:
    """The jobs and unsplit batches that have waited for OVERDUE_AFTER without a lock, the longest first.

    A ticket of an earlier epoch stays in Redis until a worker takes it: no record waits for it.
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
    queued = {
        jid: state
        for state in OCCUPYING
        for _, jid in paths.read_queue_entries(session.children(paths.queue(state)))
    }
    bids = [bid for own in open_batches(session).values() for bid in own]
    split = {
        bid: None
        for bid, status, locked, _ in read_statuses(session, bids, BATCHES, ignore_damage)
        if locked and _is_unsplit(status)
    }
    names: dict[str, JobState | None] = {**queued, **split}
    locks = session.exists_many([_kind_of(name).lock_path(name) for name in names])
    locked_now = {name: lock for name, lock in zip(names, locks, strict=True) if lock is not None}
    parties = _parties(session, list(locked_now))
    for name, lock in locked_now.items():
        if name in parties:
            asked_at = clock.written_ms(lock) if lock.version else None
            yield _Busy(name, names[name], lock.ctime, asked_at, parties[name])


def _parties(session: Session, names: Sequence[str]) -> dict[str, Party]:
    """Name of a job or a batch -> its party."""
    return {
        **of_jobs(session, [name for name in names if is_job(name)]),
        **of_batches(session, [name for name in names if not is_job(name)]),
    }


def ask_to_yield(session: Session, name: str, *, anew: bool = False) -> None:
    """Ask the attempt at a job to end if a later one can continue its work: its guard sees the write.

    `anew`: write twice, after which the attempt at a job or a batch ends in any case.
    """
    kind = _kind_of(name)
    status, lock = kind.status_path(name), kind.lock_path(name)
    with suppress(Missing, NoNodeError, Stale):
        fence = Check(status, session.get(status)[1].version)
        ask = Put(lock, session.get(lock)[0], role=Role.LOCK)
        # an attempt takes its lock as it writes the status: Stale if the lock is of a later attempt
        commit(session, [fence, *[ask] * (2 if anew else 1)])
