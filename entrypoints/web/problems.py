"""Errors as RFC 9457 problems: one table from error classes to HTTP status codes.

A problem's code is that of the row, so that a program meets only the codes that docs/api/errors.md explains.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from entrypoints.web.authentication import CrossSiteRequest, NotAuthenticated
from entrypoints.web.limits import (
    AlreadyWorking,
    NoThreadFree,
    TookTooLong,
    TooMany,
    TooManyAtOnce,
    TooManyRequests,
    TooManyWrongTokens,
)
from entrypoints.web.streams import TooManyStreams
from operations.deposits.submission import RecordFull
from operations.jobs.allowed_verbs import Moved
from operations.tokens import InvalidToken, NoSuchToken
from operations.verbs.bulk import NoSuchPlan
from pipeline.errors import ArklineError, ErrorKind, ServiceUnreachable, UsageRefused
from pipeline.inventory.fixity import TooManyProofs
from pipeline.names import NotAnArk
from pipeline.outcome import DamagedObject, StepFailed
from pipeline.principal import Forbidden
from pipeline.profiles.profile import ProfileError
from pipeline.records import Record
from pipeline.states import FailureKind, IllegalTransition
from pipeline.uploads.quota import UploadQuota
from pipeline.uploads.stored import (
    OffsetDiffers,
    UploadBusy,
    UploadConflict,
    UploadMissing,
    UploadRefused,
    UploadsFull,
    UploadTooLarge,
)
from tasks.logs import log
from zkstate.errors import Ambiguous, Busy, Corrupt, Missing, ServerLimit, Stale, TooBig
from zkstate.record.batches import KeyReused

MEDIA_TYPE = "application/problem+json"
TYPES = "/v1/errors/"
"""A problem's `type` is a path of this server that explains the code."""

RETRY_AFTER = {423: 2, 503: 5}
"""Status -> seconds."""

STATUSES: Mapping[type[ArklineError], int] = {
    NotAuthenticated: 401,
    InvalidToken: 401,
    Forbidden: 403,
    CrossSiteRequest: 403,
    Missing: 404,
    NoSuchToken: 404,
    NoSuchPlan: 404,
    IllegalTransition: 409,
    Stale: 409,
    Moved: 412,
    TooBig: 413,
    UsageRefused: 422,
    KeyReused: 422,
    ProfileError: 422,
    NotAnArk: 422,
    Busy: 423,
    TooManyRequests: 429,
    TooManyWrongTokens: 429,
    AlreadyWorking: 429,
    UploadMissing: 404,
    UploadConflict: 409,
    OffsetDiffers: 409,
    UploadTooLarge: 413,
    UploadRefused: 422,
    UploadBusy: 423,
    UploadsFull: 507,
    UploadQuota: 507,
    ServerLimit: 507,
    DamagedObject: 500,
    Corrupt: 500,
    ArklineError: 500,
    StepFailed: 500,
    ServiceUnreachable: 503,
    RecordFull: 503,
    TooManyAtOnce: 503,
    TooManyStreams: 503,
    NoThreadFree: 503,
    TookTooLong: 503,
    TooManyProofs: 503,
    Ambiguous: 503,
}
_OF_KIND = {ErrorKind.REFUSED: 422, ErrorKind.UNREACHABLE: 503}
HTTP_CODES: Mapping[int, str] = {
    400: "bad-request",
    404: "no-such-path",
    405: "method-not-allowed",
    413: "body-too-large",
    415: "unsupported-media-type",
    422: "invalid-request",
    500: "internal-error",
}
"""The codes of problems that are no error of arkline."""


class Problem(Record):
    """RFC 9457 problem details."""

    type: str = Field(examples=["/v1/errors/illegal-transition"])
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable; docs/api/errors.md explains every code.")
    kind: ErrorKind | None = Field(None, description="Kind of the error.")
    allowed: tuple[str, ...] | None = Field(
        None, description="The events that are possible now, of a job or a batch."
    )
    remedies: tuple[dict[str, str], ...] | None = Field(None, description="What helps: action and target.")
    state: str | None = Field(None, description="The state now, if the job or batch has changed.")
    changed_by: str | None = Field(None, description="Who changed the job or batch last.")
    errors: tuple[dict[str, Any], ...] | None = Field(None, description="Where the request is wrong.")
    request_id: str = ""


