"""A job for people: in a list, alone, its timeline, the progress of its download, its stored files.

The board finds the jobs of a list; the record gives the details of the rows that are shown. Workers report
progress to Redis, and no decision depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from operations.board.values import BoardJob, Freshness, JobPage, JobSearch, Scope
from operations.jobs.allowed_verbs import allowed_verbs
from operations.site import Site
from operations.visibility import Gone, visible_job
from pipeline.attempt import Progress
from pipeline.causes import FailureCause, describe
from pipeline.checks import CheckSummary
from pipeline.description.metadata import final_description
from pipeline.http.urls import redact_url
from pipeline.inventory.base import InventoryFile
from pipeline.principal import Principal, Role
from pipeline.records import HistoryEntry, Job, PayloadType, Record
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind, JobState
from tasks import redis_keys
from zkstate.connection.session import Session
from zkstate.queue import listings
from zkstate.queue.listings import JobRow, Unreadable
from zkstate.record import space

if TYPE_CHECKING:
    from operations.board.board import Board
    from pipeline.inventory.archive import ArchivedJob


class JobView(Record):
    jid: str
    bid: str
    profile: str
    deposit_name: str | None = None
    submitter: str = ""
    state: JobState
    since: datetime
    version: int | None = None
    """Of the status in ZooKeeper, for a verb that must not meet a later state."""
    message: str = ""
    kind: FailureKind | None = None
    failure_cause: FailureCause | None = None
    """The code and the parameters of the failure's cause; null if it was not recorded, and once archived."""
    last_successful_status: JobState | None = None
    priority: int | None = None
    retry_count: int = 0
    tries: int = 0
    remark: str = ""
    """What the depositor should check, although nothing failed; as that it became a further version."""
    checks: tuple[CheckSummary, ...] | None = None
    """What the checks of its profile found, with the first files; null if none has run, and once archived."""
    payload_url: str
    payload_type: PayloadType
    name: str = ""
    who: str = ""
    what: str = ""
    when: str = ""
    ark: str | None = None
    local_id: tuple[str, ...] = ()
    working_dir: str
    """Empty once nothing of the job is in working storage."""
    space_needed: int | None = None
    space_promised: int | None = None
    verbs: tuple[Event, ...] = ()
    """What an operator may do with it now."""
    archived: Gone | None = None


class Step(HistoryEntry):
    """One entry of the history; `seconds` until the next, None for the last."""

    seconds: float | None = None


class Timeline(Record):
    jid: str
    bid: str
    state: JobState
    seconds: float
    """From the first entry to the last."""
    steps: tuple[Step, ...]
    archived: Gone | None = None

    @property
    def rows(self) -> tuple[Step, ...]:
        return for_people(self.steps)


def job_view(site: Site, principal: Principal, jid: str) -> JobView:
    """The job from ZooKeeper or, once it has left, from the archive; Missing if it is in neither."""
    return job_view_of(site, principal, visible_job(site, principal, jid))


def job_view_of(site: Site, principal: Principal, job: Job | ArchivedJob) -> JobView:
    """The job as the principal sees it: folders and verbs are for operators."""
    configuration = job.configuration
    # fields that a view shares with the configuration, and below with the status, have the same names
    facts = configuration.model_dump(include=set(JobView.model_fields)) | {
        "jid": job.jid,
        "bid": job.bid,
        "profile": configuration.profile_name,
        "payload_url": redact_url(configuration.payload_url),
        "name": configuration.name,
        **final_description(configuration, job.identifiers).model_dump(include={"who", "what", "when"}),
        "ark": job.identifiers.primary_id,
        "local_id": job.identifiers.local_id,
    }
    facts |= _now(site.session, job) if isinstance(job, Job) else _at_end(job)
    if facts["state"] is JobState.COMPLETED or not isinstance(job, Job):
        facts |= {"working_dir": "", "space_needed": None}
    if not principal.role.includes(Role.OPERATOR):
        facts |= {"working_dir": "", "verbs": ()}
    return JobView.model_validate(facts)


def _now(session: Session, job: Job) -> dict[str, Any]:
    return job.status.model_dump(include=set(JobView.model_fields)) | {
        "failure_cause": job.status.failure_cause,
        "state": job.status.status,
        "since": job.status.since,
        "version": job.version,
        "space_needed": job.space_needed,
        "space_promised": space.reservation_of(session, job.jid),
        "verbs": allowed_verbs(job),
    }


def _at_end(job: ArchivedJob) -> dict[str, Any]:
    return {
        "state": job.state,
        "since": job.since,
        "message": job.message,
        "kind": job.kind,
        "remark": job.remark,
        "retry_count": sum(entry.event is Event.RESUME for entry in job.history),
        "archived": Gone.of(job.disposition),
    }


