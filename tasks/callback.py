"""The callback of a failed job: the depositor's system is notified, or the job's history says why not."""

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.errors import UsageRefused
from pipeline.outcome import Service, ServiceDown, StepFailed, system, transient
from pipeline.settings import Settings
from pipeline.states import JobState
from pipeline.steps.context import Clients
from tasks.logs import log
from tasks.outages import begin_outage, end_outage, is_own_fault, this_host
from tasks.retry import delay_before_retry, giving_up
from tasks.worker_context import WorkerContext
from zkstate.connection.clock import ServerClock
from zkstate.connection.locks import AttemptGuard, single_flight
from zkstate.connection.session import Session
from zkstate.errors import Missing
from zkstate.fleet import outages
from zkstate.fleet.outages import FIRST_PROBE, outage_name
from zkstate.record import batches, callbacks, jobs
from zkstate.record.callbacks import Owed
from zkstate.record.journal import Stamp

NOT_DELIVERED = "failure callback not delivered"
"""Prefix of the history entry of a failed job whose callback could not be delivered."""


def deliver_once(context: WorkerContext, jid: str, epoch: int) -> None:
    """Deliver the callback of the failure in `epoch`, unless another worker is delivering it."""
    with giving_up(context, jid=jid):
        session = context.session()
        with single_flight(session, f"callback-{jid}") as clock:
            if clock is not None and (owed := callbacks.owed(session, jid, epoch)):
                guard = AttemptGuard(session, context.stopping)
                deliver(session, context.clients(), owed, context.name, clock, guard)


def deliver(
    session: Session,
    clients: Clients,
    owed: Owed,
    by: str,
    clock: ServerClock,
    attempt: Attempt = UNATTENDED,
) -> None:
    """Deliver the callback, then settle it or put it off; drop it if the job has moved since.

    While its receiver is unavailable, the callback is put off and no try is counted, unless a probe is due.
    If the receiver works for others and fails at this one again, that counts as a try.
    """
    try:
        job = jobs.load(session, owed.jid)
    except Missing:
        callbacks.drop(session, owed)
        return
    if (job.status.status, job.status.epoch) != (JobState.FAILED, owed.epoch):
        callbacks.drop(session, owed)
        return
    try:
        profile = batches.profile_of(session, clients.profiles, job.bid, job.configuration.profile_name)
        if profile.callback_url is None:
            callbacks.drop(session, owed)
            return
        name = outage_name(Service.CALLBACK, profile.callback_url.host or "")
        down = outages.blocking(session, [name], this_host())
        if down and not outages.take_probe(session, down[0], clock):
            waiting = down[0].outage
            callbacks.put_off(session, owed, waiting.probe_after, tried=False, message=waiting.message)
            return
        clients.callback.deliver(job, profile, None, attempt)
        if down:
            end_outage(session, name)
        outcome = f"failure callback delivered to {profile.callback_url.host}"
    except ServiceDown as fault:
        if not is_own_fault(session, owed.record.service_faults, fault):
            begin_outage(session, fault)
            callbacks.put_off(session, owed, FIRST_PROBE, tried=False, outage=True, message=fault.message)
            return
        outcome = _given_up(session, owed, transient(fault.message, fault.retry_after), clients.settings)
    except (StepFailed, UsageRefused) as error:
        failure = error if isinstance(error, StepFailed) else system(str(error))
        outcome = _given_up(session, owed, failure, clients.settings)
    if outcome:
        callbacks.settle(session, job, owed, Stamp(by=by), outcome)


def _given_up(session: Session, owed: Owed, failure: StepFailed, settings: Settings) -> str:
    """What the history says of a callback that is given up; empty if this try was not the last."""
    delay = delay_before_retry(failure, owed.record.tries, settings)
    if delay is not None:
        callbacks.put_off(session, owed, delay, message=failure.message)
        log().warning("callback retry scheduled", jid=owed.jid, message=failure.message, seconds=delay)
        return ""
    log().error("failure callback not delivered", jid=owed.jid, message=failure.message)
    return f"{NOT_DELIVERED}: {failure.message}"


def register(context: WorkerContext) -> None:
    context.add_task("callback.failed", deliver_once)
