"""The codes of problems, explained: a problem's `type` is one of these paths."""

from fastapi import APIRouter
from starlette.exceptions import HTTPException

from entrypoints.web.problems import HTTP_CODES, STATUSES
from pipeline.records import Record

router = APIRouter(prefix="/v1/errors", tags=["about"])

_MEANINGS = {
    "bad-request": "The request cannot be read.",
    "no-such-path": "The server has no such path.",
    "method-not-allowed": "The path has no such method.",
    "body-too-large": "The body is larger than the server accepts.",
    "unsupported-media-type": "The body is not in a format that the path accepts.",
    "invalid-request": "A parameter or a field of the body is not valid; `errors` says which.",
    "internal-error": "An unexpected error of the server, which is in its log under the request id.",
}


class ErrorCode(Record):
    code: str
    status: int
    meaning: str


def all_codes() -> dict[str, ErrorCode]:
    own = [
        ErrorCode(code=cls.code, status=status, meaning=(cls.__doc__ or "").partition("\n")[0])
        for cls, status in STATUSES.items()
    ]
    others = [
        ErrorCode(code=code, status=status, meaning=_MEANINGS[code]) for status, code in HTTP_CODES.items()
    ]
    return {entry.code: entry for entry in (*own, *others)}


@router.get("", summary="Every code of a problem")
def list_codes() -> list[ErrorCode]:
    return list(all_codes().values())


@router.get("/{code}", summary="One code of a problem")
def show_code(code: str) -> ErrorCode:
    try:
        return all_codes()[code]
    except KeyError as error:
        raise HTTPException(404, f"there is no error code {code}") from error
