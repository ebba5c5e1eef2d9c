"""One verb for many jobs and batches: a refusal of one does not stop the others.

A verb for many jobs in two steps: a dry run, and then exactly what the dry run showed.

The token of a plan has the version of every job. A job that moved after the dry run is not touched, so a
token that is used again changes nothing.
"""

import time
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from operations.jobs.allowed_verbs import Moved, allowed_verbs, check_seen
from operations.operator import Operator, Stopped, VerbResult
from operations.verbs.verbs import WAS, act, repair, stop_batch, stop_job
from operations.visibility import recorded_batch
from pipeline.errors import ArklineError, ErrorKind, ServiceUnreachable, UsageRefused
from pipeline.principal import Principal
from pipeline.records import Batch, Record
from pipeline.states import BatchState, Bucket, Event, IllegalTransition, JobState
from zkstate.connection.session import Session
from zkstate.errors import Ambiguous, Corrupt
from zkstate.queue import listings
from zkstate.record import batches


class Refusal(Record):
    id: str
    message: str


class Outcome(Record):
    """The results of a verb, job by job; for a dry run the expected results."""

    verb: str
    dry_run: bool = False
    done: tuple[VerbResult, ...] = ()
    refused: tuple[Refusal, ...] = ()
    untried: int = 0
    """Jobs and batches that were not reached: a service did not answer, or the caller stopped the verb."""
    stopped: str = ""
    """The service that did not answer; empty if the caller stopped the verb."""


def failed_of(session: Session, bid: str) -> list[str]:
    """The jobs of the batch that may be resumed."""
    rows = listings.readable(listings.job_rows(session, listings.of_batch(session, bid)))
    return [row.jid for row in rows if Event.RESUME in allowed_verbs(row)]


def act_on_many(
    operator: Operator,
    event: Event,
    names: Iterable[str],
    *,
    to: JobState | None = None,
    dry_run: bool = False,
) -> Outcome:
    """Raise `event` on these jobs and batches, one after the other; `to`: where jobs are to be resumed."""

    def act_on(part: Operator, name: str) -> VerbResult:
        return act(part, name, event, to=to, dry_run=dry_run, feeding=False)

    return _for_all(operator, event, list(names), act_on, dry_run)


def act_on_one(
    operator: Operator,
    event: Event,
    name: str,
    *,
    version: int | None = None,
    to: JobState | None = None,
    dry_run: bool = False,
) -> Outcome:
    """Raise `event` on this job or batch; raises what refuses it."""
    result = act(operator, name, event, version=version, to=to, dry_run=dry_run)
    return Outcome(verb=event, dry_run=dry_run, done=(result,))


def resume_batch(
    operator: Operator,
    bid: str,
    *,
    version: int | None = None,
    to: JobState | None = None,
    dry_run: bool = False,
) -> Outcome:
    """Resume the failed jobs of the batch; Moved if the batch has another version than its caller saw."""
    batch = recorded_batch(operator.site, operator.principal, bid)
    operator.require(f"resume {bid}", batch.profile_name)
    check_seen(batch, version)
    names = failed_of(operator.session, bid)
    return act_on_many(operator, Event.RESUME, names, to=to, dry_run=dry_run)


def repair_many(operator: Operator, names: list[str]) -> Outcome:
    """Replace what cannot be read of these jobs and batches; raises what refuses a single one."""
    if len(names) == 1:
        return Outcome(verb="repair", done=(repair(operator, names[0]),))

    def act_on(part: Operator, name: str) -> VerbResult:
        return repair(part, name, feeding=False)

    return _for_all(operator, "repair", names, act_on, False)


