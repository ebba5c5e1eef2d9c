"""One verb for many jobs and batches: a refusal of one does not stop the others."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from operations.allowed_verbs import allowed_verbs, check_seen
from operations.operator import Operator, Stopped, VerbResult
from operations.repair import WAS, repair
from operations.verbs import act, stop_batch, stop_job
from operations.visibility import recorded_batch
from pipeline.errors import ArklineError, ServiceUnreachable
from pipeline.records import Batch, Record
from pipeline.states import BatchState, Bucket, Event, IllegalTransition, JobState
from zkstate import batches, listings, views
from zkstate.errors import Ambiguous, Corrupt
from zkstate.session import Session


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
    rows = views.readable(views.job_rows(session, listings.of_batch(session, bid)))
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
