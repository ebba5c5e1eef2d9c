"""Errors as RFC 9457 problems, with the codes and statuses of `pipeline.codes`."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from entrypoints.web.limits import TooMany
from operations.jobs.allowed_verbs import Moved
from pipeline import codes
from pipeline.codes import Code, ErrorKind
from pipeline.errors import ArklineError
from pipeline.records import Record
from tasks.logs import log

MEDIA_TYPE = "application/problem+json"
TYPES = "/v1/errors/"
"""A problem's `type` is a path of this server that explains the code."""

RETRY_AFTER = {423: 2, 503: 5}
"""Status -> seconds."""

FRAMEWORK = {
    400: codes.BAD_REQUEST,
    404: codes.NO_SUCH_PATH,
    405: codes.METHOD_NOT_ALLOWED,
    413: codes.BODY_TOO_LARGE,
    415: codes.UNSUPPORTED_MEDIA_TYPE,
    422: codes.INVALID_REQUEST,
    500: codes.INTERNAL_ERROR,
}
"""Status -> the code of a problem that is not an arkline error."""


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


RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {"model": Problem, "description": "A problem, as RFC 9457 has it."}
}
"""For the document of the API: what any operation may answer."""


def code_of(error: ArklineError) -> Code:
    """The code that the API shows: the error's own, or that of its nearest base class with a status."""
    of_types = (kind.code for kind in type(error).__mro__ if issubclass(kind, ArklineError))
    return next(code for code in (error.code, *of_types) if code.status)


def status_of(error: ArklineError) -> int:
    code = code_of(error)
    assert code.status is not None
    is_transient = code is codes.STEP_FAILED and error.error_kind is ErrorKind.UNREACHABLE
    return 503 if is_transient else code.status


def problem_of(error: ArklineError, request: Request) -> Problem:
    code, status = code_of(error).name, status_of(error)
    moved = error if isinstance(error, Moved) else None
    possible = getattr(error, "possible", None)
    remedies = tuple({"action": remedy.action.value, "target": remedy.target} for remedy in error.remedies)
    return Problem(
        type=f"{TYPES}{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=str(error),
        code=code,
        kind=error.error_kind,
        allowed=None if possible is None else tuple(str(event) for event in possible),
        remedies=remedies or None,
        state=str(moved.state) if moved else None,
        changed_by=moved.by if moved else None,
        errors=getattr(error, "listed", None) or None,
        request_id=request_id(request),
    )


def request_id(request: Request) -> str:
    return str(getattr(request.state, "request_id", ""))


def retry_after(error: ArklineError) -> dict[str, str]:
    """The Retry-After header, if the error knows it more precisely than its status does."""
    return {"Retry-After": str(error.retry_after)} if isinstance(error, TooMany) else {}


def answer(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The problem as a response, with the headers that its status requires."""
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
    """A problem that is not an arkline error."""
    code = FRAMEWORK.get(status, codes.BAD_REQUEST).name
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
    """Whether the body is JSON: the framework passes other media types as bytes, which no model accepts."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return given.startswith("application/") and (given == "application/json" or given.endswith("+json"))


def methods_of(route: Route) -> frozenset[str]:
    """The methods that are served at the route's path: HEAD is wherever GET is."""
    methods = frozenset(route.methods or ())
    return methods | {"HEAD"} if "GET" in methods else methods


def _allowed(request: Request) -> str:
    """The methods of all routes of this path: the framework names those of the first."""
    of_path = (
        route
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    )
    return ", ".join(sorted({method for route in of_path for method in methods_of(route)}))


def _said(invalid: Mapping[str, Any]) -> str:
    if invalid["type"] == "tuple_type":  # JSON has no tuples
        return "Input should be a list"
    if invalid["type"] != "extra_forbidden":
        return str(invalid["msg"])
    kind = "parameter" if invalid["loc"][0] == "query" else "field"
    return f"is no {kind} of this request (/docs has them)"


def install(app: FastAPI) -> None:
    """Answer every error as a problem."""

    def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ArklineError)
        problem = problem_of(error, request)
        if problem.status == 500:
            log().error("request failed", error=str(error), code=problem.code, exc_info=error)
        return answer(problem, retry_after(error))

    def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error.__cause__, ArklineError):  # from a body: no other class leaves its reader
            return on_error(request, error.__cause__)
        headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
        return answer(http_problem(request, error.status_code, error.detail), headers)

    def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        if isinstance(error.body, bytes) and not _is_json(request):
            refusal = "the body is not of the type application/json: send it with that Content-Type"
            return answer(http_problem(request, 415, refusal))
        errors = tuple({"at": list(one["loc"]), "message": _said(one)} for one in error.errors())
        described = "; ".join(f"{'.'.join(map(str, row['at']))}: {row['message']}" for row in errors)
        return answer(http_problem(request, 422, described, errors))

    def on_cut(request: Request, _: Exception) -> Response:
        """The client disconnected before its body was complete: nobody reads the answer; it is no server
        fault."""
        return answer(http_problem(request, 400, "the body ended before its stated end"))

    def on_unexpected(request: Request, error: Exception) -> Response:
        log().error("request failed", error=f"{type(error).__name__}", exc_info=error)
        return answer(http_problem(request, 500, "an unexpected error, which is in the server's log"))

    app.add_exception_handler(ArklineError, on_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(ClientDisconnect, on_cut)
    app.add_exception_handler(Exception, on_unexpected)
