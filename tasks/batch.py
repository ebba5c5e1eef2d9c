"""A batch's path: split its payload into jobs; when the last has ended, tell the depositor the truth."""

from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any

import structlog
from celery.exceptions import Ignore

from pipeline.errors import UsageRefused
from pipeline.inventory.archive import find_job
from pipeline.manifests.split import plan
from pipeline.notify import report as reports
from pipeline.outcome import AttemptOver, RateLimited, StepFailed, Stopping, system
from pipeline.profiles.profile import Profile, ProfileError
from pipeline.profiles.snapshot import ProfileSnapshot, take_snapshot
from pipeline.records import Batch, Job, Ticket
from pipeline.states import BatchState, Bucket, Event
from tasks.after_move import after_move
from tasks.logs import log
from tasks.profiles import host_limit, profile_of
from tasks.retry_policy import delay_before_retry
from tasks.worker_context import WorkerContext
from zkstate import batches, creation, holds, jobs
from zkstate.errors import Ambiguous, Busy, Corrupt, Missing, Stale, Unreachable
from zkstate.hosts import FleetHostLimiter
from zkstate.locks import AttemptGuard
from zkstate.session import Session

Work = Callable[[WorkerContext, Session, AttemptGuard, Batch], Batch | None]


def run(context: WorkerContext, ticket: Ticket, work: Work) -> None:
    """As tasks.job.run: read, lock, work, move; a void ticket does nothing."""
    try:
        session = context.session()
        guard = AttemptGuard(session, context.stopping)
        try:
            batch = batches.acquire(session, ticket, context.name)
        except (Stale, Busy, Missing) as reason:
            log().debug("ticket is void", ticket=ticket.model_dump(), reason=str(reason))
            raise Ignore from reason
        except Corrupt as damage:
            log().error("cannot be taken up", ticket=ticket.model_dump(), error=str(damage))
            raise Ignore from damage
        with structlog.contextvars.bound_contextvars(bid=batch.bid, state=str(batch.status.status)):
            _attempt(context, session, guard, batch, work)
    except (Unreachable, Ambiguous, AttemptOver, Stale) as error:
        log().warning("gave up the attempt", ticket=ticket.model_dump(), error=str(error))
        context.drop_session()


def _attempt(context: WorkerContext, session: Session, guard: AttemptGuard, batch: Batch, work: Work) -> None:
    try:
        moved = work(context, session, guard, batch)
        if moved is not None:
            after_move(context.app, session, context.settings, moved)
    except Stopping as reason:
        batches.hand_back(session, batches.load(session, batch.bid), message=str(reason))
    except Corrupt as damage:
        log().error("cannot go on", error=str(damage))
        again = context.settings.backoff_limit
        batches.hand_back(session, batches.load(session, batch.bid), message=str(damage), delay=again)
    except (SystemExit, KeyboardInterrupt):
        with suppress(Stale):
            batches.hand_back(session, batches.load(session, batch.bid))
        raise
    except (Unreachable, Ambiguous, AttemptOver, Stale):
        raise
    except Exception:  # noqa: BLE001 - whatever it was, the lock must not stay with a living process
        log().exception("the attempt broke")
        context.drop_session()  # and with it the lock: the sweep tries again, less and less often


def _again(context: WorkerContext, session: Session, batch: Batch, failure: StepFailed) -> bool:
    """Hand the batch back for another try, if the fault may pass and tries are left."""
    delay = delay_before_retry(failure, batch.status.tries, context.settings)
    if delay is None:
        return False
    batches.hand_back(session, batch, message=failure.message, delay=delay, tried=True)
    log().warning("will try again", message=failure.message, seconds=delay)
    return True


def split(context: WorkerContext, session: Session, guard: AttemptGuard, batch: Batch) -> Batch | None:
    """Make one job for each object of the payload; a payload that cannot be split is reported as such."""
    if batch.status.status is BatchState.PENDING:
        if hold := holds.collection_hold(session, batch.submission.profile_name):
            because = f": {hold.reason}" if hold.reason else ""
            message = f"collection {batch.submission.profile_name} is on hold{because}"
            return batches.move(session, batch, Event.HOLD, message=message)
        batch = batches.move(session, batch, Event.ACQUIRE, profile=_to_keep(context, batch))
    message = ""
    try:
        batch = _create(context, session, guard, batch)
    except RateLimited as turn:
        batch = batches.load(session, batch.bid)
        batches.hand_back(session, batch, message=turn.message, delay=turn.wait, in_line=True)
        return None
    except (StepFailed, UsageRefused) as error:
        failure = error if isinstance(error, StepFailed) else system(str(error))
        batch = batches.load(session, batch.bid)
        if _again(context, session, batch, failure):
            return None
        message = failure.message
        batch = batch.model_copy(update={"status": batch.status.model_copy(update={"kind": failure.kind})})
        log().warning("cannot be split", kind=str(failure.kind), message=message)
    else:
        _confirm(context, session, batch)
    return creation.finish_split(session, batch, message=message)


