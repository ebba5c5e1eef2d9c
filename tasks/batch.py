"""A batch's path: split its payload into jobs; when the last job has ended, report to the depositor."""

from contextlib import closing
from functools import partial
from typing import Any

from pipeline.inventory.archive import find_job
from pipeline.manifests.split import plan
from pipeline.notify import report as reports
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profile, ProfileError
from pipeline.profiles.snapshot import ProfileSnapshot, take_snapshot
from pipeline.records import Batch, Job, Ticket
from pipeline.states import BatchState, Bucket, Event
from tasks.logs import log
from tasks.profiles import host_limit, profile_of
from tasks.run import Locked, StateWork, run
from tasks.worker_context import WorkerContext
from zkstate import batches, creation, holds, listings
from zkstate.batches import BatchMove
from zkstate.hosts import FleetHostLimiter
from zkstate.record import Lock


def _split(locked: Locked[Batch]) -> Batch | None:
    """Create one job for every object of the payload."""
    context, session, batch = locked.context, locked.session, locked.record
    if batch.status.status is BatchState.PENDING:
        if hold := holds.collection_hold(session, batch.submission.profile_name):
            because = f": {hold.reason}" if hold.reason else ""
            message = f"collection {batch.submission.profile_name} is on hold{because}"
            return batches.move(session, batch, BatchMove(Event.HOLD, context.name, message=message))
        snapshot = _take_snapshot(locked)
        start = BatchMove(Event.ACQUIRE, context.name, lock=Lock.KEEP, profile=snapshot)
        locked.record = batches.move(session, batch, start)
    _create(locked)
    _confirm(locked)
    return batches.finish_split(session, locked.record)


def _fail_split(locked: Locked[Batch], failure: StepFailed) -> Batch:
    """The batch has no further jobs; its report says why."""
    return batches.finish_split(locked.session, locked.record, message=failure.message, kind=failure.kind)


def _take_snapshot(locked: Locked[Batch]) -> ProfileSnapshot | None:
    profiles = locked.context.clients().profiles
    try:
        return take_snapshot(profiles.get(locked.record.submission.profile_name))
    except ProfileError:
        return None  # creating the jobs meets the same fault, and reports it


def _create(locked: Locked[Batch]) -> None:
    context, session, batch = locked.context, locked.session, locked.record
    profile = _profile(locked)
    limit = partial(host_limit, context.settings.host_limit, lambda: profile)
    with closing(FleetHostLimiter(session, limit, batch.bid)) as limiter:
        parts = plan(
            batch.submission,
            partial(context.clients().fetcher.limited_by(limiter).read, attempt=locked.guard),
            context.settings.manifest_limit,
            profile_priority=profile.priority,
            most_jobs=profile.limits.batch_jobs,
        )
    working = context.settings.working
    for progressed in creation.create_jobs(session, batch, parts, working, context.name, locked.guard):
        locked.record = progressed


def _profile(locked: Locked[Batch]) -> Profile:
    batch = locked.record
    profiles = locked.context.clients().profiles
    return profile_of(locked.session, profiles, batch.bid, batch.submission.profile_name)


def _confirm(locked: Locked[Batch]) -> None:
    """Mail the confirmation if the profile asks for one; an unreachable mail server is no failure."""
    context, batch = locked.context, locked.record
    profile = _profile(locked)
    if not profile.confirmation_mail:
        return
    mail = reports.confirmation_mail(
        batch.bid, batch.submission, profile, batch.status.created, context.settings.mail_from
    )
    try:
        context.clients().mailer.send(mail)
    except StepFailed as failure:
        log().warning("confirmation not mailed", message=failure.message)


def _report(locked: Locked[Batch]) -> Batch:
    """Mail how every job ended; on an update, only what changed since the last report."""
    context, batch = locked.context, locked.record
    members, deleted, report = _compose(locked)
    since = batch.report if batch.status.status is BatchState.UPDATE_REPORTING else None
    sender = context.settings.mail_from
    mail = reports.next_report_mail(batch, members, deleted, since, _profile(locked), sender)
    locked.guard.check()
    if mail is not None:
        context.clients().mailer.send(mail)
    return _end(locked, report, report.message)


def _fail_report(locked: Locked[Batch], failure: StepFailed) -> Batch:
    """The batch ends without a mail; update-report sends one later."""
    log().error("report not mailed", message=failure.message)
    _, _, report = _compose(locked)
    return _end(locked, report, f"the report could not be mailed: {failure.message}")


def _compose(locked: Locked[Batch]) -> tuple[list[Job], dict[str, str], reports.BatchReport]:
    """The jobs that exist, the reason for the deletion of those that do not, and the report of all."""
    session, batch = locked.session, locked.record
    members = listings.load_batch(session, batch.bid)
    inventory = locked.context.clients().inventory
    deleted: dict[str, str] = {}
    for jid in batches.jobs_in(session, batch.bid, Bucket.DELETED):
        tombstone = find_job(inventory, jid)
        deleted[jid] = tombstone.disposition.why if tombstone else ""
    return members, deleted, reports.compose_report(batch, members, deleted)


def _end(locked: Locked[Batch], report: reports.BatchReport, message: str) -> Batch:
    event = Event.SUCCEED if report.status is BatchState.COMPLETED else Event.FAIL
    reported = reports.status_report_of(report)
    request = BatchMove(event, locked.context.name, message=message, report=reported)
    return batches.move(locked.session, locked.record, request)


SPLIT = StateWork(batches.acquire, _split, _fail_split)
REPORT = StateWork(batches.acquire, _report, _fail_report)
TASKS = {"batch.split": SPLIT, "batch.report": REPORT, "batch.update-report": REPORT}


def register(context: WorkerContext) -> None:
    for name, work in TASKS.items():
        _register(context, name, work)


def _register(context: WorkerContext, name: str, work: StateWork[Batch]) -> None:
    def task(ticket: dict[str, Any]) -> None:
        run(context, Ticket.model_validate(ticket), work)

    context.app.task(name=name, shared=False)(task)
