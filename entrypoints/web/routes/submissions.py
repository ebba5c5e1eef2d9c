"""POST /v1/batches: a deposit that arkline fetches from a URL."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body, Header, Query, Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from entrypoints.web.authentication import DepositorCaller
from entrypoints.web.context import context_of
from entrypoints.web.rate_limit import is_local
from entrypoints.web.slow_work import slow
from operations.deposits import dry_run as dry_runs
from operations.deposits import submission as submissions
from operations.deposits.dry_run_result import DryRunResult
from operations.deposits.local_dry_run import LocalPlan, dry_run_local
from pipeline.fixity import Digest
from pipeline.principal import Principal
from pipeline.records import (
    Name,
    Priority,
    Record,
    ResponseType,
    Submission,
    SubmissionMode,
    SubmissionType,
    Text,
)

router = APIRouter(prefix="/v1", tags=["deposit"])

MANIFESTS_OF_A_DRY_RUN = 100
"""Manifests and files that a dry run of the API reads and probes at most."""

LINES_OF_A_DRY_RUN = 2000
"""Lines of all its manifests: they are parsed and planned in the memory of the web process."""


class Deposit(Record):
    """What is deposited. Only `profile` and `payload_url` are required."""

    profile: Name = Field(description="The collection's profile.", examples=["demo"])
    payload_url: str = Field(min_length=1, max_length=8192, examples=["https://example.org/harbour.zip"])
    name: Text = Field(
        "",
        description="The payload's file name. Empty: the one that its source states (Content-Disposition), "
        "else the last part of the URL.",
        examples=["harbour.zip"],
    )
    type: SubmissionType | None = Field(
        None, description="null: by the name, or the one in the URL; a manifest needs it."
    )
    submitter: Text = Field("", description="Empty: the name of the token.")
    mode: SubmissionMode = SubmissionMode.ADD
    new_version: bool = Field(
        False,
        description="Allow that an object which the repository has already gets a new version; otherwise it "
        "is refused. The modes update and reset allow it, too.",
    )
    who: Text = ""
    what: Text = ""
    when: Text = ""
    where: Text = ""
    dublin_core: dict[str, tuple[Text, ...]] = Field(default_factory=dict)
    local_id: tuple[Text, ...] = ()
    primary_id: Text | None = Field(None, description="The ARK of an existing object, for a new version.")
    digest: Digest | None = None
    size: int | None = Field(None, ge=0)
    notification: tuple[Text, ...] = Field((), description="Further recipients of the report.")
    response_type: ResponseType = ResponseType.JSON
    priority: Priority | None = None
    note: Text = ""


class FilesDeposit(Record):
    """A deposit of files that are not uploaded yet."""

    profile: Name = Field(description="The collection's profile.", examples=["demo"])
    source: str = Field(max_length=8192, description="What is deposited, as the answer names it.")
    type: SubmissionType
    mode: SubmissionMode = SubmissionMode.ADD
    new_version: bool = False
    priority: Priority | None = None
    plan: LocalPlan


class Submitted(Record):
    bid: str
    replayed: bool = Field(description="An earlier request with this Idempotency-Key made the batch.")
    note: str = ""


IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="A repeated request with the same key and body gets the same batch, and makes none.",
    ),
]


@router.post(
    "/batches",
    status_code=201,
    summary="Submit a deposit by its URL",
    response_model=Submitted | DryRunResult,
    responses={
        200: {"model": Submitted | DryRunResult, "description": "Submitted before, or a dry run."},
    },
)
async def submit(  # noqa: PLR0913 - a query and headers beside the body
    request: Request,
    response: Response,
    caller: DepositorCaller,
    deposit: Annotated[Deposit, Body()],
    idempotency_key: IdempotencyKey = None,
    dry_run: Annotated[bool, Query(description="Show what would happen; change nothing.")] = False,
    ask: Annotated[
        int, Query(ge=0, le=1_000_000, description="Manifests and files that a dry run asks for at most.")
    ] = MANIFESTS_OF_A_DRY_RUN,
) -> Submitted | DryRunResult:
    """201 with the batch's `Location`; 200 with `Idempotency-Replayed: true` if the key was used before."""
    context = context_of(request)
    submission = submission_of(deposit, caller, idempotency_key)
    if dry_run:
        response.status_code = 200
        perform = partial(
            dry_runs.perform_dry_run,
            context.site,
            caller,
            submission,
            ask if is_local(request) else min(ask, MANIFESTS_OF_A_DRY_RUN),
            None if is_local(request) else LINES_OF_A_DRY_RUN,
        )
        return await context.slow_work.run(request, caller.name, perform)
    done = await run_in_threadpool(submissions.submit, context.site, caller, submission)
    response.headers["Location"] = f"/v1/batches/{done.bid}"
    if done.again:
        response.status_code = 200
        response.headers["Idempotency-Replayed"] = "true"
    note = "" if done.sent else "Redis does not answer: nothing is lost, and the work starts once it is back"
    return Submitted(bid=done.bid, replayed=done.again, note=note)


@router.post("/batches/files/dry-run", summary="What a deposit of files would do that are not uploaded yet")
@slow("record_work")
def dry_run_of_files(
    request: Request,
    caller: DepositorCaller,
    deposit: Annotated[FilesDeposit, Body()],
    idempotency_key: IdempotencyKey = None,
) -> DryRunResult:
    """Which of its objects are here already, and what would be refused; no file is sent."""
    submission = submissions.checked(
        {
            "profile_name": deposit.profile,
            "payload_url": deposit.source,
            "payload_filename": "",
            "type": deposit.type,
            "submitter": caller.name,
            "submission_mode": deposit.mode,
            "new_version": deposit.new_version,
            "priority": deposit.priority,
            "idempotency_key": idempotency_key,
            "owner": caller.identity,
        }
    )
    return dry_run_local(context_of(request).site, caller, submission, deposit.plan)


def submission_of(deposit: Deposit, caller: Principal, idempotency_key: str | None) -> Submission:
    """The submission, as the caller's; UsageRefused names what is wrong."""
    submissions.check_url(deposit.payload_url)
    return submissions.checked(
        {
            "profile_name": deposit.profile,
            "payload_url": deposit.payload_url,
            "payload_filename": submissions.given_name(deposit.payload_url, deposit.name),
            "type": submissions.submission_type(deposit.payload_url, deposit.type, deposit.name),
            "submitter": deposit.submitter or caller.name,
            "submission_mode": deposit.mode,
            "new_version": deposit.new_version,
            "erc_who": deposit.who,
            "erc_what": deposit.what,
            "erc_when": deposit.when,
            "erc_where": deposit.where,
            "dublin_core": deposit.dublin_core,
            "local_id": deposit.local_id,
            "primary_id": deposit.primary_id,
            "digest": deposit.digest,
            "size": deposit.size,
            "notification": deposit.notification,
            "response_type": deposit.response_type,
            "priority": deposit.priority,
            "note": deposit.note,
            "idempotency_key": idempotency_key,
            "owner": caller.identity,
        }
    )
