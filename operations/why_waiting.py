"""What a job or a batch waits for while no worker has it: a place, space, a message, a worker."""

from kombu.exceptions import OperationalError

from operations.wording import age, by_whom, counted, duration
from operations.workers import consumers_of, shown_broker
from pipeline.profiles.quota import quota_in
from pipeline.records import BatchStatus, Job, JobStatus
from pipeline.settings import Settings
from pipeline.states import JOB, JobState
from pipeline.working_storage.capacity import refusal
from zkstate import fairness, holds, queue, recovery, space
from zkstate.session import Session
from zkstate.views import beat_runs

NO_BEAT = "No beat is running, so that nothing gets a new message: start one (python -m tasks.beat_leader)."


def in_line(session: Session, settings: Settings, job: Job) -> str:
    """A pending job that was never handed to a worker."""
    name = job.configuration.profile_name
    pause, hold = holds.paused(session), holds.collection_hold(session, name)
    if pause is not None:
        return (
            f"The queue has been paused{by_whom(pause.by, pause.reason, pause.at)}, so that nothing new is "
            "taken up. `arkline unpause` lets it go on."
        )
    if hold is not None:
        return (
            f"Its collection {name} has been on hold{by_whom(hold.by, hold.reason, hold.at)}, so that it "
            f"will be held when its turn comes. `arkline release --collection {name}` ends the hold."
        )
    if at_quota := _at_quota(session, settings, name):
        return at_quota
    line = queue.queued(session, JobState.PENDING)
    ahead = line.index(job.jid) if job.jid in line else 0
    stand = "stands" if ahead == 1 else "stand"
    others = f"{counted(ahead, 'job')} of the same or higher priority {stand} before it"
    before = others if ahead else "It is the next"
    waiting = queue.counts(session)
    at_work = sum(waiting[state] for state in JOB.working() if state not in queue.WAITING)
    if at_work >= settings.in_flight:
        return (
            f"{before} (priority {job.status.priority:02d}), and all {settings.in_flight} places are taken "
            "(ARKLINE_IN_FLIGHT). Collections take turns inside a priority. It goes on when others have "
            "ended; there is nothing to do."
        )
    if not beat_runs(session):
        return f"{before}, and places are free, but it is not being taken up. {NO_BEAT}"
    return (
        f"{before}; {at_work} of {settings.in_flight} places are taken. "
        "It is taken up within seconds; there is nothing to do."
    )


def _at_quota(session: Session, settings: Settings, name: str) -> str:
    """Why the collection's own limit keeps it back, if it does."""
    most = quota_in(settings.profiles)(name)
    if most is None or (taken := fairness.at_work(session)[name]) < most:
        return ""
    return (
        f"Its collection {name} has {taken} of at most {most} jobs at work (limits.jobs_at_work in its "
        "profile). It goes on when one of them has ended; there is nothing to do."
    )


def for_space(session: Session, settings: Settings, job: Job) -> str:
    """A job that does not fit into working storage now."""
    reason = _refusal(session, settings, job) or job.status.message
    if not reason:
        return "It fits into working storage and goes on within seconds; there is nothing to do."
    return (
        f"It waits for working storage: {reason.rstrip('.')}. Smaller jobs pass it meanwhile. It goes on by "
        f"itself when others have ended; `arkline space` shows who holds what."
    )


def _refusal(session: Session, settings: Settings, job: Job) -> str:
    """Why it does not fit, if this machine sees the working storage."""
    if not settings.working.is_dir():
        return ""
    return refusal(job.space_needed, space.promised(session).bytes, settings) or ""


def for_a_worker(
    session: Session, settings: Settings, name: str, status: JobStatus | BatchStatus, task: str
) -> str:
    """What was handed to the broker, or should have been."""
    from tasks.broker import live_tickets

    try:
        live = live_tickets(settings)
    except OperationalError:
        return (
            f"Redis at {shown_broker(settings)} does not answer, so that nothing can be handed to a worker. "
            "Nothing is lost: it goes on by itself once Redis is back."
        )
    if (name, status.epoch) in live:
        queue_name, workers = consumers_of(settings, task)
        if not workers:
            return (
                f"A message for it lies in Redis, but no worker takes from the queue '{queue_name}': start "
                f"one (celery -A tasks.app worker), or end a drain (arkline drain --undo WORKER)."
            )
        return (
            f"A message for it lies in Redis, and the {counted(len(workers), 'worker')} of the queue "
            f"'{queue_name}' have not taken it: all are busy. There is nothing to do; more workers "
            "would help."
        )
    return _nobody_cares(session, status)


def _nobody_cares(session: Session, status: JobStatus | BatchStatus) -> str:
    since = age(status.dispatched_at) if status.dispatched_at else None
    if since is not None and since < recovery.GRACE:
        return "It is just being handed to a worker."
    lost = f"It was handed out {duration(since)} ago and lost" if since is not None else "It has lost"
    if not beat_runs(session):
        return f"{lost} its worker or its message. {NO_BEAT}"
    again = counted(status.redispatches, "time")
    before = f" (which happened {again} before)" if status.redispatches else ""
    return f"{lost} its worker or its message{before}; the sweep gives it another within seconds."
