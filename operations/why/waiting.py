"""Why a job or batch waits without a worker: for its turn, space, a host, a later time, or a worker."""

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from operations.explanation import Cause, Obstacle
from operations.fleet.fleet import Fleet
from operations.reasons import REASON_OF_WAIT, Reason
from operations.site import Site
from pipeline.errors import Action, Remedy
from pipeline.http.urls import place_of
from pipeline.machine import Queue
from pipeline.outcome import StepFailed, WaitKind, WaitsFor
from pipeline.records import Batch, BatchStatus, Job, JobStatus, now
from pipeline.states import BATCH, JOB, JobState, Room
from pipeline.steps import expected_files
from pipeline.working_storage import capacity
from pipeline.working_storage.workspace import Workspace
from zkstate.connection.session import Session
from zkstate.fleet import holds, hosts, outages
from zkstate.fleet.holds import Hold
from zkstate.queue import fairness, queue, recovery
from zkstate.record import batches, jobs, space

HOLDERS_NAMED = 5
"""Maximum number of jobs in a cause, largest users of working storage first; the view of space lists all."""

_SUPERSEDED = (Reason.STARTING, Reason.BEING_DISPATCHED, Reason.LOST_WORKER)
"""Reasons that add nothing once an obstacle is known."""


def blocked(fleet: Fleet, cause: Cause, *queues: str) -> Cause:
    """The cause, with whatever else keeps the fleet from processing the job."""
    obstacles = (*cause.obstacles, *fleet.obstacles(*queues))
    if not obstacles:
        return cause
    remedies = (*cause.remedies, *fleet.remedies(obstacles))
    if cause.reason in _SUPERSEDED:
        first, *rest = obstacles
        return cause.model_copy(
            update={
                "reason": first.reason,
                "waits_for": first.waits_for,
                "message": first.message or cause.message,
                "moves_itself": False,
                "when": None,
                "obstacles": tuple(rest),
                "remedies": remedies,
            }
        )
    return cause.model_copy(update={"moves_itself": False, "obstacles": obstacles, "remedies": remedies})


def held(session: Session, name: str, identifier: str) -> Cause:
    """The cause of a held job or batch: its own hold or the collection's."""
    hold = holds.collection_hold(session, name)
    if hold is None:
        return Cause(reason=Reason.HOLD_ENDED, waits_for=name, remedies=(Remedy(Action.RELEASE, identifier),))
    return on_hold(name, hold)


def on_hold(name: str, hold: Hold) -> Cause:
    return Cause(
        reason=Reason.COLLECTION_ON_HOLD,
        waits_for=name,
        holder=hold.by,
        holder_since=hold.at,
        hold_reason=hold.reason,
        remedies=(Remedy(Action.RELEASE_COLLECTION, name),),
    )


def in_line(fleet: Fleet, job: Job) -> Cause:
    """The cause of a pending job that has not been dispatched."""
    name = job.configuration.profile_name
    pause, hold = holds.paused(fleet.session), holds.collection_hold(fleet.session, name)
    if pause is not None:
        also = on_hold(name, hold).remedies if hold else ()
        return Cause(
            reason=Reason.QUEUE_PAUSED,
            waits_for="queue",
            holder=pause.by,
            holder_since=pause.at,
            hold_reason=pause.reason,
            obstacles=(Obstacle(reason=Reason.COLLECTION_ON_HOLD, waits_for=name),) if hold else (),
            remedies=(*also, Remedy(Action.UNPAUSE)),
        )
    if hold is not None:
        return on_hold(name, hold)
    return blocked(fleet, _at_limit(fleet, job) or _turn(fleet, job), *Queue)


def _at_limit(fleet: Fleet, job: Job) -> Cause | None:
    """The limit on active jobs that the job's collection or submitter has reached."""
    limits, load = fairness.site_limits(fleet.settings), fairness.at_work(fleet.session)
    for party in fairness.of_jobs(fleet.session, [job.jid]).values():
        if not limits.full(party, load):
            continue
        taken = load.collections[party.collection]
        quota = limits.quota(party.collection)
        if quota is not None and taken >= quota:
            return Cause(
                reason=Reason.COLLECTION_AT_QUOTA,
                waits_for=party.collection,
                limit=quota,
                taken=taken,
                moves_itself=True,
            )
        of_collection = quota is None and taken >= (limits.share or 0)
        return Cause(
            reason=Reason.SHARE_TAKEN,
            waits_for=f"collection {party.collection}" if of_collection else f"submitter {party.submitter}",
            limit=limits.share,
            taken=taken if of_collection else load.submitters[party.submitter],
            moves_itself=True,
            remedies=(Remedy(Action.RAISE_SHARE),),
        )
    return None