def row_of(error: ArklineError) -> type[ArklineError]:
    """The class of the table that the error belongs to."""
    return next(cls for cls in type(error).__mro__ if cls in STATUSES)


def status_of(error: ArklineError) -> int:
    row = row_of(error)
    if row is StepFailed and isinstance(error, StepFailed) and error.kind is FailureKind.TRANSIENT:
        return 503
    if row is ArklineError:
        return _OF_KIND.get(error.error_kind, 500)
    return STATUSES[row]


def problem_of(error: ArklineError, request: Request) -> Problem:
    code, status = row_of(error).code, status_of(error)
    moved = error if isinstance(error, Moved) else None
    possible = getattr(error, "possible", None)
    remedies = tuple({"action": remedy.action.value, "target": remedy.target} for remedy in error.remedies)
    return Problem(
        type=f"{TYPES}{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=str(error),
        code=code,
        kind=_kind_of(error),
        allowed=None if possible is None else tuple(str(event) for event in possible),
        remedies=remedies or None,
        state=str(moved.state) if moved else None,
        changed_by=moved.by if moved else None,
        request_id=request_id(request),
    )


def _kind_of(error: ArklineError) -> ErrorKind:
    if isinstance(error, StepFailed) and error.kind is FailureKind.TRANSIENT:
        return ErrorKind.UNREACHABLE
    return error.error_kind


def request_id(request: Request) -> str:
    return str(getattr(request.state, "request_id", ""))


def retry_after(error: ArklineError) -> dict[str, str]:
    """The header, if the error knows better than its status when to try again."""
    return {"Retry-After": str(error.retry_after)} if isinstance(error, TooMany) else {}


def answer(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The problem as a response, with the headers that its status demands."""
    required: dict[str, str] = {}
    if problem.status == 401:
        required["WWW-Authenticate"] = 'Bearer realm="arkline"'
    if problem.status in RETRY_AFTER:
        required["Retry-After"] = str(RETRY_AFTER[problem.status])
    return JSONResponse(
        problem.model_dump(mode="json", exclude_none=True),
        problem.status,
        {**required, **(headers or {})},
        MEDIA_TYPE,
    )


def http_problem(
    request: Request, status: int, detail: str, errors: tuple[dict[str, Any], ...] | None = None
) -> Problem:
    """A problem that is no error of arkline."""
    code = HTTP_CODES.get(status, "bad-request")
    return Problem(
        type=f"{TYPES}{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        errors=errors,
        request_id=request_id(request),
    )


def _is_json(request: Request) -> bool:
    """The framework leaves a body of another media type as bytes, which no model accepts."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return given.startswith("application/") and (given == "application/json" or given.endswith("+json"))


def install(app: FastAPI) -> None:
    """Have every error answered as a problem."""

    def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ArklineError)
        problem = problem_of(error, request)
        if problem.status == 500:
            log().error("request failed", error=str(error), code=problem.code, exc_info=error)
        return answer(problem, retry_after(error))

    def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error.__cause__, ArklineError):  # of a body: no other class leaves its reader
            return on_error(request, error.__cause__)
        return answer(http_problem(request, error.status_code, error.detail), error.headers)

    def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        if isinstance(error.body, bytes) and not _is_json(request):
            refusal = "the body is not of the type application/json: send it with that Content-Type"
            return answer(http_problem(request, 415, refusal))
        errors = tuple({"at": list(problem["loc"]), "message": problem["msg"]} for problem in error.errors())
        described = "; ".join(f"{'.'.join(map(str, row['at']))}: {row['message']}" for row in errors)
        return answer(http_problem(request, 422, described, errors))

    def on_cut(request: Request, _: Exception) -> Response:
        """The client left before its body was whole: nobody reads the answer, and it is no fault of ours."""
        return answer(http_problem(request, 400, "the body ended before its stated end"))

    def on_unexpected(request: Request, error: Exception) -> Response:
        log().error("request failed", error=f"{type(error).__name__}", exc_info=error)
        return answer(http_problem(request, 500, "an unexpected error, which is in the server's log"))

    app.add_exception_handler(ArklineError, on_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(ClientDisconnect, on_cut)
    app.add_exception_handler(Exception, on_unexpected)
