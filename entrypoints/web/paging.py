"""Pages of a list: the limit, the opaque cursor, and the `Link` header of the next page."""

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Protocol, Self, TypeVar

from fastapi import Query, Request, Response

from pipeline.errors import UsageRefused


class _Page(Protocol):
    @property
    def next(self) -> str | None: ...

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self: ...


P = TypeVar("P", bound=_Page)

Limit = Annotated[int, Query(ge=1, le=500, description="Rows of a page at most.")]
Cursor = Annotated[
    str | None,
    Query(max_length=200, description="Continue after this place: `next` of the page before."),
]
LIMIT = 50
DIGITS = 19
"""Digits that a key of the database may not have."""

NO_CURSOR = "this is not a cursor: take `next` of the page before"


def encode_cursor(after: str | None) -> str | None:
    return None if after is None else base64.urlsafe_b64encode(after.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """UsageRefused for a text that is no cursor."""
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True).decode()
    except ValueError as error:  # binascii.Error and UnicodeError are such
        raise UsageRefused(NO_CURSOR) from error


def decode_number(cursor: str | None) -> int:
    """A cursor that is a number; 0 without a cursor, UsageRefused for a text that is no such cursor."""
    after = decode_cursor(cursor)
    if after is None:
        return 0
    if not (after.isascii() and after.isdecimal() and len(after) < DIGITS):
        raise UsageRefused(NO_CURSOR)
    return int(after)


def linked(request: Request, response: Response, page: P) -> P:
    """The page with an opaque cursor in `next`; the `Link` header names the next page, if there is one."""
    cursor = encode_cursor(page.next)
    if cursor is not None:
        url = request.url.include_query_params(cursor=cursor)
        response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
    return page.model_copy(update={"next": cursor})
