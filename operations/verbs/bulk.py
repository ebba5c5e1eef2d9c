"""One verb for many jobs and batches: a refusal of one does not stop the others.

A plan takes two steps: a dry run, and then exactly what the dry run showed. A plan's token has the version of
every job. A job that moved after the dry run is not touched, so using a token twice changes nothing.
"""

import time
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypedDict, Unpack

from operations.jobs.allowed_verbs import Moved, allowed_verbs, check_seen
from operations.run import UNWATCHED, Run, Stopped
from operations.site import Site
from operations.verbs.overruling import stopped_by
from operations.verbs.verbs import (
    OVERRULE_NEEDS_REASON,
    PLAIN,
    WAS,
    Resumption,
    VerbResult,
    act,
    repair,
    stop_batch,
    stop_job,
)
from operations.visibility import recorded_batch
from pipeline import codes
from pipeline.errors import ArklineError, ServiceUnreachable, UsageRefused
from pipeline.principal import Principal, Role
from pipeline.records import Record
from pipeline.states import BatchState, Bucket, Event, IllegalTransition, JobState
from zkstate.connection.session import Session
from zkstate.errors import Ambiguous, Corrupt
from zkstate.queue import listings
from zkstate.record import batches
from zkstate.record.journal import Stamp


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


def act_on_many(  # noqa: PLR0913 - the options of one verb
    site: Site,
    principal: Principal,
    event: Event,
    names: Iterable[str],
    *,
    reason: str = "",
    how: Resumption = PLAIN,
    dry_run: bool = False,
    run: Run = UNWATCHED,
) -> Outcome:
    """Raise `event` on these jobs and batches in turn; `how`: of jobs that are resumed."""

    def act_on(name: str, part: Run) -> VerbResult:
        return act(
            site, principal, name, event, reason=reason, how=how, dry_run=dry_run, feeding=False, run=part
        )

    return _on_each(site, event, list(names), act_on, run, dry_run=dry_run)


def resume_batch(  # noqa: PLR0913 - the options of one verb
    site: Site,
    principal: Principal,
    bid: str,
    *,
    reason: str = "",
    version: int | None = None,
    how: Resumption = PLAIN,
    dry_run: bool = False,
    run: Run = UNWATCHED,
) -> Outcome:
    """Resume the failed jobs of the batch; Moved if its version is not the one that the caller saw.

    To overrule findings, only the jobs that they stopped; UsageRefused if there is none.
    """
    batch = recorded_batch(site, principal, bid)
    principal.require(Role.OPERATOR, f"resume {bid}", batch.profile_name)
    check_seen(batch, version)
    names = failed_of(site.session, bid)
    if how.findings:
        names = stopped_by(site.session, names, how.findings)
        if not names:
            named = " or ".join(how.findings)
            raise UsageRefused(
                f"no failed job of {bid} was stopped by {named:.140}: `why` of a job names its findings"
            )
        if not (reason or dry_run):
            raise UsageRefused(OVERRULE_NEEDS_REASON)
    return act_on_many(site, principal, Event.RESUME, names, reason=reason, how=how, dry_run=dry_run, run=run)


def cancel(  # noqa: PLR0913 - the options of one verb
    site: Site,
    principal: Principal,
    bid: str,
    *,
    reason: str = "",
    version: int | None = None,
    dry_run: bool = False,
    run: Run = UNWATCHED,
) -> Outcome:
    """Stop the batch: end its split or its report, end its unfinished jobs, delete the held ones.

    The report follows. After an interruption, calling it again stops the rest.
    """
    batch, stamp = recorded_batch(site, principal, bid), Stamp.of(principal, reason)
    principal.require(Role.OPERATOR, f"cancel {bid}", batch.profile_name)
    check_seen(batch, version)
    stopped = stop_batch(site, stamp, bid, dry_run=dry_run)
    unended = batches.jobs_in(site.session, bid, Bucket.PROCESSING)
    if not unended and stopped is None:
        if batch.status.status is not BatchState.PROCESSING:
            raise IllegalTransition(
                f"{bid} is {batch.status.status}: it has ended, and no job of it is at work"
            )
        if not dry_run:
            site.follow(batch)  # its last job's end went unnoticed: report the batch, as the sweep would
        stopped = VerbResult(id=bid, was=batch.status.status, now=BatchState.REPORTING)

    def stop(jid: str, _: Run) -> VerbResult:
        try:
            return stop_job(site, stamp, jid, dry_run=dry_run)
        except Corrupt:
            if dry_run:
                return VerbResult(id=jid, was=WAS, now=JobState.FAILED)
            return repair(site, principal, jid, reason=reason, feeding=False)

    outcome = _on_each(site, "cancel", unended, stop, run, dry_run=dry_run)
    done = outcome.done if stopped is None else (stopped, *outcome.done)
    return outcome.model_copy(update={"done": done})


