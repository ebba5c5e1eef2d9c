"""The overview: the health of the fleet, the queue, working storage, and the latest batches.

Health: what jobs need and lack, what waits and why, and what is tried next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain

from pydantic import Field

from operations.explanation import Obstacle
from operations.fleet.fleet import Fleet
from operations.fleet.hosts import HostView, waiting_hosts
from operations.fleet.record_fault import RecordFault, record_fault
from operations.reasons import REASON_OF_WAIT, Reason
from operations.site import Site
from operations.visibility import require_fleet
from pipeline.errors import Action, Documented, Remedy
from pipeline.machine import Queue
from pipeline.outcome import Service, WaitKind
from pipeline.principal import Principal
from pipeline.records import Record
from pipeline.settings import accepted_jobs
from pipeline.states import JOB, BatchState, JobState
from pipeline.working_storage.capacity import usage_now
from zkstate.connection import server_facts
from zkstate.connection.server_facts import ServerMemory
from zkstate.connection.session import Session
from zkstate.connection.transaction import TRANSACTION_LIMIT, takes_largest
from zkstate.fleet import holds, notes, outages
from zkstate.fleet.holds import Hold
from zkstate.fleet.notes import Correction, FixityStatus, RepeatedCheck
from zkstate.queue import fairness, listings, queue
from zkstate.queue.listings import Active, BatchRow
from zkstate.record import space

FAULTS = 5
"""Maximum number of different faults that are listed; `waiting` counts all jobs waiting for a retry."""


class Health(Documented):
    OK = "ok", "All systems work."
    DEGRADED = "degraded", "Some jobs cannot move or have failed, or stored objects need attention."
    STOPPED = "stopped", "No job can move."


class HealthProblem(Obstacle):
    stops_all: bool = False
    remedies: tuple[Remedy, ...] = ()
    """Of this problem alone. Absent in the answer of a server up to 0.3.0."""


class RecordMemory(ServerMemory):
    """ZooKeeper's memory use, and the number of jobs it has room for."""

    jobs: int
    """Ended ones included."""
    accepted_jobs: int
    """Jobs from which on nothing is submitted or split; 0: no limit."""

    @property
    def full(self) -> bool:
        return 0 < self.accepted_jobs <= self.jobs


class QueueHealth(Record):
    queue: str
    workers: int
    processes: int
    busy: int
    """Processes that work on a task of this or of another queue."""


class Fault(Record):
    """A transient fault that active jobs and batches met at their last try."""

    service: str
    """`source`: the fault is one of the job's own content or host."""
    message: str
    jobs: int
    next_try: datetime


class OutageView(Record):
    """A shared service that is unavailable."""

    name: str
    """The service, and which one of several: `callback:deposit.example.org`."""
    service: str
    since: datetime
    message: str
    hosts: tuple[str, ...]
    """The hosts whose workers met the fault and have not succeeded since."""
    everywhere: bool
    """False if only `hosts` are affected: the service works for others."""
    outdated: bool = False
    """The store is older than it was: a repair completes it."""
    probes: int
    next_probe: datetime

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """Empty if the remedy is that of every outage of the service."""
        return (Remedy(Action.RECONCILE),) if self.outdated else ()


class FleetHealth(Record):
    status: Health
    problems: tuple[HealthProblem, ...]
    remedies: tuple[Remedy, ...]
    queues: tuple[QueueHealth, ...]
    drained: tuple[str, ...]
    """The workers that an operator drained, whether they answer or not."""
    redis: str
    redis_answers: bool
    foreign_messages: int = 0
    """Messages and keys in arkline's queues that arkline did not send; a worker rejects them."""
    zookeeper: str
    """It answers, or there would be no report."""
    beat: str
    """The process that does scheduled work; empty if none runs."""
    waiting: dict[Reason, int]
    """Jobs and batches that have not ended, by what they wait for."""
    hosts: tuple[HostView, ...] = ()
    """The sources to which no request is sent now."""
    outages: tuple[OutageView, ...]
    faults: tuple[Fault, ...]
    record_fault: RecordFault | None = None
    """Why the record cannot be relied on."""
    next_try: datetime | None = None


