"""Drafts of deposits: what is to be made of an upload's files, previewed, corrected and deposited."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import DepositorCaller
from entrypoints.web.context import context_of, site_of
from entrypoints.web.limits import slow
from entrypoints.web.middleware import receives_files
from entrypoints.web.parameters import Cursor, Limit, decode_number, encode_cursor, expected_version
from entrypoints.web.receiving import content_length, pieces
from entrypoints.web.routes.deposits import UploadId
from operations.deposits import draft
from operations.deposits.draft import Deposited
from operations.deposits.draft_preview import PAGE, DraftList, DraftView, Preview
from pipeline.uploads.draft import LIMIT, Draft

router = api_router("/v1/drafts", "deposit")

Version = Annotated[int | None, Depends(expected_version)]

_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Draft"}}},
    }
}


@router.get("", summary="The caller's drafts of which no batch was made yet")
@slow("record_work")
def unfinished(request: Request, caller: DepositorCaller) -> DraftList:
    """The latest first, with what has arrived of their files, and when they are removed."""
    return draft.unfinished(site_of(request), caller)


@router.put("/{upload}", summary="Keep the draft of an upload, and preview it", openapi_extra=_BODY)
@receives_files
async def save(
    request: Request, caller: DepositorCaller, upload: UploadId, version: Version = None
) -> Preview:
    """The whole draft, in place of the one before; 409 once a batch was made of it.

    412 if `If-Match` has another version than the draft: somebody else changed it.

    Files that have arrived and have another size than the draft says are removed, to be sent again.
    """
    context = context_of(request)

    def keep(body: bytes) -> Preview:
        try:
            given = Draft.model_validate_json(body)
        except ValidationError as error:
            raise RequestValidationError(error.errors(include_url=False)) from error
        return _with_cursor(draft.save(context.site, caller, upload, given, version))

    with context.held_bodies.holding(caller.name) as hold:
        body = await _body(request, hold)
        return await context.record_work.run(request, caller.name, lambda _: keep(body))


@router.get("/{upload}", summary="The draft of an upload and a page of its preview")
@slow("record_work")
def show(
    request: Request,
    caller: DepositorCaller,
    upload: UploadId,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    only: Annotated[str | None, Query(pattern="^errors$", description="errors: objects with errors.")] = None,
) -> DraftView:
    view = draft.show(
        site_of(request), caller, upload, decode_number(cursor), limit, errors_only=only is not None
    )
    return view.model_copy(update={"preview": _with_cursor(view.preview)})


@router.post(
    "/{upload}/deposit",
    status_code=201,
    summary="Deposit what the preview shows",
    responses={200: {"model": Deposited, "description": "The same was deposited before."}},
)
@slow("record_work")
def deposit(
    request: Request,
    response: Response,
    caller: DepositorCaller,
    upload: UploadId,
    version: Version = None,
    again: Annotated[
        bool, Query(description="Deposit it once more, although the same was deposited.")
    ] = False,
) -> Deposited:
    """409 with the files that have not arrived as declared, or if an object got a version meanwhile."""
    done = draft.deposit(site_of(request), caller, upload, version, again=again)
    response.status_code = 200 if done.again else 201
    response.headers["Location"] = f"/v1/batches/{done.bid}"
    return done


async def _body(request: Request, hold: Callable[[int], None]) -> bytes:
    body = bytearray()
    if (content_length(request) or 0) <= LIMIT:
        async for piece in pieces(request):
            hold(len(piece))
            body += piece
            if len(body) > LIMIT:
                break
        else:
            return bytes(body)
    raise HTTPException(413, f"the draft has more than {LIMIT:,} bytes: divide the deposit")


def _with_cursor(shown: Preview) -> Preview:
    return shown.model_copy(update={"next": encode_cursor(shown.next)})
