"""One verb for many jobs: a refusal stops none of the others, and everything is summed up."""

from collections.abc import Callable, Iterable

from operations import batch_verbs, job_verbs
from operations.job_list import JobFilter, find
from operations.operator import Operator, VerbResult, feed
from pipeline.errors import ArklineError, ServiceUnreachable, UsageRefused
from pipeline.records import Record
from pipeline.states import BATCH, JOB, Bucket, Event, IllegalTransition, JobState, Raiser
from zkstate import batches, jobs
from zkstate.errors import Ambiguous
from zkstate.session import Session


class Refusal(Record):
    id: str
    message: str


class Outcome(Record):
    verb: str
    dry_run: bool = False
    done: tuple[VerbResult, ...] = ()
    refused: tuple[Refusal, ...] = ()
    stopped: str = ""
    """Why the rest was not tried, if a service went away in between."""

    @property
    def summary(self) -> str:
        would = "would be done" if self.dry_run else "done"
        parts = [f"{self.verb}: {len(self.done)} {would}"]
        if self.refused:
            parts.append(f"{len(self.refused)} refused")
        if self.stopped:
            parts.append(f"the rest not tried: {self.stopped}")
        return ", ".join(parts)


def chosen(session: Session, wanted: JobFilter, event: Event) -> list[str]:
    """The jobs that a filter means: of any state, if it names none, those to which the event may happen."""
    return [
        row.jid
        for row in find(session, wanted)
        if wanted.state is not None or event in JOB.events(row.state, Raiser.OPERATOR)
    ]


def act_on_many(operator: Operator, event: Event, names: Iterable[str], *, dry_run: bool = False) -> Outcome:
    """Raise `event` on each of these jobs and batches."""
    return _each(operator, event, names, lambda name: _act(operator, event, name, dry_run), dry_run=dry_run)


def act_on_one(operator: Operator, event: Event, name: str, *, dry_run: bool = False) -> Outcome:
    """Raise `event` on this job or batch; raises what refuses it."""
    acted = _act(operator, event, name, dry_run)
    if not dry_run:
        feed(operator)
    return Outcome(verb=event, dry_run=dry_run, done=(acted,))


def _act(operator: Operator, event: Event, name: str, dry_run: bool) -> VerbResult:
    if name.startswith("bid"):
        _check_is_batch_verb(name, event)
        verb = batch_verbs.possible if dry_run else batch_verbs.act_on_batch
        return verb(operator, name, event)
    if event not in job_verbs.VERBS:
        raise UsageRefused(f"{event} is for batches; {name} is a job")
    if dry_run:
        return job_verbs.possible(operator, name, event)
    return job_verbs.act_on_job(operator, name, event, feeding=False)


def _check_is_batch_verb(bid: str, event: Event) -> None:
    if event not in batch_verbs.VERBS:
        instead = (
            f"stop its jobs by `arkline cancel {bid}`"
            if event is Event.FAIL
            else f"choose its jobs by `arkline {event} --batch {bid}`"
        )
        raise UsageRefused(f"{event} is for jobs, and {bid} is a batch: {instead}")


def cancel(operator: Operator, bid: str, *, dry_run: bool = False) -> Outcome:
    """Fail every job of the batch that has not ended, and delete the held ones; then it is reported."""
    batch = batches.load(operator.session, bid)
    unended = batches.jobs_in(operator.session, bid, Bucket.PROCESSING)
    if batch.status.total is None and batch.status.status in BATCH.working():
        raise IllegalTransition(
            f"{bid} is not split into jobs yet: try again in a moment, or keep its jobs back by "
            f"`arkline hold --collection {batch.submission.profile_name}`"
        )
    if not unended:
        raise IllegalTransition(f"{bid} is {batch.status.status} and has no job that could be stopped")

    def stop(jid: str) -> VerbResult:
        event = _ending(jobs.load(operator.session, jid).status.status)
        if dry_run:
            return job_verbs.possible(operator, jid, event)
        return job_verbs.act_on_job(operator, jid, event, feeding=False)

    return _each(operator, "cancel", unended, stop, dry_run=dry_run)


def _ending(state: JobState) -> Event:
    """What ends a job that has not ended: a held one cannot fail, since nothing was begun."""
    return Event.FAIL if Event.FAIL in JOB.events(state, Raiser.OPERATOR) else Event.DELETE


def _each(
    operator: Operator, verb: str, names: Iterable[str], act: Callable[[str], VerbResult], *, dry_run: bool
) -> Outcome:
    done: list[VerbResult] = []
    refused: list[Refusal] = []
    stopped = ""
    for name in names:
        try:
            done.append(act(name))
        except (ServiceUnreachable, Ambiguous) as error:
            stopped = str(error)
            break
        except ArklineError as error:
            refused.append(Refusal(id=name, message=str(error)))
    if done and not dry_run and not stopped:
        feed(operator)
    return Outcome(verb=verb, dry_run=dry_run, done=tuple(done), refused=tuple(refused), stopped=stopped)
