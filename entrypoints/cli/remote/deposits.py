"""Submitting over the API."""

from entrypoints.cli.api import Client
from operations.dry_run_result import DryRunResult, Trouble
from operations.local_deposit import LocalDeposit
from operations.submission import Submitted
from pipeline.records import Record, Submission


class _Answer(Record):
    bid: str
    replayed: bool = False
    note: str = ""


def _deposit(submission: Submission) -> dict[str, object]:
    """The submission as the body of `POST /v1/batches`."""
    given = submission.model_dump(mode="json", exclude_none=True)
    names = {
        "profile_name": "profile",
        "payload_filename": "name",
        "submission_mode": "mode",
        "erc_who": "who",
        "erc_what": "what",
        "erc_when": "when",
        "erc_where": "where",
    }
    left_out = {"idempotency_key", "owner", "submitted_at"}
    return {names.get(name, name): value for name, value in given.items() if name not in left_out}


def _headers(submission: Submission) -> dict[str, str]:
    key = submission.idempotency_key
    return {"Idempotency-Key": key} if key else {}


def submit(client: Client, submission: Submission) -> Submitted:
    headers = _headers(submission)
    answer = client.post("/v1/batches", _Answer, _deposit(submission), **headers)
    return Submitted(bid=answer.bid, again=answer.replayed, sent=not answer.note)


def dry_run(client: Client, submission: Submission) -> DryRunResult:
    body, headers = _deposit(submission), _headers(submission)
    return client.post("/v1/batches?dry_run=true", DryRunResult, body, **headers)


_NOT_ASKED = (
    "the site was not asked whether its identifiers name objects that are there already: such an object is "
    "refused without --new-version"
)


def dry_run_local(submission: Submission, deposit: LocalDeposit) -> DryRunResult:
    """What is known on this machine: the site cannot judge files that it does not have."""
    doubts = tuple(
        Trouble(number=number, name=deposit.name_of(named), message=_NOT_ASKED)
        for number, named in enumerate(deposit.named(submission), 1)
        if (named.local_id or named.primary_id) and not submission.may_add_version
    )
    return DryRunResult(
        profile=submission.profile_name,
        payload_url=str(deposit.source),
        payload_type=deposit.type,
        submission_mode=submission.submission_mode,
        jobs=deposit.objects,
        files=len(deposit.files),
        bytes=deposit.bytes,
        asked=len(deposit.files),
        doubtful=len(doubts),
        doubts=doubts[:1],
    )
