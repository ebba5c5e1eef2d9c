"""Deposits by URL, and uploads of one file, of several files, and of files resumed after an interruption.

The headers of resumable uploads are those of the IETF draft: Upload-Offset, Upload-Complete, Upload-Length.
"""

from functools import partial
from typing import Annotated, Any

from fastapi import Body, Header, Path, Query, Request, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from entrypoints.web import receiving
from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import DepositorCaller
from entrypoints.web.context import context_of, site_of
from entrypoints.web.limits import is_local, slow
from entrypoints.web.middleware import receives_files
from entrypoints.web.receiving import check_body, content_length, has_body, receive
from operations.deposits import submission, uploads
from operations.deposits.dry_run import dry_run_local, perform_dry_run
from operations.deposits.dry_run_result import DryRunResult, LocalPlan
from operations.deposits.uploads import Unfinished, UploadView
from pipeline import codes
from pipeline.errors import UsageRefused
from pipeline.fixity import Digest
from pipeline.names import ID_PATTERN, UploadAddress
from pipeline.principal import Principal
from pipeline.records import (
    AgreedVersions,
    Name,
    Priority,
    Record,
    ResponseType,
    SentRecord,
    Submission,
    SubmissionMode,
    SubmissionType,
    Text,
)
from pipeline.uploads.stored import Declared, UploadedFile

router = api_router("/v1", "deposit")

MANIFESTS_OF_A_DRY_RUN = 100
"""Maximum manifests and files that a dry run of the API reads and probes."""

LINES_OF_A_DRY_RUN = 2000
"""Maximum lines of all its manifests: they are parsed and planned in the web process's memory."""


