"""The depositor's pages: my deposits, a new deposit, and "correct and deposit again"."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from secrets import token_hex
from types import MappingProxyType
from typing import Annotated

from fastapi import Form, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, Response
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile

from entrypoints.web.authentication import check_again
from entrypoints.web.context import WebContext, context_of, site_of
from entrypoints.web.limits import slow
from entrypoints.web.middleware import receives_files
from entrypoints.web.pages.login import PageCaller, page_router
from entrypoints.web.pages.templating import Notice, page, redirect
from entrypoints.web.receiving import read_form
from operations import notifications
from operations.board.values import BatchSearch, Scope
from operations.deposits import resubmission, submission, uploads
from operations.deposits.local_deposit import reads_as_table
from operations.deposits.resubmission import Corrections, FailedObject, Preview
from operations.site import Site
from operations.tokens import InvalidToken
from pipeline import names
from pipeline.codes import ErrorKind
from pipeline.errors import ArklineError, UsageRefused
from pipeline.names import UploadAddress, safe_name
from pipeline.principal import Principal, Role
from pipeline.profiles.profile import ProfileError, ProfileLimits
from pipeline.records import Submission, SubmissionType
from pipeline.states import BATCH, JobState
from pipeline.uploads.stored import Declared, UploadedFile

router = page_router()

ROWS = 50
"""Deposits per page."""


LIMITS_SHOWN = 20
"""Collections whose limits are shown: each profile is read."""

NO_FIELDS: Mapping[str, str] = MappingProxyType({})


@router.get("/deposits")
def deposits(request: Request, caller: PageCaller, after: str | None = None) -> HTMLResponse:
    """The batches that this person submitted, whatever their role."""
    web = context_of(request)
    board = web.board
    mine = Scope(collections=caller.collections, owner=caller.identity)
    return page(
        request,
        "deposits.html",
        page=web.with_time_left(board.batches(mine, BatchSearch(), ROWS, after)),
        failures=[group for group in board.failures(mine) if group.owner == "depositor"],
        ended={state for state in BATCH.facts if BATCH.facts[state].ended},
        completed=JobState.COMPLETED,
        failed=JobState.FAILED,
    )


@router.get("/deposits/new")
@slow("record_work")
def new(request: Request, caller: PageCaller) -> HTMLResponse:
    caller.require(Role.DEPOSITOR, "deposit", next(iter(caller.collections or ()), None))
    return _form(request, caller, mailed=notifications.mailed(site_of(request), caller))


@router.post("/deposits")
@receives_files
async def submit(request: Request, caller: PageCaller) -> Response:
    """Submit a deposit by form: of a file, which is uploaded, or of what is at a URL."""
    web = context_of(request)
    fields: dict[str, str] = {}
    try:
        async with read_form(request, caller, max_files=1, max_fields=20) as parts:
            fields |= {name: value for name, value in parts.items() if isinstance(value, str)}
            given = parts.get("file")
            file = given if isinstance(given, UploadFile) and given.filename else None
            check = partial(check_again, request, caller)
            done = await web.form_work.run(
                request, caller.name, lambda _: _deposit(web, caller, fields, file, check)
            )
    except InvalidToken:
        raise
    except Mistake as mistake:
        fields["received"] = mistake.received
        return await run_in_threadpool(_form, request, caller, fields, str(mistake), mistake.field)
    except (ArklineError, ValueError) as refused:
        fields["received"] = ""
        return await run_in_threadpool(_form, request, caller, fields, str(refused))
    again = "This form was sent before" if done.again else "The repository has your deposit"
    return redirect(request, f"/batches/{done.bid}", Notice(f"{again}: {done.bid}."))


class Mistake(ValueError):
    """The form has to be sent again, with another value in a field or once a service answers; `received`: the
    address of the file that has arrived."""

    def __init__(self, message: str, field: str, received: str = "") -> None:
        super().__init__(message)
        self.field, self.received = field, received


def _deposit(
    web: WebContext,
    caller: Principal,
    fields: Mapping[str, str],
    file: UploadFile | None,
    check: Callable[[], object],
) -> submission.Submitted:
    """Submit the form; removes the upload if no batch is created from it, unless the form can be sent again:
    a field is corrected, or a service answers again.

    The same form sent twice, by a double click or after a lost answer, is one deposit.
    `check`: raises InvalidToken if the caller's rights have changed meanwhile.
    """
    upload = uploads.begin_upload(web.site, caller).id if file else ""
    received = "" if file else fields.get("received", "")
    try:
        if file:
            received = _receive(web, caller, upload, file)
        check()
        try:
            if file and not fields.get("kind"):
                _ask_about_table(file)
            requested = _submission(caller, fields, received or fields.get("url", ""))
        except Mistake as mistake:
            raise Mistake(str(mistake), mistake.field, received) from mistake
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = _FIELD_OF.get(str(first["loc"][0]) if first["loc"] else "", "url")
            raise Mistake(first["msg"].removeprefix("Value error, "), field, received) from error
        key = _key(fields, _content(web, caller, requested.payload_url))
        done = submission.submit_same(web.site, caller, requested.model_copy(update={"idempotency_key": key}))
    except Mistake:
        raise
    except BaseException as error:
        if received and isinstance(error, ArklineError) and error.error_kind is ErrorKind.UNREACHABLE:
            raise Mistake(str(error), "", received) from error
        if upload:
            uploads.remove_unless_submitted(web.site, caller, upload)
        raise
    if upload and done.again:
        uploads.remove_unless_submitted(web.site, caller, upload)
    return done


_FIELD_OF = {
    "profile_name": "collection",
    "payload_filename": "name",
    "type": "kind",
    "erc_who": "creator",
    "erc_what": "title",
    "erc_when": "date",
    "local_id": "local_id",
    "digest": "digest",
}
"""The fields of a submission, and of the form."""


def _ask_about_table(file: UploadFile) -> None:
    """Raise Mistake if the file is a table of files, which may be meant as the list of many objects."""
    if reads_as_table(file.filename or "", file.file):
        raise Mistake(
            f"{file.filename} looks like a table. To deposit an object for each row, choose the table and "
            "its files above, or run `arkline submit --profile NAME FILE` where they are. To keep the table "
            "itself as one file, choose “file” as what it is.",
            "kind",
        )


def _receive(web: WebContext, caller: Principal, upload: str, file: UploadFile) -> str:
    """Store the file in the upload folder; returns its address."""
    declared = Declared(name=file.filename or "file")
    arrived = uploads.receive_file(web.site, caller, upload, declared, file.file)
    return UploadAddress(upload, arrived.name).url


def _content(web: WebContext, caller: Principal, url: str) -> str:
    """The digest of an upload's file, of which a second click makes another one; else the address."""
    if not names.is_upload(url):
        return url
    address = names.parse_upload_url(url)
    file = uploads.find_file(web.site, caller, address.upload, address.name)
    return file.sha512 if isinstance(file, UploadedFile) else url


