"""Collections take turns: among jobs of one priority, the collection with the fewest active jobs is next.

No collection and no submitter takes more than its share of the places, so that places are left for others.
Rule: the backlog is never read whole. The front of the queue is read and, for a collection that has few jobs
there, the first jobs of its open batches.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from pipeline.profiles.profile import quota_in
from pipeline.records import Submission
from pipeline.settings import Settings
from pipeline.states import JOB, Bucket
from zkstate import codec, paths
from zkstate.connection import ownership
from zkstate.connection.session import Session
from zkstate.record import batches
from zkstate.record.reading import ignore_damage, read_each

Quota = Callable[[str], int | None]
"""A collection's name -> its maximum of active jobs; None: no limit."""

LISTINGS = 16
"""Batches that are listed at most, to find jobs of collections that have few jobs in front."""

REMEMBERED = 10_000
"""Batches whose collection is remembered; it never changes."""


class Party(NamedTuple):
    """Whose a job is: its collection, and the principal that submitted its batch."""

    collection: str
    submitter: str = ""
    """Empty if the batch was submitted to release 0.1.0."""


_remembered: WeakKeyDictionary[Session, dict[str, Party]] = WeakKeyDictionary()


def unlimited(_: str) -> int | None:
    return None


@dataclass(frozen=True)
class Limits:
    """How many active jobs a party may have."""

    quota: Quota = unlimited
    share: int | None = None
    """Of every submitter, and of every collection without a quota; None: no limit."""

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
    """As the settings and the profiles say; a part of a place counts as a whole one."""
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
    bids = ownership.children(session, paths.OPEN_BATCHES)
    for bid, party in of_batches(session, bids).items():
        parties.setdefault(party, []).append(bid)
    return parties


def live_jobs(session: Session, belongs: Callable[[Party], bool]) -> int:
    """How many jobs of such parties have not ended; counted without listing them."""
    bids = [bid for party, own in open_batches(session).items() if belongs(party) for bid in own]
    stats = session.exists_many([paths.bucket(bid, Bucket.PROCESSING) for bid in bids])
    return sum(stat.numChildren for stat in stats if stat is not None)


def matters(parties: Collection[Party], limits: Limits) -> bool:
    """False if the order of the queue alone decides: one collection is open, and has no quota."""
    collections = {party.collection for party in parties}
    return len(collections) > 1 or any(limits.quota(name) is not None for name in collections)


def all_full(parties: Iterable[Party], load: Load, limits: Limits) -> bool:
    """True if no party may have one more job, so that the rest of the queue need not be read."""
    return all(limits.full(party, load) for party in parties)


def at_work(session: Session) -> Load:
    """The number of places in the fleet that the jobs of each party occupy; jobs that wait occupy none."""
    states = JOB.where(lambda facts: facts.occupies_place)
    names = [name for state in states for name in session.children(paths.queue(state))]
    waiting = set(session.children(paths.WAITING))
    jids = [jid for _, jid in paths.read_queue_entries(names) if jid not in waiting]
    return Load(of_jobs(session, jids).values())


def of_jobs(session: Session, jids: Sequence[str]) -> dict[str, Party]:
    """JID -> its party, in the order given; a job that was removed meanwhile is left out."""
    nodes = session.get_many([paths.job_bid(jid) for jid in jids])
    bids = {jid: node[0].decode() for jid, node in zip(jids, nodes, strict=True) if node is not None}
    known = of_batches(session, sorted(set(bids.values())))
    return {jid: known[bid] for jid, bid in bids.items() if bid in known}


def elsewhere(
    session: Session,
    pending: Collection[str],
    front: Mapping[str, Party],
    parties: Mapping[Party, list[str]],
    enough: int,
) -> dict[str, Party]:
    """JID -> party: `pending` jobs behind the front, of parties with fewer than `enough` there."""
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
    """JIDs in the order in which they may start: of the collection with the fewest active jobs, the oldest.

    `waiting`: JID -> party, in the order of the queue. Every JID counts into `load`.
    """
    queues: dict[Party, deque[tuple[int, str]]] = {}
    for place, (jid, party) in enumerate(waiting.items()):
        queues.setdefault(party, deque()).append((place, jid))
    while eligible := [party for party in queues if queues[party] and not limits.full(party, load)]:
        party = min(eligible, key=lambda party: (load.collections[party.collection], queues[party][0]))
        load.add([party])
        yield queues[party].popleft()[1]


def of_batches(session: Session, bids: Sequence[str]) -> dict[str, Party]:
    """BID -> its party; batches that cannot be read are left out, and reported by the audit."""
    known = _remembered.setdefault(session, {})
    if len(known) > REMEMBERED:
        known.clear()
    unknown = [bid for bid in bids if bid not in known]
    decode = partial(codec.decode, Submission)
    for bid, submission, _ in read_each(session, unknown, paths.submission, decode, ignore_damage):
        known[bid] = Party(submission.profile_name, submission.owner)
    return {bid: known[bid] for bid in bids if bid in known}