def timeline(site: Site, principal: Principal, jid: str) -> Timeline:
    """Every committed move, with the time between moves."""
    job = visible_job(site, principal, jid)
    steps = steps_of(job)
    return Timeline(
        jid=jid,
        bid=job.bid,
        state=job.status.status if isinstance(job, Job) else job.state,
        seconds=sum(step.seconds or 0.0 for step in steps),
        steps=steps,
        archived=None if isinstance(job, Job) else Gone.of(job.disposition),
    )


def steps_of(job: Job | ArchivedJob) -> tuple[Step, ...]:
    """The history, with the time to each next entry."""
    moments = [entry.at for entry in job.history]
    spent = [(later - at).total_seconds() for at, later in pairwise(moments)]
    return tuple(
        Step(**entry.model_dump(), seconds=seconds)
        for entry, seconds in zip(job.history, [*spent, None], strict=True)
    )


def for_people(steps: Sequence[Step]) -> tuple[Step, ...]:
    """With the result of each state in its own row, if that has no message, instead of in the next one."""
    rows = list(steps)
    for number, later in enumerate(steps[1:]):
        if later.event is Event.SUCCEED and not rows[number].message:
            rows[number] = rows[number].model_copy(update={"message": later.message})
            rows[number + 1] = later.model_copy(update={"message": ""})
    return tuple(rows)


SHOWN = 3
"""Maximum number of a batch's downloads shown at a time."""


def progress(site: Site, principal: Principal, jid: str) -> Progress | None:
    """The download's progress; None unless the job is downloading and its worker reported recently."""
    job = visible_job(site, principal, jid)
    return progress_of(site.settings, jid, job.status.status) if isinstance(job, Job) else None


def progress_of(settings: Settings, jid: str, state: JobState) -> Progress | None:
    """The latest progress; None if the job is not downloading or its worker has not reported recently."""
    if state is not JobState.DOWNLOADING:
        return None
    return redis_keys.read_progress(settings, jid)


class JobFiles(Record):
    """A page of the files; none before the version is recorded in the inventory."""

    jid: str
    ark: str = ""
    version: int | None = None
    total: int = 0
    """Files of the version."""
    files: tuple[InventoryFile, ...] = ()
    next: str | None = None


def job_files(site: Site, principal: Principal, jid: str, limit: int, after: int = 0) -> JobFiles:
    visible_job(site, principal, jid)
    inventory = site.archive()
    page = inventory.files_of_job(jid, limit, after) if inventory else None
    if page is None:
        return JobFiles(jid=jid)
    return JobFiles(
        jid=jid,
        ark=page.ark,
        version=page.number,
        total=page.total,
        files=page.files,
        next=None if page.last is None else str(page.last),
    )


class JobList(Record):
    """One page of jobs."""

    jobs: tuple[JobRow, ...]
    unreadable: tuple[Unreadable, ...] = ()
    """Jobs of this page whose record is damaged."""
    total: int | None = None
    """How many jobs there are on all pages."""
    next: str | None = None
    """The cursor of the next page; None on the last page."""
    freshness: Freshness | None = None
    """Null in the answer of a server up to 0.3.0."""


def rows(
    session: Session, board: Board, scope: Scope, search: JobSearch, limit: int, after: str | None = None
) -> JobPage:
    """A page of the jobs that the board finds, completed from the record.

    A job no longer in the record is shown as on the board; so are all jobs while ZooKeeper is unreachable.
    """
    page = board.jobs(scope, search, limit, after)
    if not session.connected:
        return page
    read = {
        row.id if isinstance(row, Unreadable) else row.jid: row
        for row in listings.job_rows(session, [row.jid for row in page.rows])
    }
    unreadable = tuple(row for row in read.values() if isinstance(row, Unreadable))
    shown = (
        _with_record(row, recorded) if isinstance(recorded := read.get(row.jid), JobRow) else row
        for row in page.rows
    )
    return page.model_copy(update={"rows": tuple(shown), "unreadable": unreadable})


def _with_record(row: BoardJob, recorded: JobRow) -> BoardJob:
    fields = recorded.model_dump(exclude={"jid", "bid", "profile"})
    kind = recorded.kind if recorded.state is JobState.FAILED else None
    cause = describe(recorded.failure_cause, kind, recorded.message).id if kind else ""
    moved = {} if recorded.state is row.state else {"held": False, "waiting": "", "usual": None}
    shown = {**fields, **moved, "cause": cause, "failure_cause": recorded.failure_cause}
    return row.model_copy(update=shown)
