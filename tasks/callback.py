"""A failed job's callback: the depositor's system is told, or that it was not is noted with the job."""

from celery.exceptions import Ignore

from pipeline.errors import UsageRefused
from pipeline.outcome import StepFailed, system
from pipeline.states import JobState
from pipeline.steps.clients import Clients
from tasks.logs import log
from tasks.profiles import profile_of
from tasks.retry_policy import delay_before_retry
from tasks.worker_context import WorkerContext
from zkstate import callbacks, jobs
from zkstate.callbacks import Owed
from zkstate.errors import Ambiguous, Corrupt, Missing, Unreachable
from zkstate.locks import single_flight
from zkstate.session import Session


def tell_failed(context: WorkerContext, jid: str, epoch: int) -> None:
    """Tell of a job that failed and still is; what a later try of the job says is told then."""
    try:
        session = context.session()
        with single_flight(session, f"callback-{jid}") as alone:
            if alone is not None and (owed := callbacks.owed(session, jid, epoch)):
                tell(session, context.clients(), owed, context.name)
    except (Unreachable, Ambiguous) as error:
        log().warning("left to the sweep", jid=jid, error=str(error))
        context.drop_session()
        raise Ignore from error
    except Corrupt as damage:
        log().error("cannot be told of", jid=jid, error=str(damage))
        raise Ignore from damage


def tell(session: Session, clients: Clients, owed: Owed, by: str) -> None:
    """Make the callback, and settle or put off what is owed."""
    try:
        job = jobs.load(session, owed.jid)
    except Missing:
        callbacks.drop(session, owed)
        return
    if (job.status.status, job.status.epoch) != (JobState.FAILED, owed.epoch):
        callbacks.drop(session, owed)
        return
    try:
        profile = profile_of(session, clients.profiles, job.bid, job.configuration.profile_name)
        if profile.callback_url is None:
            callbacks.drop(session, owed)
            return
        clients.callback.deliver(job, profile, None)
        outcome = f"failure callback delivered to {profile.callback_url.host}"
    except (StepFailed, UsageRefused) as error:
        failure = error if isinstance(error, StepFailed) else system(str(error))
        delay = delay_before_retry(failure, owed.record.tries, clients.settings)
        if delay is not None:
            callbacks.put_off(session, owed, delay)
            log().warning("will be told again", jid=job.jid, message=failure.message, seconds=delay)
            return
        outcome = f"the depositor's system was not told of the failure: {failure.message}"
        log().error("a failure was not told", jid=job.jid, message=failure.message)
    callbacks.settle(session, job, owed, by, outcome)


def register(context: WorkerContext) -> None:
    def task(jid: str, epoch: int) -> None:
        tell_failed(context, jid, epoch)

    context.app.task(name="callback.failed", shared=False)(task)