def fleet_health(
    fleet: Fleet,
    counts: dict[JobState, int],
    stops: Mapping[str, Hold],
    stored: FixityStatus,
    memory: RecordMemory,
) -> FleetHealth:
    """The fleet's health; `stops`: holds by collection, with the pause of the queue under the empty name.

    Reads a bounded number of jobs; waits up to a second for the workers' answers.
    """
    pause, held = stops.get(""), [name for name in stops if name]
    session = fleet.session
    active = (*listings.active_jobs(session, counts), *listings.active_batches(session))
    hosts = waiting_hosts(session, _at_hosts(active))
    alone = _held_alone(session, counts[JobState.HELD], held)
    waiting = _waiting(active, counts, pause, {view.host for view in hosts}, alone)
    faults, down, wrong = _faults(active), _outages(session), record_fault(fleet.site)
    problems = (
        *((_stopped_by(wrong),) if wrong else ()),
        *_of_fleet(fleet, waiting),
        *_of_stops(pause, held),
        *_of_record(session, memory),
        *_of_outages(down),
        *(_problem(Reason.BETWEEN_TRIES, fault.service, message=fault.message) for fault in faults[:1]),
        *_of_objects(stored),
        *_of_jobs(waiting.get(Reason.WAITING_FOR_SPACE, 0), counts[JobState.FAILED]),
    )
    todo = chain.from_iterable(problem.remedies for problem in problems)
    retries = [job.retry_at for job in active if job.retry_at]
    reviews = (Remedy(Action.SHOW_REVIEWS),) if counts[JobState.REVIEW] else ()
    return FleetHealth(
        status=_verdict(problems),
        problems=problems,
        remedies=tuple(dict.fromkeys((*todo, *reviews))),
        queues=tuple(_queue(fleet, name) for name in Queue),
        drained=tuple(fleet.drained),
        redis=fleet.redis,
        redis_answers=fleet.fault is None or fleet.fault.reason is not Reason.BROKER_UNREACHABLE,
        foreign_messages=fleet.foreign_messages,
        zookeeper=fleet.settings.zk_hosts,
        beat=fleet.beat,
        waiting=waiting,
        hosts=hosts,
        outages=down,
        faults=faults,
        record_fault=wrong,
        next_try=min(retries, default=None),
    )


def _verdict(problems: Sequence[HealthProblem]) -> Health:
    if any(problem.stops_all for problem in problems):
        return Health.STOPPED
    return Health.DEGRADED if problems else Health.OK


def _problem(reason: Reason, waits_for: object = "", *todo: Remedy, message: str = "") -> HealthProblem:
    return HealthProblem(reason=reason, waits_for=str(waits_for), message=message, remedies=todo)


def _stopped_by(fault: RecordFault) -> HealthProblem:
    return HealthProblem(
        reason=fault.reason, waits_for=Service.RECORD, stops_all=True, remedies=fault.remedies
    )


def _of_fleet(fleet: Fleet, waiting: dict[Reason, int]) -> Iterator[HealthProblem]:
    """Servers and processes that are missing.

    Without beat, a job still moves when another ends; so a missing beat stops everything only if no worker
    has a job.
    """
    can_move = any(fleet.consumers(task.queue) for task in JOB.tasks())
    idle = bool(waiting) and not waiting.get(Reason.BEING_WORKED_ON)
    for obstacle in fleet.obstacles(*Queue):
        stops_all = {
            Reason.BROKER_UNREACHABLE: True,
            Reason.BROKER_REFUSES: True,
            Reason.BROKER_FOREIGN: True,
            Reason.NO_WORKER: not can_move,
            Reason.NO_BEAT: idle,
            Reason.SWEEP_LATE: idle,
        }[obstacle.reason]
        yield HealthProblem(**dict(obstacle), stops_all=stops_all, remedies=fleet.remedies([obstacle]))


def _of_stops(pause: Hold | None, held: Iterable[str]) -> Iterator[HealthProblem]:
    if pause:
        yield _problem(Reason.QUEUE_PAUSED, "", Remedy(Action.UNPAUSE))
    for name in held:
        yield _problem(Reason.COLLECTION_ON_HOLD, name, Remedy(Action.RELEASE_COLLECTION, name))


