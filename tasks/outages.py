"""Outages of shared services in a worker: what begins and ends one, and which work waits meanwhile."""

import socket
import threading
from collections.abc import Collection
from email.message import EmailMessage

from pipeline.checks import Stage
from pipeline.errors import UsageRefused
from pipeline.names import is_upload
from pipeline.notify.mail import outage_notice
from pipeline.notify.notification import event_of
from pipeline.notify.subscription import EventKind
from pipeline.outcome import Service, ServiceDown, StepFailed, WaitKind, WaitsFor
from pipeline.profiles.profile import Profile
from pipeline.records import Batch, Job
from pipeline.states import BATCH, JOB, JobState
from tasks.logs import log
from tasks.retry import OWN_AFTER, OWN_AFTER_MOUNTED
from tasks.worker_context import WorkerContext
from zkstate.connection.session import Session
from zkstate.fleet import outages
from zkstate.fleet.outages import FIRST_PROBE, Outage, name_of, outage_name
from zkstate.record import batches, record, subscriptions
from zkstate.record.record import R

HOST_PAUSE = 2.0
"""Seconds that a process waits after a record that its host cannot work on, so that a worker of another host
gets the next message."""


def this_host() -> str:
    return socket.gethostname()


def check_start(context: WorkerContext, session: Session, loaded: R) -> Collection[str] | None:
    """The outages that end if the work succeeds; None if the record was handed back to wait for one.

    A probe starts even if another service is unavailable: otherwise jobs that need both could probe neither.
    The sweep knew the outage that it probes; this worker may learn of it only later.
    """
    probe: str = loaded.status.probe
    probed = {probe} if probe else set()
    if not probe and not outages.known(session):
        return ()
    needed = probed.union(needs_of(context, loaded))
    blocking = [current.outage for current in outages.blocking(session, needed, this_host())]
    local = not any(outage.everywhere for outage in blocking)
    if not blocking or probe or (local and context.may_try(blocking[0].name)):
        return probed.union(outage.name for outage in blocking)
    outage = blocking[0]
    record.hand_back(
        session,
        loaded,
        context.name,
        message=outage.message,
        delay=FIRST_PROBE,
        waits_for=WaitsFor(kind=WaitKind.SERVICE, name=outage.name),
        lock=record.Lock.FREE,
        met=False,
    )
    log().info("waits for a shared service", id=loaded.id, service=outage.name)
    if local:
        threading.Event().wait(HOST_PAUSE)
    return None


def is_own_fault(session: Session, faults: int, fault: ServiceDown) -> bool:
    """Whether `fault`, which a record met after `faults` others, does not affect other records."""
    if fault.service is Service.WORKER_HOST:
        return False
    of_disk = fault.of_host or fault.service in (Service.STORAGE, Service.WORKING_STORAGE, Service.UPLOADS)
    if faults < (OWN_AFTER_MOUNTED if of_disk else OWN_AFTER):
        return False
    current = outages.known(session).get(name_of(fault))
    return current is None or not current.outage.blocks(this_host())


def begin_outage(session: Session, fault: ServiceDown) -> None:
    """Report the fault; the operator is notified of the first one."""
    if outages.report(session, fault, this_host()):
        name = name_of(fault)
        log().error("outage: a shared service is unavailable", service=name, error=fault.message)


def end_outage(session: Session, name: str) -> None:
    """End the outage: the service was used successfully."""
    if outages.succeeded(session, name, this_host()):
        log().warning("outage over: a shared service works again", service=name)


def notify_operator(context: WorkerContext, outage: Outage) -> None:
    """Mail the outage, or its end; tried once, because the notice is also in the log and in the journal."""
    try:
        context.clients().mailer.send(_notice(context, outage))
    except StepFailed as failure:
        log().warning("operator not notified by mail", service=outage.name, error=failure.message)


def tell_subscribers(context: WorkerContext, session: Session, outage: Outage) -> None:
    """Enter the outage, or its end, for subscribers; what was entered before is the same event."""
    at = outage.ended or outage.since
    event = event_of(_notice(context, outage), EventKind.OUTAGE, outage.name, int(at.timestamp()), at)
    subscriptions.enter(session, event)


def _notice(context: WorkerContext, outage: Outage) -> EmailMessage:
    return outage_notice(
        context.settings,
        outage.name,
        since=outage.since,
        message=outage.message,
        hosts=outage.hosts,
        ended=outage.ended,
        unproven=outage.unproven,
    )


JOB_NEEDS: dict[JobState, frozenset[Service]] = {
    JobState.DOWNLOADING: frozenset({Service.WORKING_STORAGE}),
    JobState.PROCESSING: frozenset({Service.INVENTORY, Service.STORAGE}),
    JobState.RECORDING: frozenset({Service.INVENTORY}),
}
"""State -> the services that every job needs in it. A job that needs another one waits once it met its fault.

States that read content also need working storage.
"""

CHECKING: dict[JobState, Stage] = {
    JobState.DOWNLOADING: Stage.DOWNLOADED,
    JobState.PROCESSING: Stage.DOWNLOADED,
    JobState.RECORDING: Stage.STORED,
    JobState.NOTIFY: Stage.RECORDED,
}
"""The states in which the checks of a profile run; in downloading, only those that come before a review."""

REPORT_NEEDS = frozenset({Service.MAIL, Service.INVENTORY})


def needs_of(context: WorkerContext, loaded: Job | Batch) -> Collection[str]:
    """The names of the outages that keep the record from being worked on in its state."""
    if isinstance(loaded, Batch):
        return REPORT_NEEDS if BATCH.facts[loaded.status.status].reports else ()
    state = loaded.status.status
    needs: set[str] = {*JOB_NEEDS.get(state, ())}
    if JOB.facts[state].reads_content:
        needs.add(Service.WORKING_STORAGE)
    if state is JobState.DOWNLOADING and is_upload(loaded.configuration.payload_url):
        needs.add(Service.UPLOADS)
    profile = _profile(context, loaded) if state in CHECKING else None
    if profile is None:
        return needs
    if profile.review or state is not JobState.DOWNLOADING:
        needs |= {
            outage_name(Service.CHECK, rule.name) for rule in profile.checks if rule.after is CHECKING[state]
        }
    if state is JobState.PROCESSING and context.clients().minter_of(profile).uses_service(profile):
        needs.add(Service.IDENTIFIERS)
    if state is JobState.NOTIFY and profile.callback_url is not None:
        needs.add(outage_name(Service.CALLBACK, profile.callback_url.host or ""))
    return needs


def _profile(context: WorkerContext, job: Job) -> Profile | None:
    """None if the profile is missing or invalid: the step meets the same fault, and reports it."""
    try:
        return batches.profile_of(context.session(), context.clients().profiles, job.bid, job.profile_name)
    except (StepFailed, UsageRefused):
        return None
