"""Download of what is stored: the files of a version of an object."""

import re
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote

from fastapi import Header, Path, Request, Response
from starlette.convertors import PathConvertor, register_url_convertor

from entrypoints.web.api_router import api_router
from entrypoints.web.authentication import Caller
from entrypoints.web.context import context_of
from entrypoints.web.limits import is_local, slow
from entrypoints.web.problems import answer, problem_of
from entrypoints.web.receiving import REPR_DIGEST, written
from entrypoints.web.retrieval import Retrieval
from operations.objects import retrieval
from operations.objects.objects import bag_name, dissemination
from operations.objects.retrieval import ChosenFile, ChosenVersion
from pipeline import codes
from pipeline.attempt import Attempt
from pipeline.errors import ArklineError
from pipeline.fixity import OF_RECORD
from pipeline.inventory.base import InventoryObject, PreservationEvent
from pipeline.preservation.export import tar, tar_size, zip_of

LAST_PROOF = "Arkline-Last-Proof"
"""When every byte of the object was last read and found to be as it was stored; absent if never."""

SANDBOX = "sandbox; default-src 'none'"
"""What a browser may do with a stored file that it shows in spite of everything: nothing."""

_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_UNQUOTABLE = re.compile(r'[^ -~]|["\\%]')


class FirstPart(PathConvertor):
    """A path that is as short as the rest of the route allows: a file name may contain `/versions/`."""

    regex = ".+?"


register_url_convertor("first", FirstPart())

router = api_router("/v1/objects", "objects")

Ark = Annotated[str, Path(max_length=255, examples=["ark:/99999/fk4abc"])]
Version = Annotated[
    str, Path(pattern="^(current|[1-9][0-9]{0,6})$", examples=["1"], description="A number, or `current`.")
]
StoredPath = Annotated[str, Path(max_length=1100, examples=["producer/harbour.tif"])]

_BYTES = {"schema": {"type": "string", "format": "binary"}}
_BINARY = {"content": {"application/octet-stream": _BYTES}}


@router.head("/{ark:first}/versions/{version}/files/{file:path}", include_in_schema=False)
@router.get(
    "/{ark:first}/versions/{version}/files/{file:path}",
    summary="Download a file of a version",
    response_class=Response,
    responses={
        200: {**_BINARY, "description": "The file, compared with its digest while it is sent."},
        206: {**_BINARY, "description": "The requested range."},
        304: {"description": "Unchanged."},
    },
)
@slow("retrieval_work")
def download_file(  # noqa: PLR0913 - a request has these headers
    request: Request,
    caller: Caller,
    ark: Ark,
    version: Version,
    file: StoredPath,
    range_: Annotated[str | None, Header(alias="Range", max_length=200)] = None,
    if_range: Annotated[str | None, Header(max_length=300)] = None,
    if_none_match: Annotated[str | None, Header(max_length=2000)] = None,
) -> Response:
    """The names of files are in the object's versions. One range is served, several as the whole file.

    A file that is damaged in storage ends before its stated length. A range is not compared with the digest
    of the file: `Arkline-Last-Proof` has the time of the last proof. While the object is known to be damaged,
    that is absent, and whole files are sent.
    """
    web = context_of(request)
    of = retrieval.chosen_file(web.site, caller, ark, version, file)
    size, etag = of.file.size, f'"{of.file.digest.rpartition(":")[2]}"'
    headers = {**_described(of), "ETag": etag}
    if if_none_match and (if_none_match.strip() == "*" or etag in if_none_match):
        return Response(None, 304, headers)
    if request.method == "HEAD":  # of the whole file: only GET has ranges (RFC 9110, 14.2)
        return Response(None, 200, {**headers, "Content-Length": str(size)})
    in_part = (if_range is None or if_range.strip() == etag) and not of.known.is_damaged
    asked = range_ if in_part else None
    span = _span(asked or "", size)
    if span is None:
        error = ArklineError(
            f"{of.file.path} has {size:,} bytes, and the range {range_} has none of them",
            code=codes.RANGE_NOT_SATISFIABLE,
        )
        return answer(problem_of(error, request), {"Content-Range": f"bytes */{size}"})
    start, length = span
    headers["Content-Length"] = str(length)
    if is_part := length < size:
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
    pieces = retrieval.file_bytes(web.site, of, start, length)
    return sent(request, of, retrieval.event_of(of), pieces, headers, 206 if is_part else 200)