def _key(fields: Mapping[str, str], content: str) -> str | None:
    """The idempotency key of what was entered in this form; `content`: the digest, or the address."""
    if not fields.get("form"):
        return None
    entered = sorted(item for item in fields.items() if item[0] != "received")
    return f"form-{sha256(json.dumps([entered, content]).encode()).hexdigest()}"


def _submission(caller: Principal, fields: Mapping[str, str], url: str) -> Submission:
    if not url:
        raise Mistake("choose a file, or give an address", "file")
    kind, name = fields.get("kind", ""), fields.get("name", "").strip()
    with _naming("url"):
        submission.check_url(url)
    with _naming("name"):
        given_name = submission.given_name(url, name)
    with _naming("kind"):
        given_kind = submission.submission_type(url, SubmissionType(kind) if kind else None, name)
    return Submission(
        profile_name=fields.get("collection", ""),
        submitter=caller.name,
        payload_url=url,
        payload_filename=given_name,
        type=given_kind,
        erc_who=fields.get("creator", ""),
        erc_what=fields.get("title", ""),
        erc_when=fields.get("date", ""),
        local_id=names.parse_local_ids(fields.get("local_id", "")),
        digest=_digest(fields.get("digest", "")),
        new_version="new_version" in fields,
    )


@contextmanager
def _naming(field: str) -> Iterator[None]:
    """Turn a refusal in this block into a mistake in the field."""
    try:
        yield
    except UsageRefused as refused:
        raise Mistake(str(refused), field) from refused


