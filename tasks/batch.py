"""The work on a batch: split its payload into jobs; when the last job has ended, report to the depositor."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from pipeline import causes
from pipeline.checks import CheckedFiles, CheckVerdict, by_verdict
from pipeline.decoding.calls import manifest_reader
from pipeline.inventory.archive import SentReport, keep_report, kept_report
from pipeline.manifests.split import plan
from pipeline.notify.batch_report import BatchReport, JobOutcome, known_after, status_report_of
from pipeline.notify.report_mail import confirmation_mail, next_report, report_mail, report_text, subject_of
from pipeline.outcome import Deposited, Later, Service, ServiceDown, StepFailed, WaitKind, content, transient
from pipeline.profiles.profile import Profile, ProfileError, with_site_limits
from pipeline.profiles.snapshot import ProfileSnapshot, take_snapshot
from pipeline.records import Batch, StatusReport
from pipeline.settings import Settings, accepted_jobs, limit_of
from pipeline.states import BatchState, Event, JobState
from tasks.logs import log
from tasks.outages import begin_outage, this_host
from tasks.retention import compose
from tasks.retry import hosts_given_up_after, is_mistake, mistakes_as
from tasks.run import Attempt, StateWork
from zkstate.connection import server_facts
from zkstate.connection.session import Session
from zkstate.fleet import holds, outages
from zkstate.fleet.hosts import FleetHostLimiter, host_limit
from zkstate.queue import fairness, listings
from zkstate.queue.fairness import Party
from zkstate.record import batches, creation
from zkstate.record.batches import BatchMove
from zkstate.record.record import Lock

RECORD_WAIT = 60.0
"""Seconds between two checks whether other batches have left."""


def check_room(session: Session, settings: Settings, profile: Profile, batch: Batch, jobs: int) -> None:
    """Raise Later or a transient failure if jobs have to end or leave first, a content failure if never.

    All jobs are kept in ZooKeeper's memory. Checked before the first job of a batch is created, and not
    between its jobs, so that no batch is admitted in part. Batches that are split at the same moment may
    exceed a limit together.
    """
    if batch.status.created:
        return
    _check_record(session, settings, jobs)
    if (limit := profile.limits.live_jobs) is not None:
        whose, setting = f"collection {profile.name}", "limits.live_jobs"
        _check_live(session, lambda party: party.collection == profile.name, jobs, limit, whose, setting)
    if owner := batch.submission.owner:  # none if the batch was submitted to release 0.1.0
        whose, setting, limit = f"submitter {owner}", "ARKLINE_SUBMITTER_JOBS", settings.submitter_jobs
        _check_live(session, lambda party: party.submitter == owner, jobs, limit, whose, setting)


def _check_record(session: Session, settings: Settings, jobs: int) -> None:
    if not settings.record_jobs:
        return
    heap = server_facts.heap_bytes(session)
    accepted, limit = accepted_jobs(settings, heap), limit_of(settings, heap)
    if jobs > accepted:
        message = f"the batch has {jobs:,} objects, and {limit} is {accepted:,}: divide it"
        raise content(message).because(causes.LIMIT_EXCEEDED(limit=f"of {accepted:,} jobs in the record"))
    recorded = listings.recorded(session)
    if recorded + jobs > accepted:
        raise Later(
            WaitKind.RECORD,
            "",
            f"the record has {recorded:,} jobs, and {jobs:,} more would exceed {limit} ({accepted:,}): "
            "batches that have ended have to leave first, or an operator raises ARKLINE_RECORD_JOBS and "
            "ZooKeeper's heap",
            RECORD_WAIT,
        )


def _check_live(
    session: Session, belongs: Callable[[Party], bool], jobs: int, limit: int, whose: str, setting: str
) -> None:
    """`setting`: the name of the limit on the unended jobs of such parties, over all their batches."""
    if jobs > limit:
        raise content(
            f"the batch has {jobs:,} objects, but {whose} may have {limit:,} jobs that have not ended: "
            f"divide it, or ask the repository to raise {setting}"
        ).because(causes.LIMIT_EXCEEDED(limit=f"{setting} of {limit:,}"))
    live = fairness.live_jobs(session, belongs)
    if live + jobs > limit:
        raise transient(
            f"{whose} has {live:,} jobs that have not ended, and {jobs:,} more would exceed {limit:,} "
            f"({setting}): they have to end first, or the limit has to be raised"
        )


def _split(attempt: Attempt[Batch]) -> Batch | None:
    """Create one job for every object of the payload."""
    context, session, batch = attempt.context, attempt.session, attempt.record
    if batch.status.status is BatchState.PENDING:
        if hold := holds.collection_hold(session, batch.submission.profile_name):
            because = f": {hold.reason}" if hold.reason else ""
            message = f"collection {batch.submission.profile_name} is on hold{because}"
            return batches.move(session, batch, BatchMove(Event.HOLD, context.name, message=message))
        snapshot = _take_snapshot(attempt)
        start = BatchMove(Event.ACQUIRE, context.name, lock=Lock.KEEP, profile=snapshot)
        attempt.record = batches.move(session, batch, start)
    _create(attempt)
    _confirm(attempt)
    return batches.finish_split(session, attempt.record)


def _fail_split(attempt: Attempt[Batch], failure: StepFailed) -> Batch:
    """The batch has no further jobs; its report says why."""
    cause = failure.cause or causes.OTHER()
    request = BatchMove(Event.FAIL, attempt.context.name, failure.message, failure.kind, cause=cause)
    return batches.move(attempt.session, attempt.record, request)


def _take_snapshot(attempt: Attempt[Batch]) -> ProfileSnapshot | None:
    profiles = attempt.context.clients().profiles
    try:
        return take_snapshot(profiles.get(attempt.record.submission.profile_name))
    except ProfileError:
        return None  # creating the jobs meets the same fault, and reports it


def _create(attempt: Attempt[Batch]) -> None:
    context, session, batch = attempt.context, attempt.session, attempt.record
    profile = _profile(attempt)
    fetcher = context.clients().fetcher
    limit = partial(host_limit, context.settings.host_limit, lambda: profile)
    give_up_after = hosts_given_up_after(batch, context.settings)
    with closing(FleetHostLimiter(session, limit, batch.bid, give_up_after=give_up_after)) as limiter:
        parts = plan(
            batch.submission,
            partial(fetcher.limited_by(limiter, lambda: profile.allowed_sources).read, attempt=attempt.guard),
            context.settings.manifest_limit,
            profile_priority=profile.priority,
            most_jobs=profile.limits.batch_jobs,
            parse=manifest_reader(context.clients().decoder, attempt.guard),
        )
    check_room(session, context.settings, profile, batch, len(parts.jobs))
    working = context.settings.working
    for progressed in creation.create_jobs(session, batch, parts, working, context.name, attempt.guard):
        attempt.record = progressed


def _profile(attempt: Attempt[Batch]) -> Profile:
    batch = attempt.record
    profiles = attempt.context.clients().profiles
    profile = batches.profile_of(attempt.session, profiles, batch.bid, batch.submission.profile_name)
    return with_site_limits(profile, attempt.context.settings)


def _confirm(attempt: Attempt[Batch]) -> None:
    """Mail the confirmation if the profile asks for one; the batch does not fail if the mail does."""
    context, batch = attempt.context, attempt.record
    profile = _profile(attempt)
    if not profile.confirmation_mail:
        return
    if outages.blocking(attempt.session, [Service.MAIL], this_host()):
        log().warning("confirmation not mailed", message="the mail service is unavailable")
        return
    mail = confirmation_mail(
        batch.bid,
        batch.submission,
        profile,
        batch.status.created,
        context.settings.mail_from,
        context.settings.public_url,
    )
    try:
        context.clients().mailer.send(mail)
    except StepFailed as failure:
        log().warning("confirmation not mailed", message=failure.message)
        if isinstance(failure, ServiceDown):
            begin_outage(attempt.session, failure)


def _report(attempt: Attempt[Batch]) -> Batch:
    """Mail the outcome of every job; on an update, only what changed since the last report."""
    context, batch, profile = attempt.context, attempt.record, _profile(attempt)
    inventory = context.clients().inventory
    composed = _compose(attempt)
    updates = batch.status.status is BatchState.UPDATE_REPORTING
    mailed = batch.report is not None and batch.report.mailed
    since = batches.whole_report(attempt.session, batch) if updates and mailed else None
    if (due := next_report(composed.report, batch, since)) is None:
        return _end(attempt, composed, status_report_of(composed.report))
    if earlier := kept_report(inventory, batch.bid, due.number, due.reported_at):
        due = BatchReport.model_validate(earlier.report)
    settings = context.settings
    mail = report_mail(due, profile, batch.submission, settings.mail_from, settings.public_url)
    attempt.guard.check()
    sent = SentReport(number=due.number, at=due.reported_at, report=due, text=report_text(mail))
    keep_report(inventory, batch.bid, sent)
    attempt.guard.check()
    refused = context.clients().mailer.send(mail) if profile.sends_report else ""
    message = _joined(due.message, refused and f"the report was sent, but {refused}")
    return _end(attempt, replace(composed, report=due), known_after(due, since), message)


def _fail_report(attempt: Attempt[Batch], failure: StepFailed) -> Batch:
    """End the batch without a mail; update-report sends a complete report later."""
    log().error("report not sent", message=failure.message)
    try:
        composed = _compose(attempt)
    except Exception as error:
        if not is_mistake(error):
            raise
        log().exception("report not composed")
        message = f"the report could not be written: {failure.message}"
        return batches.move(
            attempt.session, attempt.record, BatchMove(Event.FAIL, attempt.context.name, message)
        )
    unsent = status_report_of(composed.report).model_copy(update={"mailed": False})
    message = _joined(composed.report.message, f"the report could not be sent: {failure.message}")
    return _end(attempt, composed, unsent, message)


def _joined(*messages: str) -> str:
    return "; ".join(filter(None, messages))


@dataclass(frozen=True)
class _Composed:
    report: BatchReport
    deposited: Deposited
    """What the completed jobs have added to storage."""
    checked: tuple[CheckedFiles, ...]
    """What checks found in the files of all jobs."""


def _compose(attempt: Attempt[Batch]) -> _Composed:
    session, batch = attempt.session, attempt.record
    deposited, checked = Deposited(), Counter[tuple[str, CheckVerdict]]()

    def members() -> Iterator[JobOutcome]:
        nonlocal deposited
        for job in listings.outcomes_of_batch(session, batch.bid):
            checked.update(by_verdict(job.status.checks or ()))
            if job.status.status is JobState.COMPLETED and job.status.deposited is not None:
                deposited += job.status.deposited
            yield job

    report = compose(session, batch, members(), attempt.context.clients().inventory)
    return _Composed(report, deposited, CheckedFiles.sums(checked))


def _end(attempt: Attempt[Batch], composed: _Composed, known: StatusReport, message: str = "") -> Batch:
    """`known`: the states of the jobs that the depositor now knows."""
    request = BatchMove(
        Event.SUCCEED if composed.report.status is BatchState.COMPLETED else Event.FAIL,
        attempt.context.name,
        message=message or composed.report.message,
        report=known,
        deposited=composed.deposited,
        checked=composed.checked,
        title=subject_of(composed.report),
        asks=any(job.cause == causes.VERSION_REFUSED.name for job in composed.report.failed),
    )
    return batches.move(attempt.session, attempt.record, request)


def counted(work: Callable[[Attempt[Batch]], Batch | None], attempt: Attempt[Batch]) -> Batch | None:
    """Count a mistake in the code or a damaged znode as a try; the last try ends the split or the report."""
    with mistakes_as(transient, damaged=transient):
        return work(attempt)


SPLIT = StateWork(batches.load, partial(counted, _split), _fail_split)
REPORT = StateWork(batches.load, partial(counted, _report), _fail_report)
BATCHES: dict[str, StateWork[Batch]] = {
    BatchState.PENDING: SPLIT,
    BatchState.PROCESSING: SPLIT,
    BatchState.REPORTING: REPORT,
    BatchState.UPDATE_REPORTING: REPORT,
}
