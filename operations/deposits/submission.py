"""Submitting: refuse early what can be refused, record the submission, and dispatch it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

from operations.deposits import uploads
from pipeline import codes, names
from pipeline.errors import Action, ArklineError, Remedy, UsageRefused, first_fault
from pipeline.fixity import LARGEST_FILE
from pipeline.http.urls import has_password, url_problem
from pipeline.names import is_upload
from pipeline.outcome import Service, ServiceDown
from pipeline.principal import Principal, Role
from pipeline.records import Record, Submission, SubmissionType
from pipeline.settings import accepted_jobs, limit_of
from pipeline.states import BATCH, BatchState
from zkstate.connection import server_facts
from zkstate.fleet import outages
from zkstate.queue import listings
from zkstate.record import batches

if TYPE_CHECKING:
    from operations.site import Site
    from pipeline.profiles.profile import Profile
    from pipeline.records import Batch
    from pipeline.settings import Settings
    from zkstate.connection.session import Session


class Submitted(Record):
    """The batch's id; `again` if an earlier submission under the same idempotency key made the batch."""

    bid: str
    again: bool = False
    sent: bool = True
    """False if Redis did not take the message; the sweep sends the message later."""


def checked(values: Mapping[str, object]) -> Submission:
    """The submission with these fields; UsageRefused names the first invalid one."""
    try:
        submission = Submission.model_validate(values)
    except ValidationError as error:
        raise UsageRefused(first_fault(error)) from error
    if (submission.size or 0) > LARGEST_FILE:  # the record may have larger ones, of earlier releases
        raise UsageRefused(f"size: no file has more than {LARGEST_FILE:,} bytes; give its real size, or none")
    return submission


def submission_type(url: str, given: SubmissionType | None, name: str = "") -> SubmissionType:
    """The type as given, or inferred from the name or, without a name, from the URL."""
    name = name or names.name_in(url)
    if given is not None:
        return given
    if name.lower().endswith(".checkm"):
        manifests = ", ".join(kind.label for kind in SubmissionType if "manifest" in kind)
        raise UsageRefused(f"{name} is a manifest: give its type, one of {manifests}")
    return SubmissionType.CONTAINER if names.is_container(name) else SubmissionType.FILE


def given_name(url: str, name: str) -> str:
    """The name that the depositor gave the payload, or its upload; '' for none. An unsafe name is refused."""
    if not name:
        return names.name_in(url) if is_upload(url) else ""
    try:
        return names.safe_name(name, names.PRODUCER)
    except names.UnsafeName as error:
        raise UsageRefused(f"{error}: give another name") from error


def check_url(url: str) -> None:
    """Refuse a URL that no worker could fetch. The fetcher decides which networks are allowed."""
    if problem := url_problem(url):
        raise UsageRefused(problem)
    if has_password(url):
        raise UsageRefused(
            "the URL contains a password, which the record would keep and show: give a URL without one"
        )


def owned(submission: Submission, principal: Principal) -> Submission:
    """The submission with this principal as owner; Forbidden unless it may submit to the collection.

    An unset `new_version` means no.
    """
    name = submission.profile_name
    principal.require(Role.DEPOSITOR, f"submit to collection {name}", name)
    said = {"owner": principal.identity, "new_version": bool(submission.new_version)}
    return submission.model_copy(update=said)


class OldRecord(ServiceDown):
    """A person has to end this outage: to try again is of no use."""

    code = codes.RECORD_OUTDATED


def _require_current_record(session: Session) -> None:
    known = outages.known(session).get(Service.RECORD)
    if known is not None and known.outage.blocks():
        raise OldRecord(
            Service.RECORD,
            f"nothing was submitted, because {known.outage.message}; submit again when this outage is over",
        ).with_remedies(Remedy(Action.SHOW_STATUS))


def check_said(chosen: Profile, submission: Submission) -> None:
    """Refuse a name that no deposit may have, and too many recipients.

    An entry has one address, so that the limit on entries is a limit on recipients.
    """
    if submission.deposit_name is not None:
        try:
            names.check_deposit_name(submission.deposit_name)
        except names.UnsafeName as error:
            raise UsageRefused(f"{error}: give another name") from error
    limit = chosen.limits.recipients
    if limit is not None and (given := len(names.mail_addresses(submission.notification))) > limit:
        raise UsageRefused(
            f"the submission names {given} mail addresses for its report, and {limit} are accepted: name "
            "fewer, or ask the operator to raise ARKLINE_RECIPIENTS, or limits.recipients of the profile"
        )
    for entry in submission.notification:
        if len(names.mail_addresses([entry])) > 1:
            raise UsageRefused(f"{names.quote_name(entry)} is several mail addresses: name each by itself")


def _require_room(session: Session, settings: Settings) -> None:
    """Refuse if the record is full: it is in ZooKeeper's memory, and exceeding that stops ZooKeeper for
    all."""
    heap = server_facts.heap_bytes(session) if settings.record_jobs else None
    if 0 < (accepted := accepted_jobs(settings, heap)) <= (recorded := listings.recorded(session)):
        limit = limit_of(settings, heap)
        raise ArklineError(
            f"nothing was submitted, because the record has {recorded:,} jobs, and {limit} is {accepted:,}: "
            "submit again when batches that have ended have left, or an operator raises ARKLINE_RECORD_JOBS "
            "and ZooKeeper's heap",
            code=codes.RECORD_FULL,
        ).with_remedies(Remedy(Action.CLEAN_UP))


def submit(
    site: Site,
    principal: Principal,
    submission: Submission,
    counts: Callable[[Batch], bool] = lambda batch: True,
) -> Submitted:
    """Record the submission and dispatch it; while Redis is unreachable, the sweep dispatches it later.

    `counts`: whether an earlier batch with the idempotency key is the answer; else another is made.
    ServiceDown if the record is known to be an older copy: a submission to it would be lost when the newer
    data are restored.
    """
    submission = owned(submission, principal)
    session, settings = site.session, site.settings
    chosen = site.profile(submission.profile_name)
    check_url(submission.payload_url)
    check_said(chosen, submission)
    _require_current_record(session)

    def prepare() -> None:
        _require_room(session, settings)
        uploads.use_upload(site, principal, submission)

    batch, again = batches.submit_once(session, submission, prepare, counts)
    sent = batch.status.status is not BATCH.initial or site.follow(batch)
    return Submitted(bid=batch.bid, again=again, sent=sent)


def submit_same(site: Site, principal: Principal, submission: Submission) -> Submitted:
    """Submit under a key made of the content: the same content in another upload is the same deposit."""
    key = submission.idempotency_key or ""
    try:
        return submit(site, principal, submission, _counts)
    except UsageRefused as refused:
        other = batch_under(site, principal, key) if refused.code is codes.KEY_REUSED else None
        if other is None:
            raise
        return Submitted(bid=other, again=True)  # made of another upload


def batch_under(site: Site, principal: Principal, key: str) -> str | None:
    """The batch that was made under this key, if it counts."""
    batch = batches.under_key(site.session, key, principal.identity) if key else None
    return batch.bid if batch is not None and _counts(batch) else None


def _counts(batch: Batch) -> bool:
    """Whether the batch is the answer to the same deposit."""
    return batch.status.status not in (BatchState.FAILED, BatchState.UPDATE_REPORTING, BatchState.DELETED)