def _turn(fleet: Fleet, job: Job) -> Cause:
    ahead = queue.ahead_of(fleet.session, job)
    taken = queue.places_taken(fleet.session)
    limit = fleet.settings.in_flight
    return Cause(
        reason=Reason.WAITING_FOR_TURN if ahead >= limit - taken else Reason.STARTING,
        ahead=ahead,
        limit=limit,
        taken=taken,
        moves_itself=True,
    )


def for_space(fleet: Fleet, job: Job) -> Cause:
    """The cause of a job in provisioning without a worker."""
    return blocked(fleet, _space(fleet, job))


def _space(fleet: Fleet, job: Job) -> Cause:
    settings = fleet.settings
    if not settings.working.is_dir():  # on another machine: only the worker's last answer is known
        if not job.status.message:
            return Cause(reason=Reason.STARTING, moves_itself=True)
        return Cause(reason=Reason.WAITING_FOR_SPACE, message=job.status.message, moves_itself=True)
    disk = capacity.occupancy_now(settings)
    if disk is None:  # the first measurement is still running
        return Cause(reason=Reason.WAITING_FOR_SPACE, message=job.status.message, moves_itself=True)
    reserved = space.reservations(fleet.session)
    promised = sum(reserved.values())
    if capacity.refusal(job.space_needed, promised, partial(dict, reserved), settings, job.jid) is None:
        return Cause(reason=Reason.STARTING, moves_itself=True)
    if (cause := exceeds_space(fleet, job)) is not None:
        return cause
    limit = disk.limit(settings.working_threshold)
    taken = disk.used + sum(disk.outstanding(reserved, except_for=job.jid).values())
    held = capacity.holders(reserved, disk.on_disk)
    held.pop(job.jid, None)
    known = jobs.statuses(fleet.session, list(held))
    reviewed = {jid for jid, status in known.items() if status.status is JobState.REVIEW}
    emptied = {
        jid for jid, status in known.items() if status.status is JobState.FAILED and status.room is Room.EMPTY
    }
    # Files of other programs are nobody's to give up, so it is compared whether the jobs hold enough.
    given_up = sum(held[jid] for jid in known.keys() - reviewed - emptied)
    lacking = max(0, job.space_needed - disk.on_disk.get(job.jid, 0))
    moves = given_up >= taken + lacking - limit
    helps = (Remedy(Action.SHOW_REVIEWS),) if reviewed else ()
    return Cause(
        reason=Reason.WAITING_FOR_SPACE,
        needed=job.space_needed,
        limit=limit,
        taken=taken,
        users=dict(list(held.items())[:HOLDERS_NAMED]),
        moves_itself=moves,
        remedies=() if moves else (*helps, Remedy(Action.CLEAN_UP), Remedy(Action.ADD_SPACE)),
    )


def exceeds_space(fleet: Fleet, job: Job) -> Cause | None:
    """The cause of a job larger than working storage can ever hold; None for others."""
    settings = fleet.settings
    measured = capacity.usage_now(settings) if settings.working.is_dir() else None
    if measured is None or capacity.never_fits(job.space_needed, settings) is None:
        return None
    limit = measured.total * settings.working_threshold // 100
    return Cause(
        reason=Reason.EXCEEDS_SPACE,
        needed=job.space_needed,
        limit=limit,
        remedies=(Remedy(Action.ADD_SPACE), Remedy(Action.RESUME, job.jid)),
    )


def later(fleet: Fleet, status: JobStatus | BatchStatus, written: float, host: Cause | None) -> Cause:
    """The cause of a job or batch that a worker handed back, to be dispatched again later.

    `written`: when the status was written, in seconds since the epoch. `host`: the host it waits for, if any.
    """
    when = datetime.fromtimestamp(written + status.delay, UTC)
    waits_for = status.waits_for or WaitsFor(kind=WaitKind.RETRY)
    reason = REASON_OF_WAIT.get(waits_for.kind, Reason.BETWEEN_TRIES)
    cause = Cause(
        reason=reason, waits_for=waits_for.name, message=status.message, when=when, moves_itself=True
    )
    match reason:
        case Reason.WAITING_FOR_HOST:
            waiting = host or cause
            message = waiting.message or status.message
            update = {"when": max(when, waiting.when or when), "message": message}
            return waiting.model_copy(update=update)
        case Reason.SERVICE_DOWN:
            return _service_down(fleet.session, cause)
        case Reason.RECORD_DAMAGED:
            return cause.model_copy(update={"moves_itself": False, "remedies": (Remedy(Action.AUDIT),)})
        case Reason.RECORD_FULL:
            return cause.model_copy(update={"remedies": (Remedy(Action.CLEAN_UP),)})
        case Reason.BETWEEN_TRIES:
            return cause.model_copy(update={"limit": fleet.settings.max_tries, "taken": status.tries})
        case _:
            return cause


