"""The depositor's pages: what I deposited, what I have to correct, and a new deposit."""

from __future__ import annotations

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import UploadFile

from entrypoints.web.authentication import check_again
from entrypoints.web.context import WebContext, context_of
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.notices import Notice, redirect
from entrypoints.web.pages.templating import page
from entrypoints.web.receiving import read_form
from operations.board.values import BatchSearch, Scope
from operations.deposits import submission as submissions
from operations.deposits import uploads
from operations.tokens import InvalidToken
from pipeline.description import local_ids
from pipeline.errors import ArklineError, UsageRefused
from pipeline.names import UploadAddress
from pipeline.principal import Principal, Role
from pipeline.records import Submission, SubmissionType
from pipeline.states import BATCH, JobState
from pipeline.uploads.stored import Declared

router = page_router()

ROWS = 50
"""Deposits of one page."""


@router.get("/deposits")
def deposits(request: Request, caller: PageCaller, after: str | None = None) -> HTMLResponse:
    """The batches that this person submitted, whatever the role."""
    board = context_of(request).board
    mine = Scope(collections=caller.collections, owner=caller.identity)
    return page(
        request,
        "deposits.html",
        caller=caller,
        page=board.batches(mine, BatchSearch(), ROWS, after),
        failures=[group for group in board.failures(mine) if group.owner == "depositor"],
        freshness=board.freshness(),
        ended={state for state in BATCH.facts if BATCH.facts[state].ended},
        completed=JobState.COMPLETED,
        failed=JobState.FAILED,
    )


@router.get("/deposits/new")
def new(request: Request, caller: PageCaller) -> HTMLResponse:
    caller.require(Role.DEPOSITOR, "deposit", next(iter(caller.collections or ()), None))
    return _form(request, caller)


@router.post("/deposits")
async def submit(request: Request, caller: PageCaller) -> Response:
    """A deposit by the form: of a file, which is uploaded, or of what is at an address."""
    web = context_of(request)
    try:
        async with read_form(request, caller, max_files=1, max_fields=20) as parts:
            fields = {name: value for name, value in parts.items() if isinstance(value, str)}
            given = parts.get("file")
            file = given if isinstance(given, UploadFile) and given.filename else None
            await run_in_threadpool(check_again, request, caller)
            done = await web.form_work.run(
                request, caller.name, lambda _: _deposit(web, caller, fields, file)
            )
    except InvalidToken:
        raise
    except (ArklineError, ValueError) as refused:
        return await run_in_threadpool(_form, request, caller, _sentence(refused))
    again = "This form was sent before" if done.again else "The repository has your deposit"
    return redirect(request, f"/batches/{done.bid}", Notice(f"{again}: {done.bid}."))


def _deposit(
    web: WebContext, caller: Principal, fields: dict[str, str], file: UploadFile | None
) -> submissions.Submitted:
    """An upload of which no batch is made is removed."""
    upload = uploads.begin_upload(web.site, caller).id if file else ""
    try:
        url = _receive(web, caller, upload, file) if file else fields.get("url", "")
        return submissions.submit(web.site, caller, _submission(caller, fields, url))
    except BaseException:
        if upload:
            uploads.remove_unless_submitted(web.site, caller, upload)
        raise


def _receive(web: WebContext, caller: Principal, upload: str, file: UploadFile) -> str:
    """The address of the file once all its bytes are in the folder of uploads."""
    declared = Declared(name=file.filename or "file")
    arrived = uploads.receive_file(web.site, caller, upload, declared, file.file)
    return UploadAddress(upload, arrived.name).url


def _submission(caller: Principal, fields: dict[str, str], url: str) -> Submission:
    if not url:
        raise UsageRefused("choose a file, or give an address")
    kind, name = fields.get("kind", ""), fields.get("name", "").strip()
    return Submission(
        profile_name=fields.get("collection", ""),
        submitter=caller.name,
        payload_url=url,
        payload_filename=submissions.given_name(url, name),
        type=submissions.submission_type(url, SubmissionType(kind) if kind else None, name),
        erc_who=fields.get("creator", ""),
        erc_what=fields.get("title", ""),
        erc_when=fields.get("date", ""),
        local_id=local_ids.parse(fields.get("local_id", "")),
        digest=_digest(fields.get("digest", "")),
        new_version="new_version" in fields,
    )


def _form(request: Request, caller: Principal, problem: str = "") -> HTMLResponse:
    profiles = context_of(request).site.profiles
    allowed = [name for name in profiles.names() if caller.collections is None or name in caller.collections]
    return page(
        request,
        "deposit_new.html",
        caller=caller,
        collections=allowed,
        kinds=list(SubmissionType),
        problem=problem,
        status=422 if problem else 200,
    )


def _digest(text: str) -> dict[str, str] | None:
    algorithm, separator, value = text.strip().partition(":")
    if not text.strip():
        return None
    if not separator:
        raise UsageRefused(f"'{text}' is not a digest: write the algorithm before it, as sha256:9f86d0…")
    return {"algorithm": algorithm, "value": value}


def _sentence(error: Exception) -> str:
    """A validation error of pydantic names the field; other errors are sentences already."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    first = errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else "form"
    return f"{field}: {first['msg'].removeprefix('Value error, ')}"
