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
from tasks import after_move as ending
from tasks.app import app
from tasks.dispatch import dispatch_moved
from tasks.logs import log
from tasks.profiles import host_limit, profile_of
from tasks.retry_policy import delay_before_retry
from tasks.worker_context import PROCESS
from zkstate import batches, creation, holds, jobs
from zkstate.errors import Ambiguous, Busy, Corrupt, Missing, Stale, Unreachable
from zkstate.hosts import FleetHostLimiter
from zkstate.locks import AttemptGuard
from zkstate.session import Session

Work = Callable[[Session, AttemptGuard, Batch], Batch | None]


def run(ticket: Ticket, work: Work) -> None:
    """As tasks.job.run: read, lock, work, move; a void ticket does nothing."""
    try:
        session = PROCESS.session()
        guard = AttemptGuard(session, PROCESS.stopping)
        try:
            batch = batches.acquire(session, ticket, PROCESS.name)
        except (Stale, Busy, Missing) as reason:
            log().debug("ticket is void", ticket=ticket.model_dump(), reason=str(reason))
            raise Ignore from reason
        except Corrupt as damage:
            log().error("cannot be taken up", ticket=ticket.model_dump(), error=str(damage))
            raise Ignore from damage
        with structlog.contextvars.bound_contextvars(bid=batch.bid, state=str(batch.status.status)):
            _attempt(session, guard, batch, work)
    except (Unreachable, Ambiguous, AttemptOver, Stale) as error:
        log().warning("gave up the attempt", ticket=ticket.model_dump(), error=str(error))
        PROCESS.drop_session()


def _attempt(session: Session, guard: AttemptGuard, batch: Batch, work: Work) -> None:
    try:
        dispatch_moved(work(session, guard, batch))
    except Stopping as reason:
        batches.hand_back(session, batches.load(session, batch.bid), message=str(reason))
    except Corrupt as damage:
        log().error("cannot go on", error=str(damage))
        again = PROCESS.clients().settings.backoff_limit
        batches.hand_back(session, batches.load(session, batch.bid), message=str(damage), delay=again)
    except (SystemExit, KeyboardInterrupt):
        with suppress(Stale):
            batches.hand_back(session, batches.load(session, batch.bid))
        raise
    except (Unreachable, Ambiguous, AttemptOver, Stale):
        raise
    except Exception:  # noqa: BLE001 - whatever it was, the lock must not stay with a living process
        log().exception("the attempt broke")
        PROCESS.drop_session()  # and with it the lock: the sweep tries again, less and less often


def _again(session: Session, batch: Batch, failure: StepFailed) -> bool:
    """Hand the batch back for another try, if the fault may pass and tries are left."""
    delay = delay_before_retry(failure, batch.status.tries, PROCESS.clients().settings)
    if delay is None:
        return False
    batches.hand_back(session, batch, message=failure.message, delay=delay, tried=True)
    log().warning("will try again", message=failure.message, seconds=delay)
    return True


def split(session: Session, guard: AttemptGuard, batch: Batch) -> Batch | None:
    """Make one job for each object of the payload; a payload that cannot be split is reported as such."""
    if batch.status.status is BatchState.PENDING:
        if hold := holds.collection_hold(session, batch.submission.profile_name):
            because = f": {hold.reason}" if hold.reason else ""
            message = f"collection {batch.submission.profile_name} is on hold{because}"
            return batches.move(session, batch, Event.HOLD, message=message)
        batch = batches.move(session, batch, Event.ACQUIRE, profile=_to_keep(batch))
    message = ""
    try:
        batch = _create(session, guard, batch)
    except RateLimited as turn:
        batch = batches.load(session, batch.bid)
        batches.hand_back(session, batch, message=turn.message, delay=turn.wait, in_line=True)
        return None
    except (StepFailed, UsageRefused) as error:
        failure = error if isinstance(error, StepFailed) else system(str(error))
        batch = batches.load(session, batch.bid)
        if _again(session, batch, failure):
            return None
        message = failure.message
        batch = batch.model_copy(update={"status": batch.status.model_copy(update={"kind": failure.kind})})
        log().warning("cannot be split", kind=str(failure.kind), message=message)
    else:
        _confirm(session, batch)
    creation.finish_split(session, batch, message=message)
    ending.feed(session)
    return batches.finish_if_ended(session, batch.bid)


