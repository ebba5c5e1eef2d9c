"""Merritt's own form: an existing client of Merritt's ingest service submits here with its token.

Clients that support only a name and a password send the token as the password.
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from xml.sax.saxutils import escape

from fastapi import APIRouter, Depends, Request, Response
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from entrypoints.web import problems
from entrypoints.web.authentication import authenticate, check_again, count, principal_of
from entrypoints.web.context import WebContext, context_of
from entrypoints.web.middleware import receives_files
from entrypoints.web.receiving import read_form
from operations.deposits.submission import Submitted
from pipeline.description.xml import clean
from pipeline.errors import ArklineError, UsageRefused
from pipeline.principal import Forbidden, Interface, Principal, Role
from pipeline.profiles.profile import ProfileError
from pipeline.records import SubmissionMode, now
from plugins.merritt.form import Form, FormFile, submit_form
from tasks.logs import log

router = APIRouter(prefix="/poster", tags=["merritt"])

NAMESPACES = {
    "bat": "http://uc3.cdlib.org/ontology/mrt/ingest/batch",
    "exc": "http://uc3.cdlib.org/ontology/mrt/core/exc",
}


class PosterVerb(StrEnum):
    SUBMIT = "submit"
    ADD = "add"
    UPDATE = "update"


class ResponseForm(StrEnum):
    XML = "xml"
    JSON = "json"
    ANVL = "anvl"


_MEDIA = {
    ResponseForm.XML: "application/xml",
    ResponseForm.JSON: "application/json",
    ResponseForm.ANVL: "text/x-anvl; charset=utf-8",
}


class UnknownResponseForm(UsageRefused):
    """The form asks for an answer in a format that is not supported."""


def poster(request: Request) -> Principal:
    """The caller, authenticated by a bearer token, or by Basic authentication with the token as password."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        caller = authenticate(request)
    else:
        try:
            token = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            token = ""
        caller = principal_of(request, token, Interface.API)
    count(request, caller)
    if not caller.role.includes(Role.DEPOSITOR):
        raise Forbidden(
            f"this needs the role {Role.DEPOSITOR}, and the token {caller.name} has the role {caller.role}"
        )
    return caller


poster.role = Role.DEPOSITOR  # type: ignore[attr-defined]
PosterCaller = Annotated[Principal, Depends(poster)]
_FORM = {
    "requestBody": {
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "Or a URL."},
                        "type": {"type": "string", "example": "object-manifest"},
                        "profile": {"type": "string", "example": "demo"},
                        "submitter": {"type": "string"},
                        "responseForm": {"type": "string", "enum": [form.value for form in ResponseForm]},
                    },
                    "required": ["file", "profile"],
                }
            }
        }
    }
}


_MEDIA_TYPES: dict[str, dict[str, str]] = {media.partition(";")[0]: {} for media in _MEDIA.values()}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The batch's id and QUEUED.", "content": _MEDIA_TYPES},
    "default": {
        "description": "The error in the form that was asked for, or a problem, as RFC 9457 has it.",
        "content": {**_MEDIA_TYPES, problems.MEDIA_TYPE: {}},
    },
}


@router.post(
    "/{verb}",
    summary="Merritt's form",
    response_class=Response,
    openapi_extra=_FORM,
    responses=_ANSWERS,
)
@router.post(
    "/{verb}/{scheme}/{shoulder}/{objectid}",
    summary="Merritt's form, for an object",
    response_class=Response,
    openapi_extra=_FORM,
    responses=_ANSWERS,
)
@receives_files
async def post(
    request: Request,
    caller: PosterCaller,
    verb: PosterVerb,
    scheme: str = "",
    shoulder: str = "",
    objectid: str = "",
) -> Response:
    """The batch's id and QUEUED, in the format of `responseForm`: xml, json or anvl."""
    context = context_of(request)
    answered = ResponseForm.XML
    try:
        async with read_form(request, caller, max_files=1000, max_fields=200) as parts:
            fields = {name: value for name, value in parts.multi_items() if isinstance(value, str)}
            answered = _response_form(fields)
            if objectid:
                fields["primaryIdentifier"] = f"{scheme}/{shoulder}/{objectid}"
            given = parts.getlist("file")
            form = Form(
                fields,
                tuple(
                    FormFile(part.filename or fields.get("filename", ""), part.file)
                    for part in given
                    if isinstance(part, UploadFile)
                ),
                tuple(part.strip() for part in given if isinstance(part, str) and part.strip()),
            )
            await run_in_threadpool(check_again, request, caller)
            done = await context.form_work.run(
                request, caller.name, lambda _: _submit(context, form, verb, caller)
            )
        return _answer("bat", "batchState", _batch(done, form, now()), answered, 200)
    except ArklineError as error:
        return _refusal(error, answered)


def _submit(context: WebContext, form: Form, verb: PosterVerb, caller: Principal) -> Submitted:
    mode = SubmissionMode.UPDATE if verb is PosterVerb.UPDATE else SubmissionMode.ADD
    return submit_form(context.site, caller, form, mode)


def _response_form(fields: Mapping[str, str]) -> ResponseForm:
    text = fields.get("responseForm", "") or ResponseForm.XML
    try:
        return ResponseForm(text)
    except ValueError as error:
        raise UnknownResponseForm(f"responseForm is one of {', '.join(ResponseForm)}") from error


def _batch(done: Submitted, form: Form, at: datetime) -> dict[str, str]:
    package = form.text("filename") or (form.files[0].name if form.files else form.urls[0])
    return {
        "batchID": done.bid,
        "batchStatus": "QUEUED",
        "packageName": package,
        "userAgent": form.text("submitter"),
        "submissionDate": at.isoformat(timespec="seconds"),
    }


def _refusal(error: ArklineError, form: ResponseForm) -> Response:
    """The error in the form that Merritt's clients expect, with the status in its specification."""
    status = problems.status_of(error)
    if isinstance(error, UnknownResponseForm):
        status = 415
    elif isinstance(error, ProfileError):
        status = 404
    elif status == 422:
        status = 400
    elif status == 500:
        log().error("request failed", error=str(error), exc_info=error)
    values = {"status": _NAMES.get(status, "GENERAL_EXCEPTION"), "statusDescription": str(error)}
    return _answer("exc", "exceptionState", {**values, "error": str(error)}, form, status)


_NAMES = {
    400: "REQUEST_INVALID",
    401: "USER_NOT_AUTHENTICATED",
    403: "USER_NOT_AUTHORIZED",
    404: "REQUESTED_ITEM_NOT_FOUND",
    413: "REQUEST_INVALID",
    415: "UNSUPPORTED_FORMAT_TYPE",
    503: "EXTERNAL_SERVICE_UNAVAILABLE",
    507: "EXTERNAL_SERVICE_UNAVAILABLE",
}


def _answer(prefix: str, root: str, values: Mapping[str, str], form: ResponseForm, status: int) -> Response:
    uri = NAMESPACES[prefix]
    named = {f"{prefix}:{name}": clean(value) for name, value in values.items()}
    match form:
        case ResponseForm.JSON:
            body = to_json({f"{prefix}:{root}": {f"xmlns:{prefix}": uri, **named}}).decode()
        case ResponseForm.ANVL:
            body = "".join(f"{name}: {' '.join(value.split())}\n" for name, value in named.items())
        case ResponseForm.XML:
            lines = "".join(f"  <{name}>{escape(value)}</{name}>\n" for name, value in named.items())
            body = f'<{prefix}:{root} xmlns:{prefix}="{uri}">\n{lines}</{prefix}:{root}>\n'
    return Response(body, status, media_type=_MEDIA[form])
