"""Uploads: a file by one request, several files in one upload, and files that continue after a cut.

The headers of resumable uploads are those of the IETF draft: Upload-Offset, Upload-Complete, Upload-Length.
"""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from entrypoints.web import receiving
from entrypoints.web.authentication import DepositorCaller
from entrypoints.web.context import context_of, site_of
from entrypoints.web.receiving import check_body, content_length, receive
from entrypoints.web.slow_work import slow
from operations.deposits import uploads
from operations.deposits.uploads import Unfinished, UploadView
from pipeline.errors import UsageRefused
from pipeline.names import ID_PATTERN, UploadAddress
from pipeline.records import Record
from pipeline.uploads.stored import Declared, UploadedFile, UploadMissing

router = APIRouter(prefix="/v1/uploads", tags=["deposit"])

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
_FILENAME = re.compile(r'filename="([^"]+)"')


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
    "", status_code=201, summary="Upload a file, or begin an upload of several", openapi_extra=_BYTES
)
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
    name = name or _name_in(request)
    check_body(request, context.settings, name or "the body")
    begun = await run_in_threadpool(uploads.begin_upload, context.site, caller, idempotency_key or "")
    response.headers["Location"] = f"/v1/uploads/{begun.id}"
    if name is None:
        if content_length(request):
            raise UsageRefused("name the file: POST /v1/uploads?name=NAME")
        return Uploaded(id=begun.id)
    resumable = upload_complete is not None
    declared = _declared(request, name, upload_length, whole=not resumable)
    try:
        arrived = await receive(
            request,
            context,
            caller,
            begun.id,
            declared,
            resumable=resumable,
            complete=upload_complete != "?0",
        )
    except BaseException:
        if not resumable and idempotency_key is None:
            await run_in_threadpool(uploads.remove_upload, context.site, caller, begun.id)
        raise
    return _answer(response, begun.id, arrived)


@router.put(
    "/{upload}/{name:path}", status_code=201, summary="Upload a file into an upload", openapi_extra=_BYTES
)
async def put_file(
    request: Request, response: Response, caller: DepositorCaller, upload: UploadId, name: FileName
) -> Uploaded:
    """The same file again is no change; 409 if the upload has other bytes under this name."""
    context = context_of(request)
    check_body(request, context.settings, name)
    declared = _declared(request, name, None, whole=True)
    return _answer(response, upload, await receive(request, context, caller, upload, declared))


@router.get("/{upload}", summary="An upload and its files")
@slow("record_work")
def show(request: Request, caller: DepositorCaller, upload: UploadId) -> UploadView:
    return uploads.view_upload(site_of(request), caller, upload)


@router.head("/{upload}", status_code=204, summary="How much of the only file has arrived")
@router.head("/{upload}/{name:path}", status_code=204, summary="How much of a file has arrived")
def offset(request: Request, caller: DepositorCaller, upload: UploadId, name: str = "") -> Response:
    site = site_of(request)
    name = name or uploads.sole_name(site, caller, upload)
    file = uploads.find_file(site, caller, upload, name)
    if file is None:
        raise UploadMissing(f"upload {upload} has no such file")
    response = Response(status_code=204)
    _describe(response, file)
    return response


@router.patch("/{upload}", summary="Continue the only file", openapi_extra=_BYTES)
@router.patch("/{upload}/{name:path}", summary="Continue or begin a file", openapi_extra=_BYTES)
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


@router.delete("/{upload}", status_code=204, summary="Remove an upload of which no batch was made")
@slow("record_work")
def remove(request: Request, caller: DepositorCaller, upload: UploadId) -> None:
    uploads.remove_upload(site_of(request), caller, upload)


def _declared(request: Request, name: str, length: int | None, *, whole: bool) -> Declared:
    """What the headers say of the whole file; of a part, only Repr-Digest and Upload-Length do."""
    headers = (receiving.REPR_DIGEST, receiving.CONTENT_DIGEST) if whole else (receiving.REPR_DIGEST,)
    return Declared(
        name=name,
        size=length if length is not None or not whole else content_length(request),
        digest=receiving.declared_digest(request.headers, *headers),
    )


def _name_in(request: Request) -> str | None:
    match = _FILENAME.search(request.headers.get("content-disposition", ""))
    return match[1] if match else None


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