def cancel(operator: Operator, bid: str, *, version: int | None = None, dry_run: bool = False) -> Outcome:
    """Stop the batch: end its split or its report, fail its jobs that have not ended, delete the held ones.

    The report follows. After an interruption the same call stops the rest.
    """
    batch = recorded_batch(operator.site, operator.principal, bid)
    operator.require(f"cancel {bid}", batch.profile_name)
    check_seen(batch, version)
    stopped = stop_batch(operator, bid, dry_run=dry_run)
    unended = batches.jobs_in(operator.session, bid, Bucket.PROCESSING)
    if not unended and stopped is None:
        if batch.status.status is not BatchState.PROCESSING:
            raise IllegalTransition(
                f"{bid} is {batch.status.status}: it has ended, and no job of it is at work"
            )
        stopped = _finish(operator, batch, dry_run=dry_run)

    def stop(part: Operator, jid: str) -> VerbResult:
        try:
            return stop_job(part, jid, dry_run=dry_run)
        except Corrupt:
            if dry_run:
                return VerbResult(id=jid, was=WAS, now=JobState.FAILED)
            return repair(part, jid, feeding=False)

    outcome = _for_all(operator, "cancel", unended, stop, dry_run)
    done = outcome.done if stopped is None else (stopped, *outcome.done)
    return outcome.model_copy(update={"done": done})


def _finish(operator: Operator, batch: Batch, *, dry_run: bool) -> VerbResult:
    """Have a batch reported whose last job ended unnoticed, as the sweep does."""
    if not dry_run:
        operator.site.follow(batch)
    return VerbResult(id=batch.bid, was=batch.status.status, now=BatchState.REPORTING)


def _for_all(
    operator: Operator,
    verb: str,
    names: list[str],
    act_on: Callable[[Operator, str], VerbResult],
    dry_run: bool,
) -> Outcome:
    done: list[VerbResult] = []
    refused: list[Refusal] = []
    stopped = ""
    for number, name in enumerate(names):
        if operator.run.should_stop():
            break
        try:
            done.append(act_on(replace(operator, run=operator.run.part(number, len(names))), name))
        except Stopped:
            break
        except (ServiceUnreachable, Ambiguous) as error:
            stopped = str(error)
            break
        except ArklineError as error:
            refused.append(Refusal(id=name, message=str(error)))
        operator.run.on_progress(len(done) + len(refused), len(names))
    if done and not dry_run and not stopped:
        operator.site.feed()
    return Outcome(
        verb=verb,
        dry_run=dry_run,
        done=tuple(done),
        refused=tuple(refused),
        untried=len(names) - len(done) - len(refused),
        stopped=stopped,
    )


PLAN_SECONDS = 900.0
JOBS_OF_A_PLAN = 10_000

TOKEN_LIMIT = 200_000
"""Characters of a token."""

PLAIN_LIMIT = 500_000
"""Bytes of what a token says."""


class NoSuchPlan(ArklineError):
    """The token is of no dry run of this caller, or too old; nothing was changed."""

    error_kind = ErrorKind.REFUSED


class BulkPlan(Record):
    """What the verb would do; `token` carries it out."""

    token: str
    verb: Event
    jobs: int
    expected: tuple[VerbResult, ...]
    refused: tuple[Refusal, ...] = ()


class Receipt(Record):
    """What the verb did."""

    verb: Event
    done: tuple[VerbResult, ...] = ()
    refused: tuple[Refusal, ...] = ()
    moved: tuple[Refusal, ...] = ()
    """Jobs that changed after the dry run and were not touched."""
    untried: int = 0
    stopped: str = ""
    """The service that did not answer, so that `untried` jobs were not reached."""


class _Sealed(Record):
    """The content of a token. Every web process can read it, so any of them can carry out the plan."""

    verb: Event
    owner: str
    until: float
    """Seconds since the epoch."""
    to: JobState | None = None
    jobs: tuple[tuple[int, int], ...]
    """The number of a job, and the version of its status."""


@dataclass(frozen=True)
class Planned:
    """What a token asks for. It gives no right: the verb checks role, collection and version of every job."""

    verb: Event
    jobs: tuple[tuple[str, int], ...]
    """The id of a job, and the version that the dry run saw."""
    to: JobState | None = None
    """The state in which the jobs are to be resumed."""


