"""Callbacks for operators: pending ones, immediate delivery, and a test of a receiver.

A delivery or a test sends one request from this process, checked and signed like those of the workers.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from operations.site import Site
from operations.verbs.verbs import retry_stale
from operations.visibility import in_sight, recorded_job, sees_fleet
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.notify.callback import HttpCallback, callback_secrets_of
from pipeline.outcome import Service, StepFailed
from pipeline.principal import Interface, Principal, Role
from pipeline.profiles.profile import Profile
from pipeline.records import Job, Record
from pipeline.states import JobState
from tasks.logs import log
from tasks.outages import end_outage
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session
from zkstate.errors import Busy, Missing
from zkstate.fleet import outages
from zkstate.fleet.outages import outage_name
from zkstate.queue import listings
from zkstate.queue.listings import JobRow
from zkstate.record import batches, callbacks, jobs
from zkstate.record.callbacks import Owed
from zkstate.record.journal import Stamp

SCANNED = 2000
"""Maximum number of callbacks that one page reads; the principal may see fewer of them."""


class OwedView(Record):
    """A callback of a failed job that was not delivered yet."""

    jid: str
    bid: str
    collection: str
    since: datetime
    """When the job failed."""
    tries: int
    next_try: datetime
    """Not before then, and once a worker is free."""
    message: str = ""
    """Why the last try failed."""


class OwedPage(Record):
    callbacks: tuple[OwedView, ...]
    owed: int
    """All that are owed, of every collection; 0 for those who do not see every collection."""
    next: str | None = None


class CallbackAnswer(Record):
    """What a receiver answered to one request."""

    collection: str
    jid: str = ""
    """Empty: a test."""
    receiver: str
    """Its URL, without secrets."""
    delivered: bool
    message: str
    signed: bool
    seconds: float


def owed_page(site: Site, principal: Principal, limit: int, after: str | None = None) -> OwedPage:
    """Pending callbacks of jobs that the principal may see, in job number order."""
    session = site.session
    names = callbacks.names(session)
    later = [name for name in names if after is None or name > after]
    rows: list[OwedView] = []
    owners: dict[str, str] = {}
    read = 0
    for view in _owed_views(session, later[:SCANNED]):
        read += 1
        if view is not None and _seen(session, principal, view, owners):
            rows.append(view)
        if len(rows) == limit:
            break
    return OwedPage(
        callbacks=tuple(rows),
        owed=len(names) if sees_fleet(principal) else 0,
        next=later[read - 1] if read < len(later) else None,
    )


def deliver(site: Site, principal: Principal, jid: str, *, reason: str = "") -> CallbackAnswer:
    """Deliver the callback of a completed or failed job now, even if it was already delivered or given up.

    The delivery is entered in the job's history. UsageRefused if there is nothing to deliver, Missing if the
    job has left ZooKeeper, Busy while a worker is delivering it.
    """
    session = site.session
    job = recorded_job(site, principal, jid)
    collection, state = job.configuration.profile_name, job.status.status
    principal.require(Role.OPERATOR, f"deliver the callback of {jid}", collection)
    if state not in (JobState.COMPLETED, JobState.FAILED):
        raise UsageRefused(f"{jid} is {state}: a callback is delivered once a job is completed or has failed")
    if state is JobState.FAILED and job.status.last_successful_status is JobState.RECORDING:
        stored = UsageRefused(
            f"the object of {jid} is stored, and its callback would say that the job failed; one that says "
            "that the object is stored is delivered if the job is resumed"
        )
        raise stored.with_remedies(Remedy(Action.RESUME, jid))
    profile = batches.profile_of(session, site.profiles, job.bid, collection)
    with _only_one(session, f"callback-{jid}", f"the callback of {jid} is being delivered"):
        owed = callbacks.owed(session, jid, job.status.epoch) if state is JobState.FAILED else None
        number = None if state is JobState.FAILED else _version_number(site, job)
        http = HttpCallback(site.settings)
        answer = _asked(site, principal, profile, jid, lambda: http.deliver_once(job, profile, number))
        if answer.delivered:
            _settle(session, job, owed, profile, Stamp.of(principal, reason))
        elif owed is not None:
            callbacks.put_off(session, owed, owed.record.delay, tried=False, message=answer.message)
    return answer


def send_test(site: Site, principal: Principal, name: str) -> CallbackAnswer:
    """Send a test to the collection's receiver; ProfileError if there is no such collection.

    UsageRefused if the profile names no receiver, Busy while another test is being sent.
    """
    principal.require(Role.OPERATOR, f"send a test callback of {name}", name)
    profile = site.profiles.get(name)
    with _only_one(site.session, f"callback-test-{name}", f"a test callback of {name} is being sent"):
        http = HttpCallback(site.settings)
        answer = _asked(site, principal, profile, "", lambda: http.send_test(profile))
    log().info("test callback sent", profile=name, by=principal.name, message=answer.message)
    return answer


def _asked(
    site: Site, principal: Principal, profile: Profile, jid: str, send: Callable[[], int]
) -> CallbackAnswer:
    """Send one request; returns the receiver's answer. UsageRefused if the profile names no receiver."""
    address = profile.callback_address
    if address is None:
        raise UsageRefused(
            f"the profile {profile.name} has no callback_url: write the URL of the receiver in the profile"
        )
    began = time.monotonic()
    delivered, signed = True, False
    try:
        signed = bool(callback_secrets_of(site.settings, profile.name))
        _check_signed(principal, profile, signed=signed)
        message = f"the receiver answered {send()}"
    except StepFailed as failure:
        delivered, message = False, failure.message
    return CallbackAnswer(
        collection=profile.name,
        jid=jid,
        receiver=address,
        delivered=delivered,
        message=message,
        signed=signed,
        seconds=round(time.monotonic() - began, 3),
    )


