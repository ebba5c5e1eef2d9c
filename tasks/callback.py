"""The callback of a failed job: the depositor's system is notified, or the job's history says why not."""

from pipeline.errors import UsageRefused
from pipeline.outcome import StepFailed, system
from pipeline.states import JobState
from pipeline.steps.clients import Clients
from tasks.logs import log
from tasks.profiles import profile_of
from tasks.retry_policy import delay_before_retry
from tasks.run import giving_up
from tasks.worker_context import WorkerContext
from zkstate import callbacks, jobs
from zkstate.callbacks import Owed
from zkstate.errors import Missing
from zkstate.locks import single_flight
from zkstate.session import Session

NOT_DELIVERED = "failure callback not delivered"
"""Prefix of the history entry of a failed job whose callback could not be delivered."""


def deliver_once(context: WorkerContext, jid: str, epoch: int) -> None:
    """Deliver the callback of the failure in `epoch`, unless another worker is delivering it."""
    with giving_up(context, jid=jid):
        session = context.session()
        with single_flight(session, f"callback-{jid}") as clock:
            if clock is not None and (owed := callbacks.owed(session, jid, epoch)):
                deliver(session, context.clients(), owed, context.name)


def deliver(session: Session, clients: Clients, owed: Owed, by: str) -> None:
    """Make the callback, and settle it or put it off. A job that has moved on is not called back for."""
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
            log().warning("callback retry scheduled", jid=job.jid, message=failure.message, seconds=delay)
            return
        outcome = f"{NOT_DELIVERED}: {failure.message}"
        log().error("failure callback not delivered", jid=job.jid, message=failure.message)
    callbacks.settle(session, job, owed, by, outcome)


def register(context: WorkerContext) -> None:
    def task(jid: str, epoch: int) -> None:
        deliver_once(context, jid, epoch)

    context.app.task(name="callback.failed", shared=False)(task)
