"""Submitting: refuse what can be refused at once, record the submission, hand it to a worker."""

from operations.operator import follow
from pipeline import names
from pipeline.errors import UsageRefused
from pipeline.principal import Principal, Role
from pipeline.profiles.profile import Profiles
from pipeline.records import Record, Submission, SubmissionType
from pipeline.settings import Settings
from pipeline.states import BATCH
from pipeline.urls import has_password, url_problem
from zkstate import batches
from zkstate.session import Session


class Submitted(Record):
    """The batch's id; `again` if an earlier submission under the same idempotency key made the batch."""

    bid: str
    again: bool = False
    sent: bool = True
    """False if Redis did not take the message; the sweep sends the message later."""


def submission_type(url: str, given: SubmissionType | None) -> SubmissionType:
    """The type as given, or inferred from the URL's file name."""
    name = names.name_in(url)
    if given is not None:
        return given
    if name.lower().endswith(".checkm"):
        manifests = ", ".join(kind.label for kind in SubmissionType if "manifest" in kind)
        raise UsageRefused(f"{name} is a manifest: give its type, one of {manifests}")
    return SubmissionType.CONTAINER if names.is_container(name) else SubmissionType.FILE


def check_url(url: str) -> None:
    """Refuse a URL that no worker could fetch. The fetcher decides which networks are allowed."""
    if problem := url_problem(url):
        raise UsageRefused(problem)
    if has_password(url):
        raise UsageRefused(
            "the URL contains a password, which the record would keep and show: give a URL without one"
        )


def submit(
    session: Session, settings: Settings, profiles: Profiles, submission: Submission, principal: Principal
) -> Submitted:
    """Record the submission and hand it to a worker; if Redis is away, the sweep hands it out later."""
    principal.require(
        Role.DEPOSITOR, f"submit to collection {submission.profile_name}", submission.profile_name
    )
    profiles.get(submission.profile_name)
    check_url(submission.payload_url)
    owned = submission.model_copy(update={"owner": principal.identity})
    known = batches.submitted_under(session, owned)
    bid = batches.submit(session, owned)
    batch = batches.load(session, bid)
    sent = batch.status.status is not BATCH.initial or follow(session, settings, batch)
    return Submitted(bid=bid, again=bid == known, sent=sent)