def _form(
    request: Request,
    caller: Principal,
    fields: Mapping[str, str] = NO_FIELDS,
    problem: str = "",
    wrong: str = "",
    mailed: str = "",
) -> HTMLResponse:
    """The form, with the values that were sent; `wrong`: the field that the problem is of.

    It reads profiles alone: no service that is away costs anybody what was entered.
    `mailed`: the address that gets a mail.
    """
    site = context_of(request).site
    allowed = [
        name for name in site.profiles.names() if caller.collections is None or name in caller.collections
    ]
    return page(
        request,
        "deposit_new.html",
        collections=allowed,
        limits={name: (most, agreed) for name, most, agreed in _limits(site, allowed[:LIMITS_SHOWN])},
        upload_bytes=site.settings.upload_bytes,
        own_bytes=site.settings.upload_bytes_of_owner,
        mailed=mailed,
        can_mail=bool(site.settings.callback_secret.get_secret_value()),
        kinds=list(SubmissionType),
        fields=fields,
        form=fields.get("form") or token_hex(8),
        received=names.name_in(fields.get("received", "")),
        problem=problem,
        wrong=wrong,
        status=422 if problem else 200,
    )


def _limits(site: Site, collections: Iterable[str]) -> Iterator[tuple[str, ProfileLimits, int | None]]:
    """Each collection with its limits and the bytes agreed for it."""
    for name in collections:
        with suppress(ProfileError):  # a deposit will be refused with the profile's fault
            profile, files = site.profile(name), site.settings.object_files
            most = min(profile.limits.object_files or files, files)
            yield name, profile.limits.model_copy(update={"object_files": most}), profile.quota_bytes


def _digest(text: str) -> dict[str, str] | None:
    algorithm, separator, value = text.strip().partition(":")
    if not text.strip():
        return None
    if not separator:
        raise Mistake(f"'{text}' is not a digest: write the algorithm before it, as sha256:9f86d0…", "digest")
    return {"algorithm": algorithm, "value": value}


EDITED = 50
"""Maximum number of objects in the form; the others are deposited from their addresses."""


@router.get("/batches/{bid}/again")
@slow("record_work")
def again(request: Request, caller: PageCaller, bid: str) -> HTMLResponse:
    return _again_form(request, site_of(request), caller, bid)


@router.post("/batches/{bid}/again")
@receives_files
async def preview_again(request: Request, caller: PageCaller, bid: str) -> Response:
    """Show what would be deposited; until then the corrected files are kept in an upload."""
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
            request, caller.name, lambda _: _again_form(request, site, caller, bid, problem)
        )
    return page(request, "again_preview.html", preview=prepared)


@router.post("/batches/{bid}/again/deposit")
@slow("record_work")
def deposit_again(
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


def _again_form(request: Request, site: Site, caller: Principal, bid: str, problem: str = "") -> HTMLResponse:
    batch = resubmission.correctable(site, caller, bid)
    failed = resubmission.failed_objects(site, batch)
    return page(
        request,
        "again.html",
        bid=bid,
        collection=batch.submission.profile_name,
        failed=failed[:EDITED],
        others=failed[EDITED:],
        problem=problem,
        status=422 if problem else 200,
    )


def _prepare(site: Site, caller: Principal, bid: str, fields: FormData) -> Preview:
    """Prepare the preview; removes the upload if nothing can be deposited from it."""
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