class Deposit(SentRecord):
    """What is deposited. Only `profile` and `payload_url` are required."""

    profile: Name = Field(description="The collection's profile.", examples=["demo"])
    deposit_name: Name | None = Field(
        None,
        description="What lists, mails and reports call the deposit, as the name of a folder or a table. "
        "null: the payload's name.",
        examples=["Harbour views 1911"],
    )
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
    new_version_of: AgreedVersions = Field(
        default_factory=dict,
        description="Where new_version is false: the ARK of each object that may get a version all the same, "
        "and the number of its current version, after which no other version may have come.",
        examples=[{"ark:/99999/fk4abc": 1}],
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


class FilesDeposit(SentRecord):
    """A deposit of files that are not uploaded yet."""

    profile: Name = Field(description="The collection's profile.", examples=["demo"])
    source: str = Field(max_length=8192, description="What is deposited, as the answer names it.")
    type: SubmissionType
    mode: SubmissionMode = SubmissionMode.ADD
    new_version: bool = False
    new_version_of: AgreedVersions = Field(default_factory=dict)
    priority: Priority | None = None
    deposit_name: Name | None = None
    notification: tuple[Text, ...] = ()
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
    requested = submission_of(deposit, caller, idempotency_key)
    if dry_run:
        response.status_code = 200
        perform = partial(
            perform_dry_run,
            context.site,
            caller,
            requested,
            ask if is_local(request) else min(ask, MANIFESTS_OF_A_DRY_RUN),
            None if is_local(request) else LINES_OF_A_DRY_RUN,
        )
        return await context.slow_work.run(request, caller.name, perform)
    done = await run_in_threadpool(submission.submit, context.site, caller, requested)
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
    facts = {name: value for name, value in deposit if name not in ("source", "plan")}
    facts |= {"payload_url": deposit.source, "payload_filename": "", "submitter": caller.name}
    return dry_run_local(site_of(request), caller, _submission(caller, facts, idempotency_key), deposit.plan)


def submission_of(deposit: Deposit, caller: Principal, idempotency_key: str | None) -> Submission:
    """The submission, as the caller's; UsageRefused names what is invalid."""
    facts = dict(deposit) | {
        "payload_filename": submission.given_name(deposit.payload_url, deposit.name),
        "type": submission.submission_type(deposit.payload_url, deposit.type, deposit.name),
        "submitter": deposit.submitter or caller.name,
    }
    del facts["name"]
    return _submission(caller, facts, idempotency_key)


_RECORDED_AS = {
    "profile": "profile_name",
    "mode": "submission_mode",
    **{field: f"erc_{field}" for field in ("who", "what", "when", "where")},
}
"""Fields of a deposit that have another name in the record."""


def _submission(caller: Principal, facts: dict[str, Any], idempotency_key: str | None) -> Submission:
    recorded = {_RECORDED_AS.get(field, field): value for field, value in facts.items()}
    return submission.checked({**recorded, "idempotency_key": idempotency_key, "owner": caller.identity})


UploadId = Annotated[str, Path(pattern=f"^{ID_PATTERN}$", description="The id of an upload.")]
FileName = Annotated[str, Path(min_length=1, max_length=1024, description="The file's name in the upload.")]
Key = Annotated[
    str | None,
    Header(min_length=1, max_length=255, description="The same key continues the same upload."),
]
Complete = Annotated[
    str | None,
    Header(alias="Upload-Complete", pattern=r"^\?[01]$", description="?0: the file continues later."),
]
Length = Annotated[int | None, Header(alias="Upload-Length", ge=0, description="Bytes of the whole file.")]
_BYTES: dict[str, Any] = {
    "requestBody": {
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    }
}
_BEGINNING = 0
"""The offset of the first part of a resumable file: if it is sent again, it is not appended to itself."""


class Uploaded(Record):
    """An upload, and the file that this request brought."""

    id: str
    name: str | None = None
    size: int = 0
    """Bytes that have arrived."""
    complete: bool = False
    sha512: str | None = None
    payload_url: str | None = None
    """What `POST /v1/batches` takes once the file is complete."""


@router.post(
    "/uploads", status_code=201, summary="Upload a file, or begin an upload of several", openapi_extra=_BYTES
)
@receives_files
async def begin(  # noqa: PLR0913 - the parts of a request
    request: Request,
    response: Response,
    caller: DepositorCaller,
    name: Annotated[
        str | None, Query(min_length=1, max_length=1024, description="Or in Content-Disposition.")
    ] = None,
    idempotency_key: Key = None,
    upload_complete: Complete = None,
    upload_length: Length = None,
) -> Uploaded:
    """201 with `Location`, and the sha-512 in `Repr-Digest`. Without a name the upload has no file yet.

    A digest in `Repr-Digest` or `Content-Digest` is compared: 422 if it differs, and nothing is stored.
    """
    context = context_of(request)
    name = name or receiving.stated_name(request.headers)
    check_body(request, context.settings, name or "the body")
    if name is None and await has_body(request):
        raise UsageRefused("name the file: POST /v1/uploads?name=NAME")
    resumable = upload_complete is not None
    declared = _declared(request, name or "", upload_length, whole=not resumable)
    begun = await run_in_threadpool(uploads.begin_upload, context.site, caller, idempotency_key or "")
    response.headers["Location"] = f"/v1/uploads/{begun.id}"
    if name is None:
        return Uploaded(id=begun.id)
    try:
        arrived = await receive(
            request,
            context,
            caller,
            begun.id,
            declared,
            resumable=resumable,
            complete=upload_complete != "?0",
            offset=_BEGINNING if resumable else None,
        )
    except BaseException:
        if not resumable and idempotency_key is None:
            await run_in_threadpool(uploads.remove_upload, context.site, caller, begun.id)
        raise
    return _answer(response, begun.id, arrived)


@router.put(
    "/uploads/{upload}/{name:path}",
    status_code=201,
    summary="Upload a file into an upload",
    openapi_extra=_BYTES,
)
@receives_files
async def put_file(  # noqa: PLR0913 - the parts of a request
    request: Request,
    response: Response,
    caller: DepositorCaller,
    upload: UploadId,
    name: FileName,
    upload_complete: Complete = None,
    upload_length: Length = None,
) -> Uploaded:
    """The same file again is no change; 409 if the upload has other bytes under this name."""
    context = context_of(request)
    check_body(request, context.settings, name)
    resumable = upload_complete is not None
    arrived = await receive(
        request,
        context,
        caller,
        upload,
        _declared(request, name, upload_length, whole=not resumable),
        resumable=resumable,
        complete=upload_complete != "?0",
        offset=_BEGINNING if resumable else None,
    )
    return _answer(response, upload, arrived)


@router.get("/uploads/{upload}", summary="An upload and its files")
@slow("record_work")
def show(request: Request, caller: DepositorCaller, upload: UploadId) -> UploadView:
    return uploads.view_upload(site_of(request), caller, upload)


@router.head("/uploads/{upload}", status_code=204, summary="How much of the only file has arrived")
@router.head("/uploads/{upload}/{name:path}", status_code=204, summary="How much of a file has arrived")
def offset(request: Request, caller: DepositorCaller, upload: UploadId, name: str = "") -> Response:
    site = site_of(request)
    name = name or uploads.sole_name(site, caller, upload)
    file = uploads.find_file(site, caller, upload, name)
    if file is None:
        raise UsageRefused(f"upload {upload} has no such file", code=codes.UPLOAD_MISSING)
    response = Response(status_code=204)
    _describe(response, file)
    return response


@router.patch("/uploads/{upload}", summary="Continue the only file", openapi_extra=_BYTES)
@router.patch("/uploads/{upload}/{name:path}", summary="Continue or begin a file", openapi_extra=_BYTES)
@receives_files
async def append(  # noqa: PLR0913 - the parts of a request
    request: Request,
    response: Response,
    caller: DepositorCaller,
    upload: UploadId,
    upload_offset: Annotated[int, Header(alias="Upload-Offset", ge=0)],
    name: str = "",
    upload_complete: Complete = "?1",
    upload_length: Length = None,
) -> Uploaded:
    """409 unless `Upload-Offset` is where the file ends now. What arrives before a cut is kept."""
    context = context_of(request)
    name = name or await run_in_threadpool(uploads.sole_name, context.site, caller, upload)
    check_body(request, context.settings, name)
    arrived = await receive(
        request,
        context,
        caller,
        upload,
        _declared(request, name, upload_length, whole=False),
        resumable=True,
        complete=upload_complete != "?0",
        offset=upload_offset,
    )
    return _answer(response, upload, arrived)


@router.delete("/uploads/{upload}", status_code=204, summary="Remove an upload of which no batch was made")
@router.delete("/uploads/{upload}/{name:path}", status_code=204, summary="Remove a complete file of it")
@slow("record_work")
def remove(request: Request, caller: DepositorCaller, upload: UploadId, name: str = "") -> None:
    uploads.remove_upload(site_of(request), caller, upload, name)


def _declared(request: Request, name: str, length: int | None, *, whole: bool) -> Declared:
    """What the headers declare of the whole file; for a part, only Repr-Digest and Upload-Length do."""
    headers = (receiving.REPR_DIGEST, receiving.CONTENT_DIGEST) if whole else (receiving.REPR_DIGEST,)
    return Declared(
        name=name,
        size=length if length is not None or not whole else content_length(request),
        digest=receiving.declared_digest(request.headers, *headers),
    )


def _describe(response: Response, file: UploadedFile | Unfinished) -> None:
    complete = isinstance(file, UploadedFile)
    response.headers["Upload-Complete"] = "?1" if complete else "?0"
    response.headers["Upload-Offset"] = str(file.size if isinstance(file, UploadedFile) else file.offset)
    if file.size is not None:
        response.headers["Upload-Length"] = str(file.size)
    if isinstance(file, UploadedFile):
        response.headers[receiving.REPR_DIGEST] = receiving.written(file.sha512)


def _answer(response: Response, upload: str, file: UploadedFile | Unfinished) -> Uploaded:
    _describe(response, file)
    if isinstance(file, Unfinished):
        return Uploaded(id=upload, name=file.name, size=file.offset)
    return Uploaded(
        id=upload,
        name=file.name,
        size=file.size,
        complete=True,
        sha512=file.sha512,
        payload_url=UploadAddress(upload, file.name).url,
    )
