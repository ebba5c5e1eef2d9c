"""Deposits that cannot be stored, among the others: too large for the record, or from an endless source.

Each ends with a message, and harms no other deposit. A hostile source ends neither by itself nor with the
run, so the operator cancels each of these batches after a while.
"""

from dataclasses import dataclass

from operations.deposits.submission import submit
from operations.site import Site
from pipeline.errors import ServiceUnreachable
from pipeline.records import Submission, SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, Bucket, IllegalTransition
from tests.e2e.collection import manifest
from tests.servers.http_source import HttpSource
from tools.chaos.acts import Acts
from tools.chaos.operator_verbs import PERSON, Act, cancel, loaded
from tools.chaos.problem import Category, Problem
from tools.chaos.profiles import PROFILE
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.errors import TooBig
from zkstate.record import batches

HOSTILE = "hostile"
"""The submitter of these deposits."""

_TEXT = "é" * 4000
"""8 kB, the maximum of a text in a manifest: 40 objects with two of them take several transactions."""

_BEGUN = (BatchState.PENDING, BatchState.PROCESSING)

_BATCH = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-batch-manifest"


@dataclass(frozen=True)
class Bad:
    """A submission that must not be stored; `refused`: nothing of it may be kept."""

    form: str
    submission: Submission
    refused: bool = False


def from_hostile_source(sources: dict[str, str], number: int, key: str) -> Bad:
    """A file whose answer never ends."""
    form = list(sources)[number % len(sources)]
    return Bad(form, _submission(key, payload_url=sources[form], type=SubmissionType.FILE))


def oversized(source: HttpSource, number: int, key: str) -> Bad:
    """A submission too large for one record, for one transaction, or for a batch."""
    if number % 3 == 0:
        ids = tuple(f"{number}{'x' * 3990}" for number in range(300))
        url = source.url("/never-asked")
        large = _submission(key, payload_url=url, type=SubmissionType.FILE, local_id=ids)
        return Bad("local ids of 1.2 MB", large, refused=True)
    if number % 3 == 1:
        form, rows = "40 objects with descriptions of 16 kB", 40
        columns = f"{_TEXT} | {_TEXT} | 2020"
    else:
        form, rows = "more objects than a batch may have", Settings().batch_jobs + 1
        columns = " |  | "
    missing = source.url(f"/{key}.missing")
    lines = [f"{missing} |  |  |  |  | {row} |  |  | {columns}" for row in range(rows)]
    url = source.put(f"/{key}.checkm", manifest(_BATCH, lines))
    return Bad(form, _submission(key, payload_url=url, type=SubmissionType.BATCH_MANIFEST))


def _submission(key: str, **given: object) -> Submission:
    return Submission.model_validate(
        {"profile_name": PROFILE, "submitter": HOSTILE, "idempotency_key": key, **given}
    )


def submitting(bad: Bad) -> Act:
    """Submit it as a depositor does."""

    def do(site: Site, names: list[str], acts: Acts) -> str:
        try:
            submitted = submit(site, PERSON, bad.submission)
        except TooBig as error:
            if bad.refused:
                return f"refused: {error}"
            raise
        if bad.refused:
            acts.problems.append(Problem(Category.ILLEGAL, submitted.bid, f"{bad.form} were accepted"))
        return submitted.bid

    return Act("submit", lambda *_: [bad.form], do)


def _unended(session: Session, target: int) -> list[str]:
    return [
        batch.bid
        for batch in loaded(session, session.children(paths.BATCHES))
        if batch.submission.submitter == HOSTILE
        and (batch.status.status in _BEGUN or batches.jobs_in(session, batch.bid, Bucket.PROCESSING))
    ]


def _cancel(site: Site, names: list[str], acts: Acts) -> str:
    for bid in names:
        try:
            outcome = cancel(site, [bid], acts)
        except IllegalTransition:
            continue  # it has ended since it was chosen
        if outcome.stopped:
            raise ServiceUnreachable(outcome.stopped)
    return "done"


CANCEL_HOSTILE = Act("cancel hostile", _unended, _cancel)
