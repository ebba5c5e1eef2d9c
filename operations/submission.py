"""Taking in a submission: refuse what can be refused at once, write it down, hand it to a worker."""

from urllib.parse import urlsplit

from operations.operator import follow
from pipeline import names
from pipeline.errors import UsageRefused
from pipeline.profiles.profile import Profiles
from pipeline.records import Record, Submission, SubmissionType
from pipeline.settings import Settings
from pipeline.states import BATCH
from zkstate import batches
from zkstate.session import Session

SCHEMES = ("http", "https")


class Submitted(Record):
    """The batch's id; `again` if its idempotency key had brought it in before; `note`: what else to know."""

    bid: str
    again: bool = False
    note: str = ""


def submission_type(url: str, given: SubmissionType | None) -> SubmissionType:
    """The type as given, or as the URL's last part tells it."""
    name = names.name_in(url)
    if given is not None:
        return given
    if name.lower().endswith(".checkm"):
        manifests = ", ".join(kind.label for kind in SubmissionType if "manifest" in kind)
        raise UsageRefused(f"{name} is a manifest; say of what by its type: {manifests}")
    return SubmissionType.CONTAINER if names.is_container(name) else SubmissionType.FILE


def check_url(url: str) -> None:
    """Refuse what no worker could fetch. Which networks are allowed is decided where it is fetched."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        raise UsageRefused(f"'{url}' is not a URL: {error}") from error
    if parts.scheme.lower() not in SCHEMES or not host:
        raise UsageRefused(
            f"'{url}' cannot be fetched: content is named by a URL that begins with http:// or https://"
        )
    if parts.username or parts.password:
        raise UsageRefused("a URL with a password in it would be kept and shown: give one without")


def submit(session: Session, settings: Settings, profiles: Profiles, submission: Submission) -> Submitted:
    """Write the submission down and tell a worker; a broker that is away is no error."""
    profiles.get(submission.profile_name)
    check_url(submission.payload_url)
    key = submission.idempotency_key
    known = batches.submitted_under(session, key) if key else None
    bid = batches.submit(session, submission)
    batch = batches.load(session, bid)
    note = follow(session, settings, batch) if batch.status.status is BATCH.initial else ""
    return Submitted(bid=bid, again=bid == known, note=note)
