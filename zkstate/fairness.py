"""Whose turn it is among jobs of one priority: the collection's that has the fewest jobs at work.

Rule: nobody reads the whole backlog for this. The front of the line is looked at, and of a collection
that does not stand there the first jobs of a batch that is open.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

from pipeline.records import Submission
from pipeline.states import JOB, Bucket
from zkstate import batches, codec, paths
from zkstate.errors import Corrupt
from zkstate.session import Session

Quota = Callable[[str], int | None]
"""A collection's name -> how many of its jobs may be at work at a time; None: as many as there is room."""

LOOKED_UP = 16
"""Batches that are listed in one look, to find jobs of collections that do not stand in front."""

KEPT = 10_000
"""Batches whose collection is remembered; what they are submitted to never changes."""

_remembered: WeakKeyDictionary[Session, dict[str, str]] = WeakKeyDictionary()


def unlimited(_: str) -> int | None:
    return None


def open_collections(session: Session) -> dict[str, list[str]]:
    """The collections that have an open batch, each with its batches, the oldest first."""
    found: dict[str, list[str]] = {}
    for bid, name in _collections(session, sorted(session.children(paths.OPEN_BATCHES))).items():
        found.setdefault(name, []).append(bid)
    return found


def matters(collections: Collection[str], quota: Quota) -> bool:
    """False if the order of the line is all that there is to know."""
    return len(collections) > 1 or any(quota(name) is not None for name in collections)


def all_full(collections: Collection[str], load: Mapping[str, int], quota: Quota) -> bool:
    """True if no collection may have one job more: the rest of the line need not be read."""
    limits = ((name, quota(name)) for name in collections)
    return all(limit is not None and load.get(name, 0) >= limit for name, limit in limits)


def at_work(session: Session) -> Counter[str]:
    """How many jobs of each collection occupy a worker, or are about to."""
    states = JOB.where(lambda facts: facts.occupies_place)
    names = [name for state in states for name in session.children(paths.queue(state))]
    return Counter(of_jobs(session, [paths.read_queue_entry(name)[1] for name in names]).values())


def of_jobs(session: Session, jids: Sequence[str]) -> dict[str, str]:
    """JID -> its collection, in the order given; a job that is gone meanwhile is left out."""
    nodes = session.get_many([paths.job_bid(jid) for jid in jids])
    bids = {jid: node[0].decode() for jid, node in zip(jids, nodes, strict=True) if node is not None}
    names = _collections(session, sorted(set(bids.values())))
    return {jid: names[bid] for jid, bid in bids.items() if bid in names}


def elsewhere(
    session: Session,
    line: Collection[str],
    front: Mapping[str, str],
    collections: Mapping[str, list[str]],
    most: int,
) -> dict[str, str]:
    """JID -> collection: jobs in `line` behind its front, of collections with fewer than `most` in front."""
    standing = Counter(front.values())
    found: dict[str, str] = {}
    listings = 0
    for name in sorted(collections, key=lambda each: standing[each]):
        for bid in collections[name]:
            if standing[name] >= most or listings == LOOKED_UP:
                break
            listings += 1
            members = batches.jobs_in(session, bid, Bucket.PROCESSING)
            behind = [jid for jid in members if jid in line and jid not in front][: most - standing[name]]
            standing[name] += len(behind)
            found.update(dict.fromkeys(behind, name))
    return found


def turns(waiting: Mapping[str, str], load: Counter[str], quota: Quota) -> Iterator[str]:
    """Each next JID to be taken up; `waiting`: JID -> collection in the line's order. Counts into `load`."""
    lines: dict[str, list[str]] = {}
    for jid, name in waiting.items():
        lines.setdefault(name, []).append(jid)
    for line in lines.values():
        line.reverse()
    limits = {name: quota(name) for name in lines}
    while True:
        open_to_all = [
            name for name, line in lines.items() if line and load[name] < _most(limits[name], load[name])
        ]
        if not open_to_all:
            return
        name = min(open_to_all, key=lambda each: load[each])
        load[name] += 1
        yield lines[name].pop()


def _most(limit: int | None, load: int) -> int:
    return load + 1 if limit is None else limit


def _collections(session: Session, bids: Sequence[str]) -> dict[str, str]:
    """BID -> its collection; what cannot be read is left out, and told by the audit."""
    known = _remembered.setdefault(session, {})
    if len(known) > KEPT:
        known.clear()
    unknown = [bid for bid in bids if bid not in known]
    wanted = [paths.submission(bid) for bid in unknown]
    for bid, path, node in zip(unknown, wanted, session.get_many(wanted), strict=True):
        if node is None:
            continue
        try:
            known[bid] = codec.decode(Submission, node[0], path).profile_name
        except Corrupt:
            continue
    return {bid: known[bid] for bid in bids if bid in known}