def _of_record(session: Session, memory: RecordMemory) -> Iterator[HealthProblem]:
    if not takes_largest(session):
        size, remedy = f"{TRANSACTION_LIMIT:,} bytes", Remedy(Action.RAISE_LIMIT)
        yield _problem(Reason.RECORD_LIMIT, session.hosts, remedy, message=size)
    if memory.full:
        yield _problem(Reason.RECORD_FULL, f"{memory.accepted_jobs:,}", Remedy(Action.CLEAN_UP))


def _of_outages(down: Iterable[OutageView]) -> Iterator[HealthProblem]:
    for outage in down:
        if outage.name != Service.RECORD:
            yield _problem(Reason.SERVICE_DOWN, outage.name, *outage.remedies)


def _of_objects(stored: FixityStatus) -> Iterator[HealthProblem]:
    if stored.damaged:
        yield _problem(Reason.FIXITY_DAMAGED, stored.damaged, Remedy(Action.FIXITY_REPORT))
    if stored.overdue:
        remedies = (Remedy(Action.CHECK_FIXITY), Remedy(Action.RAISE_FIXITY_RATE))
        yield _problem(Reason.FIXITY_OVERDUE, stored.overdue, *remedies)


def _of_jobs(for_space: int, failed: int) -> Iterator[HealthProblem]:
    if for_space:
        yield _problem(Reason.WAITING_FOR_SPACE, for_space, Remedy(Action.ADD_SPACE))
    if failed:
        yield _problem(Reason.JOBS_FAILED, failed, Remedy(Action.SHOW_FAILURES))


def _queue(fleet: Fleet, name: str) -> QueueHealth:
    consumers = fleet.consumers(name)
    return QueueHealth(
        queue=name,
        workers=len(consumers),
        processes=sum(worker.processes for worker in consumers),
        busy=sum(worker.busy for worker in consumers),
    )


def _at_hosts(active: Iterable[Active]) -> Counter[str]:
    """Number of jobs and batches handed back to wait for a source, by its host."""
    waits = (job.waits_for for job in active if job.waits_for is not None)
    return Counter(wait.name for wait in waits if wait.kind == WaitKind.HOST)


def _waiting(
    active: Sequence[Active],
    counts: dict[JobState, int],
    pause: Hold | None,
    paused: Container[str],
    held_alone: int,
) -> dict[Reason, int]:
    waiting = Counter(_reason(job, paused) for job in active)
    waiting[Reason.WAITING_FOR_SPACE] += _unread_in_provisioning(counts)
    dispatched = sum(1 for job in active if job.state == JobState.PENDING and job.id.startswith("jid"))
    line = Reason.QUEUE_PAUSED if pause else Reason.WAITING_FOR_TURN
    waiting[line] += counts[JobState.PENDING] - dispatched
    waiting[Reason.HOLD_ENDED] += held_alone
    waiting[Reason.COLLECTION_ON_HOLD] += counts[JobState.HELD] - held_alone
    waiting[Reason.WAITING_FOR_REVIEW] += counts[JobState.REVIEW]
    return {reason: waiting[reason] for reason in Reason if waiting[reason] > 0}


def _held_alone(session: Session, number: int, on_hold: Container[str]) -> int:
    """How many of the `number` held jobs are held although their collection is not on hold.

    While a collection is on hold, at most SAMPLE jobs are read; the others count as held by it.
    """
    if not number or not on_hold:
        return number
    jids = queue.queued(session, JobState.HELD)[: listings.SAMPLE]
    return sum(party.collection not in on_hold for party in fairness.of_jobs(session, jids).values())


def waiting_for_space(session: Session, counts: dict[JobState, int]) -> int:
    """Jobs that wait for working storage."""
    read = sum(_reason(job) is Reason.WAITING_FOR_SPACE for job in listings.active_jobs(session, counts))
    return read + _unread_in_provisioning(counts)


def _unread_in_provisioning(counts: dict[JobState, int]) -> int:
    """So many jobs are in provisioning only if working storage is full."""
    return max(0, counts[JobState.PROVISIONING] - listings.SAMPLE)


def _reason(job: Active, paused: Container[str] = ()) -> Reason:
    if job.locked:
        return Reason.BEING_WORKED_ON
    if job.waits_for is None:
        does_not_fit = job.state == JobState.PROVISIONING and job.handed_back
        return Reason.WAITING_FOR_SPACE if does_not_fit else Reason.BEING_DISPATCHED
    if job.waits_for.name in paused:
        return Reason.HOST_BACKING_OFF
    return REASON_OF_WAIT.get(job.waits_for.kind, Reason.BETWEEN_TRIES)


