"""Parameters and headers that several routes share: pages of a list, filters, reasons, ETags.

An ETag is strong: the version of the status, and a digest of the answer. `If-Match` compares only the
version: a verb must not act on a later state than its caller saw.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Protocol, Self, TypeVar

from fastapi import Body, Header, Path, Query, Request, Response
from pydantic import Field, StringConstraints

from operations.board.values import BatchSearch, JobSearch
from pipeline.errors import UsageRefused
from pipeline.outcome import WaitKind
from pipeline.records import Record, SentRecord
from pipeline.states import BatchState, FailureKind, JobState


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
"""A number with this many digits may exceed the keys of the database."""

NO_CURSOR = "this is not a cursor: take `next` of the page before"


def encode_cursor(after: str | None) -> str | None:
    return None if after is None else base64.urlsafe_b64encode(after.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """The decoded cursor; UsageRefused for an invalid one."""
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True).decode()
    except ValueError as error:  # includes binascii.Error and UnicodeError
        raise UsageRefused(NO_CURSOR) from error


def decode_number(cursor: str | None) -> int:
    """The decoded number; 0 without a cursor, UsageRefused for an invalid one."""
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


Jid = Annotated[str, Path(pattern=r"^jid[0-9]{10,20}$", examples=["jid0000000001"])]
Bid = Annotated[str, Path(pattern=r"^bid[0-9]{10,20}$", examples=["bid0000000001"])]
Collection = Annotated[str, Path(min_length=1, max_length=255, examples=["demo"])]
Text = Annotated[str | None, Query(max_length=255)]

REASON_LIMIT = 500

ReasonText = Annotated[str, StringConstraints(strip_whitespace=True)]
"""Blank is empty, which is refused where a reason is required."""


class Reason(SentRecord):
    """Why somebody acts; it is recorded with the act."""

    reason: ReasonText = Field("", max_length=REASON_LIMIT, examples=["the source is back"])


NO_REASON = Reason(reason="")
Given = Annotated[Reason, Body()]


class RequiredReason(SentRecord):
    """Why somebody acts; it is recorded with the act."""

    reason: ReasonText = Field(min_length=1, max_length=REASON_LIMIT, examples=["deposited twice by mistake"])


def job_search(  # noqa: PLR0913 - the conditions of one filter
    state: JobState | None = None,
    batch: Annotated[str | None, Query(pattern=r"^bid[0-9]{10,20}$")] = None,
    collection: Text = None,
    kind: FailureKind | None = None,
    cause: Annotated[str | None, Query(max_length=64, description="The id of a group of failures.")] = None,
    older_than: Annotated[
        float | None, Query(ge=0, le=1e10, allow_inf_nan=False, description="Seconds in its state at least.")
    ] = None,
    younger_than: Annotated[
        float | None, Query(ge=0, le=1e10, allow_inf_nan=False, description="Seconds in its state at most.")
    ] = None,
    owner: Text = None,
    waiting: Annotated[WaitKind | None, Query(description="What the jobs wait for.")] = None,
    slow: Annotated[bool, Query(description="Only jobs that are in their state longer than usual.")] = False,
    q: Annotated[str | None, Query(max_length=255, description="An id, an ARK, or text of the name.")] = None,
) -> JobSearch:
    """The filter of a list of jobs, as the page of jobs has it."""
    return JobSearch(
        state=state,
        bid=batch,
        collection=collection,
        kind=kind,
        cause=cause,
        older_than=older_than,
        younger_than=younger_than,
        owner=owner,
        waiting=waiting,
        slow=slow,
        q=q,
    )


def batch_search(
    status: BatchState | None = None,
    collection: Text = None,
    owner: Text = None,
    q: Annotated[str | None, Query(max_length=255, description="An id, or text of the name.")] = None,
) -> BatchSearch:
    """The filter of a list of batches, as the page of batches has it."""
    return BatchSearch(status=status, collection=collection, owner=owner, q=q)


_ETAG = re.compile(r'"(\d{1,10})(?:\.[0-9a-f]{16})?"')


def respond(request: Request, record: Record, version: int | None) -> Response:
    """The record with its ETag; 304 if the caller already has it."""
    body = record.model_dump_json().encode()
    digest = hashlib.sha256(body).hexdigest()[:16]
    etag = f'"{"archived" if version is None else version}.{digest}"'
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def expected_version(
    if_match: Annotated[
        str | None,
        Header(description="Act only on what still has this ETag or version; else the answer is 412."),
    ] = None,
) -> int | None:
    """The version in `If-Match`; None if any version is acceptable."""
    if if_match is None or if_match.strip() == "*":
        return None
    tag = _ETAG.fullmatch(if_match.strip())
    if tag is None:
        raise UsageRefused("If-Match must be the ETag or the version in quotes, as it was read")
    return int(tag[1])