def _create(session: Session, guard: AttemptGuard, batch: Batch) -> Batch:
    clients = PROCESS.clients()
    settings = clients.settings
    profile = _profile(session, batch)
    limit = partial(host_limit, settings.host_limit, lambda: profile)
    with closing(FleetHostLimiter(session, limit, batch.bid)) as limiter:
        parts = plan(
            batch.submission,
            partial(clients.fetcher.limited_by(limiter).read, attempt=guard),
            settings.manifest_limit,
            profile_priority=profile.priority,
            most_jobs=profile.limits.batch_jobs,
        )
    return creation.create_jobs(session, batch, parts, settings.working, PROCESS.name, guard)


def _to_keep(batch: Batch) -> ProfileSnapshot | None:
    try:
        return take_snapshot(PROCESS.clients().profiles.get(batch.submission.profile_name))
    except ProfileError:
        return None  # the split, which comes next, meets the same fault and tells it


def _profile(session: Session, batch: Batch) -> Profile:
    return profile_of(session, PROCESS.clients().profiles, batch.bid, batch.submission.profile_name)


def _confirm(session: Session, batch: Batch) -> None:
    """A courtesy: a mail server that is down must not stop the batch."""
    clients = PROCESS.clients()
    profile = _profile(session, batch)
    if not profile.confirmation_mail:
        return
    try:
        clients.mailer.send(
            reports.confirmation_mail(
                batch.bid, batch.submission, profile, batch.status.created, clients.settings.mail_from
            )
        )
    except StepFailed as failure:
        log().warning("no confirmation mail", message=failure.message)


def report(session: Session, guard: AttemptGuard, batch: Batch) -> Batch | None:
    """Tell the depositor how every job ended; on an update, only what changed since the last time."""
    clients = PROCESS.clients()
    members = _jobs(session, batch.bid)
    deleted = {jid: _why(jid) for jid in batches.jobs_in(session, batch.bid, Bucket.DELETED)}
    whole = reports.compose_report(batch, members, deleted)
    since = batch.report if batch.status.status is BatchState.UPDATE_REPORTING else None
    message = whole.message
    try:
        profile = _profile(session, batch)
        letter = reports.next_report_mail(batch, members, deleted, since, profile, clients.settings.mail_from)
        guard.check()
        if letter is not None:
            clients.mailer.send(letter)
    except (StepFailed, UsageRefused) as error:
        failure = error if isinstance(error, StepFailed) else system(str(error))
        if _again(session, batch, failure):
            return None
        message = f"the report could not be mailed: {failure.message}"
        log().error("report not mailed", message=failure.message)
    event = Event.SUCCEED if whole.status is BatchState.COMPLETED else Event.FAIL
    return batches.move(session, batch, event, message=message, report=reports.status_report_of(whole))


def _why(jid: str) -> str:
    """The reason that a deleted job's tombstone gives."""
    tombstone = find_job(PROCESS.clients().inventory, jid)
    return tombstone.disposition.why if tombstone else ""


def _jobs(session: Session, bid: str) -> list[Job]:
    names = (Bucket.COMPLETED, Bucket.FAILED, Bucket.PROCESSING)
    return [jobs.load(session, j) for name in names for j in batches.jobs_in(session, bid, name)]


@app.task(name="batch.split")
def split_batch(ticket: dict[str, Any]) -> None:
    run(Ticket.model_validate(ticket), split)


@app.task(name="batch.report")
def report_batch(ticket: dict[str, Any]) -> None:
    run(Ticket.model_validate(ticket), report)


@app.task(name="batch.update-report")
def update_report(ticket: dict[str, Any]) -> None:
    run(Ticket.model_validate(ticket), report)
