"""Finds the jobs and batches that lost their worker or their message, by the server's clock.

A record is abandoned if it is in a working state, has no lock and no message in the broker, its delay is
over, and no worker has just taken its message. A record that loses its worker again and again is dispatched
less and less often.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

from pipeline.outcome import WaitKind, WaitsFor
from pipeline.records import BatchStatus, FencedStatus, JobStatus, Ticket
from pipeline.states import BATCH, JOB, BatchState, Bucket, JobState
from zkstate import codec, paths
from zkstate.connection.clock import ServerClock
from zkstate.connection.session import Session
from zkstate.errors import Busy, Corrupt, Missing, Stale
from zkstate.fleet import outages
from zkstate.queue import queue
from zkstate.queue.fairness import Live
from zkstate.record import batches, jobs, record
from zkstate.record.node import read_each
from zkstate.record.record import BATCHES, JOBS, Kind, R, St

GRACE = 3.0
"""Seconds after a dispatch in which nobody need have the message."""

SETTLE = 2.0
"""Seconds after the queues were read in which a worker may show that it had taken a message before: a new
process first opens its connections."""

LOOK_PAUSE = 0.1
"""Seconds between two looks whether it does."""

MAX_DOUBLINGS = 7
"""Maximum doublings of GRACE, one per lost worker: 384 seconds."""

ROOM = 500
"""Default number of jobs that may end their wait in one sweep."""

HOST_PACE = 8
"""Jobs that may end their wait for the same host or check in one sweep: most of them meet the same limit
again, and occupy a process for `hosts.HOST_WAIT` seconds."""

Page = Callable[[str, Sequence[str]], Sequence[str]]
"""(queue, its entries) -> the entries that this sweep reads."""


@dataclass(frozen=True)
class Recovered:
    """New tickets, and the jobs or batches that lost their worker too often to get another one."""

    tickets: tuple[Ticket, ...] = ()
    exhausted: tuple[str, ...] = ()
    lost: tuple[Ticket, ...] = ()
    """The tickets of workers that vanished, or of messages that no worker received."""


def _all(_: str, names: Sequence[str]) -> Sequence[str]:
    return names


class _Services:
    """The records that wait for a shared service, and which of them probes it in this sweep."""

    def __init__(self, session: Session, clock: ServerClock) -> None:
        self._session = session
        self._clock = clock
        self._oldest: dict[str, tuple[int, str, FencedStatus]] = {}
        self._blocking = {name for name, current in outages.known(session).items() if current.outage.blocks()}

    def keep(self, name: str, status: FencedStatus, mtime: int) -> bool:
        """True if the record still waits, unless it is chosen to probe its service."""
        waits_for = status.waits_for
        if waits_for is None or waits_for.kind != WaitKind.SERVICE or waits_for.name not in self._blocking:
            return False
        # the record with the longest wait since its last try, so that one bad record blocks no other
        candidate = (mtime, name, status)
        oldest = self._oldest.get(waits_for.name, candidate)
        self._oldest[waits_for.name] = min(candidate, oldest, key=itemgetter(0, 1))
        return True

    def probes(self) -> Iterator[tuple[str, str, FencedStatus]]:
        """The outages that are due for a probe, each with the record that probes it, as it was read."""
        known = outages.known(self._session)
        for outage, (_, name, status) in self._oldest.items():
            if outage in known and outages.take_probe(self._session, known[outage], self._clock):
                yield outage, name, status


class _Pace:
    """How many jobs may end their wait in one sweep."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._limited = Counter[tuple[str, str]]()

    def admits(self, waits_for: WaitsFor | None) -> bool:
        """Whether the job may be dispatched in this sweep; always True for a job that did not wait."""
        if waits_for is None:
            return True
        if self._room <= 0:
            return False
        if waits_for.kind in (WaitKind.HOST, WaitKind.CHECK):
            if self._limited[waits_for.kind, waits_for.name] == HOST_PACE:
                return False
            self._limited[waits_for.kind, waits_for.name] += 1
        self._room -= 1
        return True


def sweep_jobs(
    session: Session,
    live: Live,
    clock: ServerClock,
    max_redispatches: int,
    page: Page = _all,
    room: int = ROOM,
) -> Recovered:
    """New tickets for abandoned jobs among those that `page` selects from each queue.

    At most `room` of them are for jobs that waited.

    Jobs that wait for space are left to the provisioning re-check, which reads all of them.
    """
    tickets: list[Ticket] = []
    exhausted: list[str] = []
    lost: list[Ticket] = []
    services, pace = _Services(session, clock), _Pace(room)
    for state in JOB.working():
        if state is JobState.PROVISIONING:
            continue
        entries = page(str(state), queue.entries(session, state))
        jids = [jid for _, jid in paths.read_queue_entries(entries)]
        for jid, status in _abandoned(session, jids, JOBS, live, clock, services, partial(_is_sent, state)):
            if _is_taken(session, jid, JOBS, status, clock):
                continue
            if is_exhausted(status, max_redispatches):
                exhausted.append(jid)
                lost += _lost(jid, status)
                continue
            if not pace.admits(status.waits_for):
                continue
            if ticket := _redispatch(session, jobs.load, jid, status):
                tickets.append(ticket)
                lost += _lost(jid, status)
    probing = [_redispatch(session, jobs.load, jid, was, outage) for outage, jid, was in services.probes()]
    tickets += filter(None, probing)
    return Recovered(tuple(tickets), tuple(exhausted), tuple(lost))