def make_plan(operator: Operator, event: Event, names: Sequence[str], to: JobState | None = None) -> BulkPlan:
    """UsageRefused for more jobs than JOBS_OF_A_PLAN; Stopped."""
    if len(names) > JOBS_OF_A_PLAN:
        raise UsageRefused(
            f"{len(names):,} jobs are selected, and {JOBS_OF_A_PLAN:,} are accepted: select fewer, such "
            "as those of one batch or one cause"
        )
    expected: list[VerbResult] = []
    refused: list[Refusal] = []
    for name in names:
        operator.run.check(f"the dry run of {event} was stopped: nothing was changed")
        try:
            expected.append(act(operator, name, event, to=to, dry_run=True))
        except (ServiceUnreachable, Ambiguous):
            raise
        except ArklineError as error:
            refused.append(Refusal(id=name, message=str(error)))
    sealed = _Sealed(
        verb=event,
        owner=operator.principal.identity,
        until=time.time() + PLAN_SECONDS,
        to=to,
        jobs=tuple((int(one.id.removeprefix("jid")), one.version or 0) for one in expected),
    )
    return BulkPlan(
        token=urlsafe_b64encode(zlib.compress(sealed.model_dump_json().encode(), 9)).decode(),
        verb=event,
        jobs=len(expected),
        expected=tuple(expected),
        refused=tuple(refused),
    )


def read_plan(principal: Principal, event: Event, token: str) -> Planned:
    """What the dry run of this principal showed; NoSuchPlan for any other token."""
    sealed = _opened(token)
    if (sealed.verb, sealed.owner) != (event, principal.identity):
        raise NoSuchPlan(f"this is no token of your dry run of {event}: make the dry run again")
    if sealed.until < time.time():
        raise NoSuchPlan(f"the dry run is older than {PLAN_SECONDS / 60:.0f} minutes: make it again")
    jobs = tuple((f"jid{number:010d}", version) for number, version in sealed.jobs)
    return Planned(event, jobs, sealed.to)


def _opened(token: str) -> _Sealed:
    """NoSuchPlan for a token that is damaged, or larger than that of any plan."""
    try:
        inflated = zlib.decompressobj()
        text = inflated.decompress(urlsafe_b64decode(token.encode()), PLAIN_LIMIT)
        if not inflated.eof:
            raise NoSuchPlan("the token is not complete: make the dry run again")
        sealed = _Sealed.model_validate_json(text)
    except (ValueError, zlib.error) as error:
        raise NoSuchPlan("this is no token of a dry run: make the dry run again") from error
    if len(sealed.jobs) > JOBS_OF_A_PLAN or any(number < 0 for number, _ in sealed.jobs):
        raise NoSuchPlan("this is no token of a dry run: make the dry run again")
    return sealed


def carry_out(operator: Operator, plan: Planned) -> Receipt:
    """Do exactly what the plan says; a refusal of one job does not stop the others."""
    done: list[VerbResult] = []
    refused: list[Refusal] = []
    moved: list[Refusal] = []
    stopped = ""
    for jid, version in plan.jobs:
        if operator.run.should_stop():
            break
        try:
            done.append(act(operator, jid, plan.verb, version=version, to=plan.to, feeding=False))
        except Moved as error:
            moved.append(Refusal(id=jid, message=str(error)))
        except (ServiceUnreachable, Ambiguous) as error:
            stopped = str(error)
            break
        except ArklineError as error:
            refused.append(Refusal(id=jid, message=str(error)))
        operator.run.on_progress(len(done) + len(moved) + len(refused), len(plan.jobs))
    if done and not stopped:
        operator.site.feed()
    return Receipt(
        verb=plan.verb,
        done=tuple(done),
        refused=tuple(refused),
        moved=tuple(moved),
        untried=len(plan.jobs) - len(done) - len(refused) - len(moved),
        stopped=stopped,
    )