def _service_down(session: Session, cause: Cause) -> Cause:
    current = outages.known(session).get(cause.waits_for)
    if current is None or current.outage.ended is not None:
        return Cause(reason=Reason.BEING_DISPATCHED, moves_itself=True)
    update: dict[str, object] = {
        "outage_since": current.outage.since,
        "message": current.outage.message,
        "when": outages.next_probe(current),
    }
    if current.outage.outdated:
        update |= {"moves_itself": False, "remedies": (Remedy(Action.RECONCILE),)}
    return cause.model_copy(update=update)


def for_a_worker(
    fleet: Fleet, name: str, status: JobStatus | BatchStatus, written: float, channel: str
) -> Cause:
    """The cause of a job or batch that is with the broker, or about to be."""
    if fleet.fault is not None or fleet.tickets is None:
        return blocked(fleet, Cause(reason=Reason.BEING_DISPATCHED))
    if (name, status.epoch) in fleet.tickets:
        return _queued(fleet, channel)
    if status.dispatched_at and now() - status.dispatched_at < timedelta(seconds=recovery.GRACE):
        return Cause(reason=Reason.BEING_DISPATCHED, waits_for=channel, moves_itself=True)
    delay = recovery.GRACE * 2 ** min(status.redispatches, recovery.MAX_DOUBLINGS)
    lost = Cause(
        reason=Reason.LOST_WORKER,
        waits_for=channel,
        when=datetime.fromtimestamp(written + delay, UTC),
        moves_itself=True,
    )
    return blocked(fleet, lost, channel)


def _queued(fleet: Fleet, channel: str) -> Cause:
    """The cause of a job or batch whose message is queued in Redis."""
    consumers = fleet.consumers(channel)
    if not consumers:
        obstacle = Obstacle(reason=Reason.NO_WORKER, waits_for=channel)
        return Cause(
            reason=Reason.NO_WORKER,
            waits_for=channel,
            taken=len(fleet.workers),
            remedies=fleet.remedies((obstacle,)),
        )
    busy, processes = sum(w.busy for w in consumers), sum(w.processes for w in consumers)
    return Cause(
        reason=Reason.WORKERS_BUSY if busy >= processes else Reason.BEING_DISPATCHED,
        waits_for=channel,
        limit=processes,
        taken=busy,
        moves_itself=True,
    )


MANIFEST_LIMIT = 1_000_000
"""Maximum bytes of a manifest that is read for its files' hosts; reading a longer one takes too long."""

HOSTS = 20
"""Maximum number of hosts examined; few objects come from more than one."""


def for_host(site: Site, record: Job | Batch) -> Cause | None:
    """The cause if the job or batch needs a host that may not be contacted now; otherwise None."""
    facts = JOB.facts[record.status.status] if isinstance(record, Job) else BATCH.facts[record.status.status]
    if not facts.fetches:
        return None
    session, settings = site.session, site.settings
    profile = partial(batches.profile_of, session, site.profiles, record.bid, record.profile_name)
    limit = hosts.host_limit(settings.host_limit, profile) or hosts.UNLIMITED
    for host in filter(None, _hosts(record, settings.working)):
        pause = hosts.pause_by_own_clock(session, host)
        if pause.left > 0:
            return Cause(
                reason=Reason.HOST_DOWN if pause.unanswered else Reason.HOST_BACKING_OFF,
                waits_for=host,
                message=pause.cause,
                when=now() + timedelta(seconds=pause.left),
                moves_itself=True,
            )
        users = hosts.connection_holders(session, host)
        if record.id not in users and len(users) >= limit:
            return Cause(
                reason=Reason.WAITING_FOR_HOST,
                waits_for=host,
                limit=limit,
                taken=len(users),
                users=dict(Counter(user or "unknown" for user in users)),
                moves_itself=True,
            )
    return None


def _hosts(record: Job | Batch, working: Path) -> list[str]:
    """The payload's host, and those of a job's files if this machine has a short manifest of them."""
    if isinstance(record, Batch):
        return [place_of(record.submission.payload_url)]
    urls = [record.configuration.payload_url]
    with suppress(OSError, StepFailed):
        if Workspace.of(record, working).manifest.stat().st_size <= MANIFEST_LIMIT:
            urls += [file.url for file in expected_files.expected_files(record, working)]
    return list(dict.fromkeys(place_of(url) for url in urls))[:HOSTS]