def _on_each(
    site: Site,
    verb: str,
    names: Sequence[str],
    act_on: Callable[[str, Run], VerbResult | None],
    run: Run,
    *,
    dry_run: bool = False,
) -> Outcome:
    """Act on each name in turn; `act_on` returns None for a job that it leaves alone."""
    done: list[VerbResult] = []
    refused: list[Refusal] = []
    stopped, tried = "", 0
    for name in names:
        if run.should_stop():
            break
        try:
            if (result := act_on(name, run.part(tried, len(names)))) is not None:
                done.append(result)
        except Stopped:
            break
        except (ServiceUnreachable, Ambiguous) as error:
            stopped = str(error)
            break
        except ArklineError as error:
            refused.append(Refusal(id=name, message=str(error)))
        tried += 1
        run.on_progress(tried, len(names))
    if done and not dry_run and not stopped:
        site.feed()
    return Outcome(
        verb=verb,
        dry_run=dry_run,
        done=tuple(done),
        refused=tuple(refused),
        untried=len(names) - tried,
        stopped=stopped,
    )


class Options(TypedDict, total=False):
    """Those of `act` that a plan uses."""

    reason: str
    version: int | None
    dry_run: bool
    run: Run


def _act_on(
    site: Site, principal: Principal, name: str, event: Event, how: Resumption, **options: Unpack[Options]
) -> VerbResult:
    """One verb on one job or batch of a plan; a batch is resumed and cancelled (FAIL) with its jobs."""
    if name.startswith("jid") or event not in (Event.RESUME, Event.FAIL):
        return act(site, principal, name, event, how=how, feeding=False, **options)
    batch = recorded_batch(site, principal, name)
    on_jobs = cancel if event is Event.FAIL else partial(resume_batch, how=how)
    outcome = on_jobs(site, principal, name, **options)
    if outcome.stopped:
        raise ServiceUnreachable(outcome.stopped)
    if not outcome.done:
        refusals = (refusal.message for refusal in outcome.refused)
        raise UsageRefused(next(refusals, f"{name} has no failed job that can be resumed"))
    stopping = BatchState.REPORTING if event is Event.FAIL else batch.status.status
    return VerbResult(
        id=name,
        was=batch.status.status,
        now=stopping if options.get("dry_run") else batches.state_of(site.session, name) or stopping,
        version=batch.version,
        jobs=sum(result.id != name for result in outcome.done),
        refused_jobs=len(outcome.refused),
        complete=not outcome.untried,
    )


PLAN_SECONDS = 900.0
JOBS_OF_A_PLAN = 10_000

TOKEN_LIMIT = 200_000
"""Maximum length of a token in characters."""

PLAIN_LIMIT = 500_000
"""Maximum size of a token's uncompressed content in bytes."""


class BulkPlan(Record):
    """What the verb would do; `token` carries it out."""

    token: str
    verb: Event
    jobs: int
    """Jobs and batches on which it would act."""
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


class Planned(Record):
    """The content of a token. Every web process can read it, so any of them can carry out the plan.

    It grants no rights: the verb checks role, collection and version of every job and batch.
    """

    verb: Event
    owner: str
    until: float
    """Seconds since the epoch."""
    to: JobState | None = None
    """The state in which the jobs are to be resumed."""
    findings: tuple[str, ...] = ()
    """The findings that no longer stop the jobs."""
    jobs: tuple[tuple[int, int], ...]
    """The number of a job, and the version of its status that the dry run saw."""
    batches: tuple[tuple[int, int], ...] = ()
    """The same of batches."""

    @property
    def versions(self) -> dict[str, int]:
        """JID or BID -> the version."""
        kinds = {"jid": self.jobs, "bid": self.batches}
        return {
            f"{kind}{number:010d}": version for kind, numbers in kinds.items() for number, version in numbers
        }


