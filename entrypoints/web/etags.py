"""Strong ETags of single jobs and batches: the version of the status, and a digest of the answer.

`If-Match` compares the version alone: a verb must not meet a later state than its caller saw.
"""

import hashlib
import re
from typing import Annotated

from fastapi import Header, Request
from starlette.responses import Response

from pipeline.errors import UsageRefused
from pipeline.records import Record

_ETAG = re.compile(r'"(\d{1,10})(?:\.[0-9a-f]{16})?"')


def respond(request: Request, record: Record, version: int | None) -> Response:
    """The record with its ETag; 304 if the caller has it already."""
    body = record.model_dump_json().encode()
    digest = hashlib.sha256(body).hexdigest()[:16]
    etag = f'"{"archived" if version is None else version}.{digest}"'
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def _version(
    if_match: Annotated[
        str | None,
        Header(description="Act only if the job or batch still has this ETag; else the answer is 412."),
    ] = None,
) -> int | None:
    """The version of `If-Match`; None if any version is meant."""
    if if_match is None or if_match.strip() == "*":
        return None
    tag = _ETAG.fullmatch(if_match.strip())
    if tag is None:
        raise UsageRefused("If-Match must be the ETag of the job or batch, as its GET gave it")
    return int(tag[1])


expected_version = _version