def _lost(name: str, status: JobStatus | BatchStatus) -> list[Ticket]:
    """The ticket whose worker died; none for a record that was handed back."""
    if not _lost_its_worker(status):
        return []
    return [Ticket(id=name, state=status.status, epoch=status.epoch)]


def _lost_its_worker(status: FencedStatus) -> bool:
    return not (status.handed_back or status.delay)


def is_exhausted(status: FencedStatus, max_redispatches: int) -> bool:
    """Whether the record lost its worker after its last ticket; the worker of one that waits was alive."""
    return _lost_its_worker(status) and status.redispatches >= max_redispatches


def _is_sent(state: JobState, status: JobStatus) -> bool:
    """False if the job has moved, or has not been fed yet."""
    return status.status is state and (state is not JobState.PENDING or status.dispatched_at is not None)


def sweep_batches(
    session: Session, live: Live, clock: ServerClock, by: str, max_redispatches: int
) -> Recovered:
    """New tickets for abandoned batches, and for batches whose last job ended unnoticed."""
    names = session.children(paths.OPEN_BATCHES)
    tickets: list[Ticket | None] = []
    waiting: list[str] = []
    exhausted: list[str] = []
    lost: list[Ticket] = []
    services = _Services(session, clock)
    for bid, status in _abandoned(session, names, BATCHES, live, clock, services):
        if status.status is BatchState.PROCESSING and status.total is not None:
            waiting.append(bid)  # for its jobs
        elif status.status not in BATCH.working() or _is_taken(session, bid, BATCHES, status, clock):
            continue
        elif is_exhausted(status, max_redispatches):
            exhausted.append(bid)
            lost += _lost(bid, status)
        elif ticket := _redispatch(session, batches.load, bid, status):
            tickets.append(ticket)
            lost += _lost(bid, status)
    tickets += [
        _redispatch(session, batches.load, bid, was, outage) for outage, bid, was in services.probes()
    ]
    unended = session.count_children(*(paths.bucket(bid, Bucket.PROCESSING) for bid in waiting))
    for bid, number in zip(waiting, unended, strict=True):
        if not number:
            tickets.append(_finish(session, bid, by))
    given = tuple(ticket for ticket in tickets if ticket is not None)
    return Recovered(given, tuple(exhausted), tuple(lost))


def _abandoned(  # noqa: PLR0913 - the facts of one sweep
    session: Session,
    names: Sequence[str],
    kind: Kind[St],
    live: Live,
    clock: ServerClock,
    services: _Services,
    sent: Callable[[St], bool] = lambda _: True,
) -> Iterator[tuple[str, St]]:
    """Records without lock and message whose delay is over; `sent`: whether a ticket was ever sent.

    The locks of other records are not read: most of a long queue waits for its first ticket.
    """
    decode = partial(codec.decode, kind.status)
    read = read_each(session, names, kind.status_path, decode)
    quiet = [
        (name, status, mtime)
        for name, status, stat in read
        if sent(status)
        and (name, status.epoch) not in live
        and _is_due(status, mtime := clock.written_ms(stat), clock)
    ]
    # a worker that has taken or moved one of them since has changed the status that _redispatch compares
    locks = session.exists_many([kind.lock_path(name) for name, _, _ in quiet])
    for (name, status, mtime), lock in zip(quiet, locks, strict=True):
        if lock is None and not services.keep(name, status, mtime):
            yield name, status


def _is_taken(session: Session, name: str, kind: Kind[St], was: St, clock: ServerClock) -> bool:
    """Whether a worker that had the message when the queues were read takes the record; waits until SETTLE.

    The clock was read just before the queues.
    """
    while _lost_its_worker(was) and time.monotonic() < clock.at + SETTLE:
        time.sleep(LOOK_PAUSE)
        now = next(read_each(session, [name], kind.status_path, partial(codec.decode, kind.status)), None)
        if now is None or now[1].op != was.op:
            return True
    return False


def _is_due(status: FencedStatus, mtime: int, clock: ServerClock) -> bool:
    """Whether the delay is over; after a hand-back with a delay only that counts: the worker was alive."""
    if status.waits_for is not None and status.waits_for.kind == WaitKind.SERVICE:
        return True  # the service works again
    lost = GRACE * 2 ** min(status.redispatches, MAX_DOUBLINGS)
    wait = max(GRACE, status.delay) if status.delay else lost
    return clock.now_ms() - mtime > wait * 1000


def _redispatch(
    session: Session,
    load: Callable[[Session, str], R],
    name: str,
    seen: FencedStatus,
    probe: str = "",
) -> Ticket | None:
    """Dispatch a ticket unless the record has changed since it was `seen`; `probe`: an outage."""
    try:
        loaded = load(session, name)
        if loaded.status.op != seen.op:
            return None
        return record.redispatch(session, loaded, lost=_lost_its_worker(seen), probe=probe)
    except (Busy, Stale, Missing, Corrupt):
        return None  # another sweep or a worker was first, or the next sweep logs the damage


def _finish(session: Session, bid: str, by: str) -> Ticket | None:
    try:
        finished = batches.finish_if_ended(session, bid, by)
    except (Missing, Corrupt):
        return None
    return record.ticket(finished) if finished else None