def _check_signed(principal: Principal, profile: Profile, *, signed: bool) -> None:
    """UsageRefused for a web process without the secret: workers may have it, and sign their requests."""
    if not signed and principal.interface in (Interface.API, Interface.WEB):
        raise UsageRefused(
            f"the web process has no secret to sign the callbacks of {profile.name}: send this from a host "
            "of the workers by the command callback, or give the web process ARKLINE_CALLBACK_SECRET"
        )


def _settle(session: Session, job: Job, owed: Owed | None, profile: Profile, stamp: Stamp) -> None:
    host = profile.callback_url.host if profile.callback_url else None
    outage = outage_name(Service.CALLBACK, host or "")
    if outage in outages.known(session):
        end_outage(session, outage)
    if owed is not None:
        outcome = f"failure callback delivered to {host}{stamp.because}"
        callbacks.settle(session, job, owed, stamp, outcome)
    else:
        outcome = f"callback repeated to {host}{stamp.because}"

        def note() -> None:
            callbacks.note(session, jobs.load(session, job.jid), stamp, outcome)

        retry_stale(job.jid, note)


def _version_number(site: Site, job: Job) -> int | None:
    """The number of the version that the job stored, according to the inventory."""
    ark = job.identifiers.primary_id
    known = site.inventory().describe_object(ark) if ark else None
    numbers = (version.number for version in known.versions if version.jid == job.jid) if known else ()
    return next(iter(numbers), None)


@contextmanager
def _only_one(session: Session, name: str, busy: str) -> Iterator[None]:
    with single_flight(session, name) as clock:
        if clock is None:
            raise Busy(f"{busy} at this moment: look at the job in a minute")
        yield


def _owed_views(session: Session, names: list[str]) -> Iterator[OwedView | None]:
    """The callback of each name; None if the callback or its job is gone or cannot be read."""
    for start in range(0, len(names), listings.READ_PAGE):
        part = names[start : start + listings.READ_PAGE]
        owed = {one.name: one for one in callbacks.read(session, part)}
        jids = [one.jid for one in owed.values()]
        rows = {row.jid: row for row in listings.readable(listings.job_rows(session, jids))}
        for name in part:
            one = owed.get(name)
            row = rows.get(one.jid) if one else None
            yield _view(one, row) if one and row else None


def _view(owed: Owed, row: JobRow) -> OwedView:
    facts = {**dict(owed.record), "since": owed.since, "next_try": owed.next_try}
    return OwedView(**facts, jid=row.jid, bid=row.bid, collection=row.profile)


def _seen(session: Session, principal: Principal, view: OwedView, owners: dict[str, str]) -> bool:
    if principal.role is Role.DEPOSITOR and view.bid not in owners:
        try:
            owners[view.bid] = batches.load(session, view.bid).submission.owner
        except Missing:
            owners[view.bid] = ""  # no owner if the batch is gone
    return in_sight(principal, view.collection, owners.get(view.bid, ""))
