"""One verb for many jobs and batches: a refusal of one does not stop the others."""

from collections.abc import Callable, Iterable

from operations import batch_verbs, job_verbs
from operations.job_list import JobFilter, find
from operations.operator import Operator, VerbResult, feed
from pipeline.errors import ArklineError, ServiceUnreachable, UsageRefused
from pipeline.records import Record
from pipeline.remedies import Action, Remedy
from pipeline.states import BATCH, JOB, Bucket, Event, IllegalTransition, JobState, Raiser
from zkstate import batches, jobs
from zkstate.errors import Ambiguous
from zkstate.session import Session

_FOR_A_BATCH = {Event.FAIL: (Action.CANCEL,), Event.RESUME: (Action.RESUME_BATCH,)}
"""What does to the jobs of a batch what the event does to one job."""


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


def select(session: Session, filtered: JobFilter, event: Event) -> list[str]:
    """The jobs that a filter matches; without a state in it, those to which the event may happen."""
    return [
        row.jid
        for row in find(session, filtered)
        if filtered.state is not None or event in JOB.events(row.state, Raiser.OPERATOR)
    ]


def act_on_many(operator: Operator, event: Event, names: Iterable[str], *, dry_run: bool = False) -> Outcome:
    """Raise `event` on these jobs and batches, one after the other."""
    return _for_all(operator, event, list(names), lambda name: _act(operator, event, name, dry_run), dry_run)


def act_on_one(
    operator: Operator, event: Event, name: str, *, seen: int | None = None, dry_run: bool = False
) -> Outcome:
    """Raise `event` on this job or batch; raises what refuses it."""
    result = _act(operator, event, name, dry_run, seen)
    if not dry_run:
        feed(operator)
    return Outcome(verb=event, dry_run=dry_run, done=(result,))


def _act(operator: Operator, event: Event, name: str, dry_run: bool, seen: int | None = None) -> VerbResult:
    if name.startswith("bid"):
        _check_is_batch_verb(name, event)
        act = batch_verbs.possible if dry_run else batch_verbs.act_on_batch
        return act(operator, name, event, seen=seen)
    if event not in job_verbs.VERBS:
        raise UsageRefused(f"{event} is for batches; {name} is a job")
    if dry_run:
        return job_verbs.possible(operator, name, event, seen=seen)
    return job_verbs.act_on_job(operator, name, event, seen=seen, feeding=False)


def _check_is_batch_verb(bid: str, event: Event) -> None:
    if event not in batch_verbs.VERBS:
        refusal = UsageRefused(f"{event} is for jobs, and {bid} is a batch: name or select its jobs")
        raise refusal.with_remedies(*(Remedy(action, bid) for action in _FOR_A_BATCH.get(event, ())))


def cancel(operator: Operator, bid: str, *, dry_run: bool = False) -> Outcome:
    """Fail every job of the batch that has not ended, and delete the held ones; the report follows.

    After an interruption the same call stops the rest.
    """
    batch = batches.load(operator.session, bid)
    operator.require(f"cancel {bid}", batch.submission.profile_name)
    unended = batches.jobs_in(operator.session, bid, Bucket.PROCESSING)
    if batch.status.total is None and batch.status.status in BATCH.working():
        raise IllegalTransition(
            f"{bid} is not split into jobs yet: try again in a moment, or hold its collection"
        ).with_remedies(Remedy(Action.HOLD_COLLECTION, batch.submission.profile_name))
    if not unended:
        raise IllegalTransition(f"{bid} is {batch.status.status} and has no job that could be stopped")

    def stop(jid: str) -> VerbResult:
        event = _ending(jobs.load(operator.session, jid).status.status)
        if dry_run:
            return job_verbs.possible(operator, jid, event)
        return job_verbs.act_on_job(operator, jid, event, feeding=False)

    return _for_all(operator, "cancel", unended, stop, dry_run)


def _ending(state: JobState) -> Event:
    """The event that ends a job; a held job cannot fail, because it has not begun."""
    return Event.FAIL if Event.FAIL in JOB.events(state, Raiser.OPERATOR) else Event.DELETE


def _for_all(
    operator: Operator, verb: str, names: list[str], act: Callable[[str], VerbResult], dry_run: bool
) -> Outcome:
    done: list[VerbResult] = []
    refused: list[Refusal] = []
    stopped = ""
    for name in names:
        if operator.run.should_stop():
            break
        try:
            done.append(act(name))
        except (ServiceUnreachable, Ambiguous) as error:
            stopped = str(error)
            break
        except ArklineError as error:
            refused.append(Refusal(id=name, message=str(error)))
        operator.run.on_progress(len(done) + len(refused), len(names))
    if done and not dry_run and not stopped:
        feed(operator)
    return Outcome(
        verb=verb,
        dry_run=dry_run,
        done=tuple(done),
        refused=tuple(refused),
        untried=len(names) - len(done) - len(refused),
        stopped=stopped,
    )
