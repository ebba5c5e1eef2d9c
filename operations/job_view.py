"""A job as people see it, and its timeline."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from operations.archive import archived_job, no_archive
from operations.batch_view import Gone
from pipeline.records import HistoryEntry, Job, PayloadType, Record
from pipeline.states import JOB, Event, FailureKind, JobState, Raiser
from zkstate import jobs, space
from zkstate.errors import Missing
from zkstate.session import Session

if TYPE_CHECKING:
    from operations.archive import Archive
    from pipeline.inventory.archive import ArchivedJob


class JobView(Record):
    jid: str
    bid: str
    profile: str
    submitter: str = ""
    state: JobState
    since: datetime
    version: int | None = None
    """Of the status in ZooKeeper, for a verb that must not meet a later state."""
    message: str = ""
    kind: FailureKind | None = None
    last_successful_status: JobState | None = None
    priority: int | None = None
    retry_count: int = 0
    tries: int = 0
    payload_url: str
    payload_type: PayloadType
    name: str = ""
    who: str = ""
    what: str = ""
    when: str = ""
    ark: str | None = None
    local_id: tuple[str, ...] = ()
    working_dir: str
    space_needed: int | None = None
    space_promised: int | None = None
    verbs: tuple[Event, ...] = ()
    """What an operator may do with it now."""
    archived: Gone | None = None


class Step(Record):
    """One entry of the history; `seconds` until the next, or until now for a job that has not ended."""

    state: JobState
    event: Event | None = None
    at: datetime
    by: str = ""
    message: str = ""
    kind: FailureKind | None = None
    seconds: float | None = None


class Timeline(Record):
    jid: str
    bid: str
    state: JobState
    seconds: float
    """From the first entry to the last."""
    steps: tuple[Step, ...]
    archived: Gone | None = None


def operator_verbs(job: Job) -> tuple[Event, ...]:
    """The events of the table that an operator may raise, as the job is now."""
    status = job.status
    return JOB.possible(status.status, Raiser.OPERATOR, status.last_successful_status, status.kind)


def job_view(session: Session, jid: str, archive: Archive = no_archive) -> JobView:
    """The job from ZooKeeper or, once it has left, from the archive; Missing if it is in neither."""
    job = _load(session, jid, archive)
    if not isinstance(job, Job):
        return _from_archive(job)
    status = job.status
    return JobView(
        **_configured(job),
        jid=jid,
        state=status.status,
        since=status.last_modification_date,
        version=job.version,
        message=status.message,
        kind=status.kind,
        last_successful_status=status.last_successful_status,
        priority=status.priority,
        retry_count=status.retry_count,
        tries=status.tries,
        space_needed=job.space_needed,
        space_promised=space.reservation_of(session, jid),
        verbs=operator_verbs(job),
    )


def _load(session: Session, jid: str, archive: Archive) -> Job | ArchivedJob:
    try:
        return jobs.load(session, jid)
    except Missing:
        if (archived := archived_job(archive, jid)) is None:
            raise
        return archived


def _configured(job: Job | ArchivedJob) -> dict[str, object]:
    configuration = job.configuration
    return {
        "bid": job.bid,
        "profile": configuration.profile_name,
        "submitter": configuration.submitter,
        "payload_url": configuration.payload_url,
        "payload_type": configuration.payload_type,
        "name": configuration.payload_name or configuration.payload_url.rpartition("/")[2],
        "who": configuration.erc_who,
        "what": configuration.erc_what,
        "when": configuration.erc_when,
        "working_dir": configuration.working_dir,
        "ark": job.identifiers.primary_id,
        "local_id": job.identifiers.local_id,
    }


def _from_archive(job: ArchivedJob) -> JobView:
    return JobView.model_validate(
        {
            **_configured(job),
            "jid": job.jid,
            "state": job.state,
            "since": job.disposition.at,
            "message": job.message,
            "kind": job.kind,
            "archived": _gone(job),
        }
    )


def _gone(job: ArchivedJob) -> Gone:
    return Gone(by=job.disposition.who, reason=job.disposition.why, at=job.disposition.at)


def timeline(session: Session, jid: str, archive: Archive = no_archive) -> Timeline:
    """Every committed move, with the time that was spent in between."""
    job = _load(session, jid, archive)
    if not isinstance(job, Job):
        return _timeline(jid, job.bid, job.state, job.history, _gone(job))
    return _timeline(jid, job.bid, job.status.status, job.history, None)


def _timeline(
    jid: str, bid: str, state: JobState, history: tuple[HistoryEntry, ...], gone: Gone | None
) -> Timeline:
    moments = [entry.at for entry in history]
    spent = [(later - at).total_seconds() for at, later in pairwise(moments)]
    steps = tuple(
        Step(**entry.model_dump(), seconds=seconds)
        for entry, seconds in zip(history, [*spent, None], strict=True)
    )
    whole = (moments[-1] - moments[0]).total_seconds() if moments else 0.0
    return Timeline(jid=jid, bid=bid, state=state, seconds=whole, steps=steps, archived=gone)
