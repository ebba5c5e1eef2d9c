"""Collections take turns: among jobs of one priority, the collection with the fewest active jobs is next.

Rule: the backlog is never read whole. The front of the queue is read and, for a collection that has few jobs
there, the first jobs of its open batches.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary

from pipeline.records import Submission
from pipeline.states import JOB, Bucket
from zkstate import batches, codec, paths
from zkstate.reading import ignore_damage, read_each
from zkstate.session import Session

Quota = Callable[[str], int | None]
"""A collection's name -> its maximum of active jobs; None: no limit."""

LISTINGS = 16
"""Batches that are listed at most, to find jobs of collections that have few jobs in front."""

REMEMBERED = 10_000
"""Batches whose collection is remembered; it never changes."""

_remembered: WeakKeyDictionary[Session, dict[str, str]] = WeakKeyDictionary()


def unlimited(_: str) -> int | None:
    return None


def open_collections(session: Session) -> dict[str, list[str]]:
    """The collections that have an open batch, each with its batches, the oldest first."""
    collections: dict[str, list[str]] = {}
    for bid, name in _collections(session, sorted(session.children(paths.OPEN_BATCHES))).items():
        collections.setdefault(name, []).append(bid)
    return collections


def live_jobs(session: Session, collection: str) -> int:
    """How many jobs of the collection have not ended; counted without listing them."""
    bids = open_collections(session).get(collection, [])
    stats = session.exists_many([paths.bucket(bid, Bucket.PROCESSING) for bid in bids])
    return sum(stat.numChildren for stat in stats if stat is not None)


def matters(collections: Collection[str], quota: Quota) -> bool:
    """False if the order of the queue alone decides."""
    return len(collections) > 1 or any(quota(name) is not None for name in collections)


def all_full(collections: Collection[str], load: Mapping[str, int], quota: Quota) -> bool:
    """True if no collection may have one more job, so that the rest of the queue need not be read."""
    limits = ((name, quota(name)) for name in collections)
    return all(_full(limit, load.get(name, 0)) for name, limit in limits)


def at_work(session: Session) -> Counter[str]:
    """How many jobs of each collection take a place in the fleet; jobs that wait take none."""
    states = JOB.where(lambda facts: facts.occupies_place)
    names = [name for state in states for name in session.children(paths.queue(state))]
    waiting = set(session.children(paths.WAITING))
    jids = [jid for _, jid in map(paths.read_queue_entry, names) if jid not in waiting]
    return Counter(of_jobs(session, jids).values())


def of_jobs(session: Session, jids: Sequence[str]) -> dict[str, str]:
    """JID -> its collection, in the order given; a job that was removed meanwhile is left out."""
    nodes = session.get_many([paths.job_bid(jid) for jid in jids])
    bids = {jid: node[0].decode() for jid, node in zip(jids, nodes, strict=True) if node is not None}
    names = _collections(session, sorted(set(bids.values())))
    return {jid: names[bid] for jid, bid in bids.items() if bid in names}


def elsewhere(
    session: Session,
    pending: Collection[str],
    front: Mapping[str, str],
    collections: Mapping[str, list[str]],
    enough: int,
) -> dict[str, str]:
    """JID -> collection: `pending` jobs behind the front, of collections with fewer than `enough` there."""
    in_front = Counter(front.values())
    behind: dict[str, str] = {}
    listings = 0
    for name in sorted(collections, key=lambda name: in_front[name]):
        for bid in collections[name]:
            if in_front[name] >= enough or listings == LISTINGS:
                break
            listings += 1
            members = batches.jobs_in(session, bid, Bucket.PROCESSING)
            more = [jid for jid in members if jid in pending and jid not in front]
            more = more[: enough - in_front[name]]
            in_front[name] += len(more)
            behind.update(dict.fromkeys(more, name))
    return behind


def turns(waiting: Mapping[str, str], load: Counter[str], quota: Quota) -> Iterator[str]:
    """JIDs in the order in which they may start, always of the collection with the fewest active jobs.

    `waiting`: JID -> collection, in the order of the queue. Every JID counts into `load`.
    """
    queues: dict[str, deque[str]] = {}
    for jid, name in waiting.items():
        queues.setdefault(name, deque()).append(jid)
    limits = {name: quota(name) for name in queues}
    while eligible := [name for name in queues if queues[name] and not _full(limits[name], load[name])]:
        name = min(eligible, key=lambda name: load[name])
        load[name] += 1
        yield queues[name].popleft()


def _full(limit: int | None, load: int) -> bool:
    return limit is not None and load >= limit


def _collections(session: Session, bids: Sequence[str]) -> dict[str, str]:
    """BID -> its collection; batches that cannot be read are left out, and reported by the audit."""
    known = _remembered.setdefault(session, {})
    if len(known) > REMEMBERED:
        known.clear()
    unknown = [bid for bid in bids if bid not in known]
    decode = partial(codec.decode, Submission)
    for bid, submission, _ in read_each(session, unknown, paths.submission, decode, ignore_damage):
        known[bid] = submission.profile_name
    return {bid: known[bid] for bid in bids if bid in known}