def _outages(session: Session) -> tuple[OutageView, ...]:
    return tuple(
        OutageView(
            **dict(current.outage),
            name=name,
            next_probe=outages.next_probe(current),
        )
        for name, current in sorted(outages.known(session).items())
        if current.outage.ended is None
    )


def _faults(active: Iterable[Active]) -> tuple[Fault, ...]:
    """The faults that active jobs met, most frequent first."""
    by_fault: dict[str, list[datetime]] = {}
    for job in active:
        if job.retry_at is not None and _reason(job) is Reason.BETWEEN_TRIES:
            by_fault.setdefault(job.message, []).append(job.retry_at)
    faults = [
        Fault(service="source", message=message, jobs=len(moments), next_try=min(moments))
        for message, moments in by_fault.items()
    ]
    return tuple(sorted(faults, key=lambda fault: -fault.jobs)[:FAULTS])


def record_memory(site: Site) -> RecordMemory:
    """ZooKeeper's memory, which holds the whole record, and the number of jobs it has room for."""
    memory = server_facts.memory(site.session)
    return RecordMemory(
        **dict(memory),
        jobs=listings.recorded(site.session),
        accepted_jobs=accepted_jobs(site.settings, memory.heap_bytes),
    )


LATEST = 10
"""Number of batches in an overview."""


class Space(Record):
    """Bytes of working storage; `total` and `used` are None on a machine without it."""

    reserved: int
    total: int | None = None
    used: int | None = None
    threshold: int
    """Percent of `total` that may be used or reserved."""
    waiting: int
    """Jobs that wait for space."""


class Overview(Record):
    health: FleetHealth
    jobs: dict[JobState, int]
    batches: tuple[BatchRow, ...]
    seconds_left: dict[str, float] = Field(default_factory=dict)
    """BID -> until its last job has ended; of those of `batches` of which the web process knows it."""
    batches_in_all: int
    open_batches: int
    """Batches with work left; held ones are not counted."""
    held_batches: int = 0
    paused: Hold | None = None
    held_collections: dict[str, Hold]
    record: RecordMemory
    space: Space
    fixity: FixityStatus
    repeated_checks: tuple[RepeatedCheck, ...] = ()
    """The checks of stored versions that are repeated, with what is outstanding."""
    correction: Correction | None = None
    """The last time that the board of a web process differed from the record."""


def overview(site: Site, principal: Principal) -> Overview:
    """The overview; reads at most a page of jobs and batches, unless a collection is on hold."""
    require_fleet(principal, "see the queue")
    session = site.session
    bids = listings.all_batches(session)
    counts = queue.counts(session)
    stops = holds.stops(session)
    held = {name: hold for name, hold in stops.items() if name}
    stored = notes.fixity(session)
    memory = record_memory(site)
    health = fleet_health(Fleet(site), counts, stops, stored, memory)
    return Overview(
        health=health,
        jobs=counts,
        batches=tuple(listings.readable(listings.batch_rows(session, bids[: -LATEST - 1 : -1]))),
        batches_in_all=len(bids),
        open_batches=len(listings.open_batches(session)),
        paused=stops.get(""),
        held_batches=_held(session, bids) if held else 0,
        held_collections=held,
        record=memory,
        space=space_now(site, health.waiting.get(Reason.WAITING_FOR_SPACE, 0)),
        fixity=stored,
        repeated_checks=notes.repeated_checks(session),
        correction=notes.BOARD.readable(session),
    )


def _held(session: Session, bids: Sequence[str]) -> int:
    """The number of held batches; reads every batch's status, so only while a collection is on hold."""
    rows = listings.readable(listings.batch_rows(session, bids))
    return sum(row.status is BatchState.HELD for row in rows)


def space_now(site: Site, waiting: int) -> Space:
    """The use of working storage; `waiting`: jobs that wait for it."""
    settings = site.settings
    disk = usage_now(settings) if settings.working.is_dir() else None
    return Space(
        reserved=space.reserved(site.session),
        total=disk.total if disk else None,
        used=disk.used if disk else None,
        threshold=settings.working_threshold,
        waiting=waiting,
    )
