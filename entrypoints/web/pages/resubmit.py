"""The page "correct and deposit again": the failed objects of a deposit, a preview, the deposit."""

from __future__ import annotations

from typing import Annotated

from fastapi import Form, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import FormData, UploadFile

from entrypoints.web.authentication import check_again
from entrypoints.web.context import context_of, site_of
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.notices import Notice, redirect
from entrypoints.web.pages.templating import page
from entrypoints.web.receiving import read_form
from entrypoints.web.slow_work import slow
from operations.deposits import resubmission, uploads
from operations.deposits.resubmission import Corrections, FailedObject, Preview
from operations.site import Site
from operations.tokens import InvalidToken
from pipeline.errors import ArklineError
from pipeline.names import safe_name
from pipeline.principal import Principal
from pipeline.records import SubmissionType
from pipeline.uploads.stored import Declared, UploadedFile

router = page_router()

EDITED = 50
"""Objects that the form shows; the others are deposited from their addresses."""


@router.get("/batches/{bid}/again")
@slow("record_work")
def form(request: Request, caller: PageCaller, bid: str) -> HTMLResponse:
    return _form(request, site_of(request), caller, bid)


@router.post("/batches/{bid}/again")
async def preview(request: Request, caller: PageCaller, bid: str) -> Response:
    """What would be deposited; the corrected files are kept in an upload until then."""
    web = context_of(request)
    site = web.site
    await web.record_work.run(request, caller.name, lambda _: resubmission.correctable(site, caller, bid))
    try:
        async with read_form(request, caller, max_files=EDITED, max_fields=3 * EDITED) as fields:
            await run_in_threadpool(check_again, request, caller)
            prepared = await web.form_work.run(
                request, caller.name, lambda _: _prepare(site, caller, bid, fields)
            )
    except InvalidToken:
        raise
    except (ArklineError, ValueError) as refused:
        problem = str(refused)
        return await web.record_work.run(
            request, caller.name, lambda _: _form(request, site, caller, bid, problem)
        )
    return page(request, "again_preview.html", caller=caller, preview=prepared)


@router.post("/batches/{bid}/again/deposit")
@slow("record_work")
def deposit(
    request: Request,
    caller: PageCaller,
    bid: str,
    upload: Annotated[str, Form(max_length=64)],
    kind: Annotated[SubmissionType, Form()],
    new_version: Annotated[bool, Form()] = False,
) -> Response:
    done = resubmission.deposit(site_of(request), caller, bid, upload, kind, new_version=new_version)
    again = "This was deposited before" if done.again else "The repository has your corrected objects"
    return redirect(request, f"/batches/{done.bid}", Notice(f"{again}: {done.bid}."))


def _form(request: Request, site: Site, caller: Principal, bid: str, problem: str = "") -> HTMLResponse:
    batch = resubmission.correctable(site, caller, bid)
    failed = resubmission.failed_objects(site, batch)
    return page(
        request,
        "again.html",
        caller=caller,
        bid=bid,
        collection=batch.submission.profile_name,
        failed=failed[:EDITED],
        others=failed[EDITED:],
        problem=problem,
        status=422 if problem else 200,
    )


def _prepare(site: Site, caller: Principal, bid: str, fields: FormData) -> Preview:
    """An upload from which nothing can be deposited is removed."""
    failed = resubmission.failed_objects(site, resubmission.correctable(site, caller, bid))
    upload = uploads.begin_upload(site, caller).id
    try:
        corrections = Corrections(
            files=_received(site, caller, upload, failed, fields),
            addresses={one.jid: address for one in failed if (address := _text(fields, f"url-{one.jid}"))},
            changed=frozenset(one.jid for one in failed if _text(fields, f"changed-{one.jid}")),
        )
        return resubmission.prepare(site, caller, bid, upload, corrections)
    except BaseException:
        uploads.remove_unless_submitted(site, caller, upload)
        raise


def _received(
    site: Site, caller: Principal, upload: str, failed: tuple[FailedObject, ...], fields: FormData
) -> dict[str, UploadedFile]:
    files: dict[str, UploadedFile] = {}
    for one in failed:
        given = fields.get(f"file-{one.jid}")
        if isinstance(given, UploadFile) and given.filename:
            declared = Declared(name=f"{one.jid}/{safe_name(given.filename)}")
            files[one.jid] = uploads.receive_file(site, caller, upload, declared, given.file)
    return files


def _text(fields: FormData, name: str) -> str:
    value = fields.get(name, "")
    return value.strip() if isinstance(value, str) else ""