def make_plan(
    site: Site,
    principal: Principal,
    event: Event,
    names: Sequence[str],
    how: Resumption = PLAIN,
    run: Run = UNWATCHED,
) -> BulkPlan:
    """Perform the dry run; UsageRefused for more jobs than JOBS_OF_A_PLAN; Stopped."""
    if len(names) > JOBS_OF_A_PLAN:
        raise UsageRefused(
            f"{len(names):,} jobs or batches are selected, and {JOBS_OF_A_PLAN:,} are accepted: select "
            "fewer, such as those of one batch or one cause"
        )
    expected: list[VerbResult] = []
    refused: list[Refusal] = []
    for name in names:
        try:
            expected.append(_act_on(site, principal, name, event, how, dry_run=True, run=run))
        except (ServiceUnreachable, Ambiguous):
            raise
        except ArklineError as error:
            refused.append(Refusal(id=name, message=str(error)))
        run.check(f"the dry run of {event} was stopped: nothing was changed")
    versions = [(one.id[:3], int(one.id[3:]), one.version or 0) for one in expected]
    planned = Planned(
        verb=event,
        owner=principal.identity,
        until=time.time() + PLAN_SECONDS,
        **dict(how),
        jobs=tuple((number, version) for kind, number, version in versions if kind == "jid"),
        batches=tuple((number, version) for kind, number, version in versions if kind == "bid"),
    )
    return BulkPlan(
        token=urlsafe_b64encode(zlib.compress(planned.model_dump_json().encode(), 9)).decode(),
        verb=event,
        jobs=len(expected),
        expected=tuple(expected),
        refused=tuple(refused),
    )


def read_plan(principal: Principal, event: Event, token: str) -> Planned:
    """The plan from this principal's dry run; `no-such-plan` for any other token."""
    planned = _opened(token)
    if (planned.verb, planned.owner) != (event, principal.identity):
        raise ArklineError(
            f"this is no token of your dry run of {event}: make the dry run again", code=codes.NO_SUCH_PLAN
        )
    if planned.until < time.time():
        raise ArklineError(
            f"the dry run is older than {PLAN_SECONDS / 60:.0f} minutes: make it again",
            code=codes.NO_SUCH_PLAN,
        )
    return planned


def _opened(token: str) -> Planned:
    """Decode a token; `no-such-plan` if it is damaged, or larger than any plan's."""
    try:
        inflated = zlib.decompressobj()
        text = inflated.decompress(urlsafe_b64decode(token.encode()), PLAIN_LIMIT)
        if not inflated.eof:
            raise ArklineError("the token is not complete: make the dry run again", code=codes.NO_SUCH_PLAN)
        planned = Planned.model_validate_json(text)
    except (ValueError, zlib.error) as error:
        raise ArklineError(
            "this is no token of a dry run: make the dry run again", code=codes.NO_SUCH_PLAN
        ) from error
    numbers = [number for number, _ in (*planned.jobs, *planned.batches)]
    if len(numbers) > JOBS_OF_A_PLAN or any(number < 0 for number in numbers):
        raise ArklineError("this is no token of a dry run: make the dry run again", code=codes.NO_SUCH_PLAN)
    return planned


def carry_out(
    site: Site, principal: Principal, plan: Planned, *, reason: str = "", run: Run = UNWATCHED
) -> Receipt:
    """Do exactly what the plan says; a refusal of one job does not stop the others."""
    if plan.findings and not reason:
        raise UsageRefused(OVERRULE_NEEDS_REASON)
    versions = plan.versions
    how = Resumption(to=plan.to, findings=plan.findings)
    moved: list[Refusal] = []

    def act_on(name: str, part: Run) -> VerbResult | None:
        try:
            return _act_on(
                site, principal, name, plan.verb, how, reason=reason, version=versions[name], run=part
            )
        except Moved as error:
            moved.append(Refusal(id=name, message=str(error)))
            return None

    outcome = _on_each(site, plan.verb, tuple(versions), act_on, run)
    return Receipt(
        verb=plan.verb,
        done=outcome.done,
        refused=outcome.refused,
        moved=tuple(moved),
        untried=outcome.untried,
        stopped=outcome.stopped,
    )