def _create(context: WorkerContext, session: Session, guard: AttemptGuard, batch: Batch) -> Batch:
    clients = context.clients()
    settings = context.settings
    profile = _profile(context, session, batch)
    limit = partial(host_limit, settings.host_limit, lambda: profile)
    with closing(FleetHostLimiter(session, limit, batch.bid)) as limiter:
        parts = plan(
            batch.submission,
            partial(clients.fetcher.limited_by(limiter).read, attempt=guard),
            settings.manifest_limit,
            profile_priority=profile.priority,
            most_jobs=profile.limits.batch_jobs,
        )
    return creation.create_jobs(session, batch, parts, settings.working, context.name, guard)


def _to_keep(context: WorkerContext, batch: Batch) -> ProfileSnapshot | None:
    try:
        return take_snapshot(context.clients().profiles.get(batch.submission.profile_name))
    except ProfileError:
        return None  # the split, which comes next, meets the same fault and tells it


def _profile(context: WorkerContext, session: Session, batch: Batch) -> Profile:
    return profile_of(session, context.clients().profiles, batch.bid, batch.submission.profile_name)


def _confirm(context: WorkerContext, session: Session, batch: Batch) -> None:
    """A courtesy: a mail server that is down must not stop the batch."""
    clients = context.clients()
    profile = _profile(context, session, batch)
    if not profile.confirmation_mail:
        return
    try:
        clients.mailer.send(
            reports.confirmation_mail(
                batch.bid, batch.submission, profile, batch.status.created, context.settings.mail_from
            )
        )
    except StepFailed as failure:
        log().warning("no confirmation mail", message=failure.message)


def report(context: WorkerContext, session: Session, guard: AttemptGuard, batch: Batch) -> Batch | None:
    """Tell the depositor how every job ended; on an update, only what changed since the last time."""
    clients = context.clients()
    members = _jobs(session, batch.bid)
    deleted = {jid: _why(context, jid) for jid in batches.jobs_in(session, batch.bid, Bucket.DELETED)}
    whole = reports.compose_report(batch, members, deleted)
    since = batch.report if batch.status.status is BatchState.UPDATE_REPORTING else None
    message = whole.message
    try:
        profile = _profile(context, session, batch)
        letter = reports.next_report_mail(batch, members, deleted, since, profile, context.settings.mail_from)
        guard.check()
        if letter is not None:
            clients.mailer.send(letter)
    except (StepFailed, UsageRefused) as error:
        failure = error if isinstance(error, StepFailed) else system(str(error))
        if _again(context, session, batch, failure):
            return None
        message = f"the report could not be mailed: {failure.message}"
        log().error("report not mailed", message=failure.message)
    event = Event.SUCCEED if whole.status is BatchState.COMPLETED else Event.FAIL
    return batches.move(session, batch, event, message=message, report=reports.status_report_of(whole))


def _why(context: WorkerContext, jid: str) -> str:
    """The reason that a deleted job's tombstone gives."""
    tombstone = find_job(context.clients().inventory, jid)
    return tombstone.disposition.why if tombstone else ""


def _jobs(session: Session, bid: str) -> list[Job]:
    names = (Bucket.COMPLETED, Bucket.FAILED, Bucket.PROCESSING)
    return [jobs.load(session, j) for name in names for j in batches.jobs_in(session, bid, name)]


WORK: dict[str, Work] = {"batch.split": split, "batch.report": report, "batch.update-report": report}


def register(context: WorkerContext) -> None:
    for name, work in WORK.items():
        _register(context, name, work)


def _register(context: WorkerContext, name: str, work: Work) -> None:
    def task(ticket: dict[str, Any]) -> None:
        run(context, Ticket.model_validate(ticket), work)

    context.app.task(name=name, shared=False)(task)