@router.head("/{ark:first}/versions/{version}/bag", include_in_schema=False)
@router.get(
    "/{ark:first}/versions/{version}/bag",
    summary="Download a version as a BagIt bag",
    response_class=Response,
    responses={
        200: {"content": {"application/x-tar": _BYTES}, "description": "A tar archive of the bag."},
        206: {**_BINARY, "description": "The rest of the archive."},
    },
)
@slow("retrieval_work")
def download_bag(  # noqa: PLR0913 - a request has these headers
    request: Request,
    caller: Caller,
    attempt: Attempt,
    ark: Ark,
    version: Version,
    range_: Annotated[str | None, Header(alias="Range", max_length=200)] = None,
    if_range: Annotated[str | None, Header(max_length=300)] = None,
) -> Response:
    """All files of the version, with their digests of record and the events of the object as PREMIS.

    Every file is compared with its digest while it is sent: a damaged one ends the archive before its end.
    The rest of an archive that was cut is sent for a range from there on with the `ETag` of that answer as
    `If-Range`; the file in which it was cut is not compared then, but its digest is in the manifest. Without
    `If-Range`, and if the record of the object has changed, the answer is a whole new bag.
    """
    web = context_of(request)
    of = retrieval.chosen_version(web.site, caller, ark, version)
    begun = (if_range or "").strip().strip('"') if range_ else ""
    given = retrieval.bag_of(web.site, web.events, caller, of, attempt.check, begun)
    folder = bag_name(of.known, of.version.number)
    size = tar_size(folder, given.bag.sizes())
    is_whole = given.name != begun or request.method == "HEAD"  # only GET has ranges (RFC 9110, 14.2)
    start = 0 if is_whole else _rest(range_ or "", size)
    headers = _archive(of, f"{folder}.tar", "application/x-tar", size - start)
    headers |= {"ETag": f'"{given.name}"', "Accept-Ranges": "bytes"}
    pieces = tar(folder, given.bag.parts(web.site.storage()), given.event.at, start)
    if start:
        headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
    return sent(request, of, given.event, pieces, headers, 206 if start else 200)


@router.head("/{ark:first}/versions/{version}/zip", include_in_schema=False)
@router.get(
    "/{ark:first}/versions/{version}/zip",
    summary="Download the deposited files of a version as a zip archive",
    response_class=Response,
    responses={200: {"content": {"application/zip": _BYTES}, "description": "The archive."}},
)
@slow("retrieval_work")
def download_zip(request: Request, caller: Caller, ark: Ark, version: Version) -> Response:
    """The files as they were deposited, not compressed. A damaged one ends the archive before its end."""
    site = context_of(request).site
    of = retrieval.chosen_version(site, caller, ark, version)
    event = dissemination(of.known.ark, of.version.number, of.by, "a copy of the deposited files as a zip")
    folder = bag_name(of.known, of.version.number)
    size, pieces = zip_of(folder, of.known.ark, of.version, site.storage())
    return sent(request, of, event, pieces, _archive(of, f"{folder}.zip", "application/zip", size))


def _archive(of: ChosenVersion, name: str, media_type: str, size: int) -> dict[str, str]:
    return {
        "Content-Type": media_type,
        "Content-Disposition": attachment(name),
        "Content-Length": str(size),
        **last_proof(of.known),
    }


def sent(
    request: Request,
    of: ChosenVersion,
    event: PreservationEvent,
    pieces: Iterator[bytes],
    headers: dict[str, str],
    status: int = 200,
) -> Response:
    """The bytes as an answer; the event is entered once they begin, one file in an hour once.

    HEAD is answered without reading a byte, and is no event. For the rest of an archive, an event is entered
    only if none was for its beginning, as after a crash.
    """
    if request.method == "HEAD":
        return Response(None, status, headers)
    site, events = context_of(request).site, context_of(request).events
    series = isinstance(of, ChosenFile) or status == HTTPStatus.PARTIAL_CONTENT
    return Retrieval(
        context_of(request).retrievals,
        of.by,
        pieces,
        headers,
        status,
        on_begin=partial(retrieval.enter, site, events, event, series=series),
        on_damage=partial(retrieval.raise_alarm, site, events, of, event),
        check=None if is_local(request) else request.state.check_again,
    )


def _described(of: ChosenFile) -> dict[str, str]:
    """The headers of a file, whichever part of it is sent."""
    algorithm, _, digest = of.file.digest.partition(":")
    known = _MEDIA_TYPE.fullmatch(of.file.mime_type)
    return {
        "Content-Type": of.file.mime_type if known else "application/octet-stream",
        "Content-Disposition": attachment(of.file.path.rpartition("/")[2]),
        "Content-Security-Policy": SANDBOX,
        "Accept-Ranges": "bytes",
        **({REPR_DIGEST: written(digest)} if algorithm == OF_RECORD else {}),
        **last_proof(of.known),
    }


def last_proof(known: InventoryObject) -> dict[str, str]:
    proved = known.fixity.proved if known.fixity and not known.is_damaged else None
    return {LAST_PROOF: proved.isoformat(timespec="seconds")} if proved else {}


def attachment(name: str) -> str:
    """A Content-Disposition by which every browser saves the file, under its name (RFC 6266)."""
    plain = _UNQUOTABLE.sub("_", name)
    extended = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'attachment; filename="{plain}"{extended}'


def _rest(text: str, size: int) -> int:
    """The offset of a range from there to the end; 0 for any other range."""
    start, length = _span(text, size) or (0, size)
    return start if start + length == size else 0


def _span(text: str, size: int) -> tuple[int, int] | None:
    """Offset and length of the single range in the header; None if the file has no byte of it.

    Of the whole file without a range, and for kinds of ranges that are not served.
    """
    match = _RANGE.fullmatch(text.strip())
    first, last = match.groups() if match else ("", "")
    if (not first and not last) or (first and last and int(last) < int(first)):
        return 0, size
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    return (start, end - start) if start < end else None
