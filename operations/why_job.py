"""Why a job is where it is."""

import time

from operations import why_host, why_waiting
from operations.job_view import operator_verbs
from operations.wording import by_whom, counted, duration, standing
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.profiles.snapshot import profile_changes
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import JOB, Bucket, Event, JobState, bucket
from zkstate import batches, holds, views
from zkstate.session import Session


def why_job(session: Session, settings: Settings, job: Job) -> str:
    state = job.status.status
    ended = bucket(state) is not Bucket.PROCESSING
    opening = (
        f"{job.jid} ({job.configuration.payload_name or job.configuration.payload_url}, batch {job.bid}) "
        f"{standing(state, job.status.last_modification_date, ended=ended)}."
    )
    if state in JOB.working():
        return f"{opening} {_at_work(session, settings, job)}"
    if state is JobState.FAILED:
        return f"{opening} {_failed(job)}{_by_which_profile(session, settings, job)}"
    return f"{opening} {_ENDED[state](session, job)}" if state in _ENDED else opening


def _at_work(session: Session, settings: Settings, job: Job) -> str:
    activity = views.job_activity(session, job.jid)
    if activity.holder is not None:
        told = _held_by(job, activity.holder.name, time.time() - activity.holder.since)
        return " ".join(filter(None, (told, why_host.job_waits(session, settings, job))))
    wait = _delay_left(job, activity.status_written) if activity.status_written else 0.0
    if job.status.delay and job.status.message != job.history[-1].message:
        return (
            f"Nothing failed, but it waits for its turn: {job.status.message.rstrip('.')}. It asks again "
            f"{_when(wait)}; there is nothing to do."
        )
    if job.status.delay:
        return _between_tries(settings, job, wait)
    if job.status.status is JobState.PENDING and job.status.dispatched_at is None:
        return why_waiting.in_line(session, settings, job)
    if job.status.status is JobState.PROVISIONING:
        return why_waiting.for_space(session, settings, job)
    return why_waiting.for_a_worker(session, settings, job.jid, job.status, _route(job))


def _route(job: Job) -> str:
    return f"job.{job.status.status}"


def _held_by(job: Job, holder: str, seconds: float) -> str:
    tried = f" It was tried {counted(job.status.tries, 'time')} before." if job.status.tries else ""
    return (
        f"The {holder} has been working on it for {duration(max(0.0, seconds))} "
        f"(attempt {job.status.attempt}).{tried} There is nothing to do; "
        f"`arkline fail {job.jid}` would stop it."
    )


def _delay_left(job: Job, written: float) -> float:
    return written + job.status.delay - time.time()


def _when(wait: float) -> str:
    return f"in {duration(wait)}" if wait > 0 else "any moment now, by the sweep"


def _between_tries(settings: Settings, job: Job, wait: float) -> str:
    return (
        f"It met a fault that may pass ({job.status.message}) and is tried again {_when(wait)}: "
        f"try {job.status.tries + 1} of {settings.max_tries}, after which it fails. There is nothing to do "
        "unless you know that the fault stays."
    )


def _completed(_: Session, job: Job) -> str:
    ark = f" as {job.identifiers.primary_id}" if job.identifiers.primary_id else ""
    return (
        f"It is stored{ark}, recorded in the inventory, and its depositor's system was told. Nothing is left."
    )


def _held(session: Session, job: Job) -> str:
    name = job.configuration.profile_name
    hold = holds.collection_hold(session, name)
    if hold is None:
        return f"Its collection {name} is not on hold any more. `arkline release {job.jid}` lets it go on."
    return (
        f"Its collection {name} has been on hold{by_whom(hold.by, hold.reason, hold.at)}. "
        f"`arkline release --collection {name} --jobs` ends the hold and lets all its jobs go on."
    )


def _failed(job: Job) -> str:
    before = _before_failure(job)
    kind = f" ({job.status.kind}: {job.status.kind.doc})" if job.status.kind else ""
    message = job.status.message or "no reason was given"
    return f"It failed while {before}{kind}: {message.rstrip('.')}. {_remedy(job)}"


def _before_failure(job: Job) -> JobState:
    failed = max(n for n, entry in enumerate(job.history) if entry.event is Event.FAIL)
    return job.history[failed - 1].state


def _remedy(job: Job) -> str:
    if Event.RESUME not in operator_verbs(job):
        return (
            f"What was submitted has to be corrected and submitted anew; "
            f"`arkline delete {job.jid}` tidies up."
        )
    status = job.status
    target = JOB.next(status.status, Event.RESUME, status.last_successful_status, status.kind)
    return (
        f"Once the cause is gone, `arkline resume {job.jid}` goes on with {target}, and afterwards "
        f"`arkline update-report {job.bid}` tells the depositor."
    )


def _by_which_profile(session: Session, settings: Settings, job: Job) -> str:
    """Said of a job that could go on, if the profile's file was changed since its batch started."""
    kept = batches.profile_snapshot(session, job.bid)
    if kept is None or Event.RESUME not in operator_verbs(job):
        return ""
    name = job.configuration.profile_name
    try:
        changed = profile_changes(kept, Profiles(settings.profiles).get(name))
    except ProfileError:
        return ""
    if not changed:
        return ""
    return (
        f" It would go on by profile {name} as it was when the batch started. The file says otherwise by now "
        f"({', '.join(changed)}): `arkline profile renew {job.bid}` before the resume makes that count."
    )


_ENDED = {JobState.COMPLETED: _completed, JobState.HELD: _held}
