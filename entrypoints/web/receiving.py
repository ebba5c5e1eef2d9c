"""Receives files: a request's body or a form's parts, written to the upload folder.

Rule: no byte of a form goes to the system's temporary folder, which may be in memory. Digests in headers are
written as in RFC 9530: `Repr-Digest: sha-512=:BASE64:`.
"""

import base64
import binascii
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress

from fastapi.concurrency import contextmanager_in_threadpool
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from entrypoints.web.authentication import check_again
from entrypoints.web.context import WebContext, context_of
from entrypoints.web.limits import NO_ANSWER
from entrypoints.web.middleware import LIMIT
from operations.deposits import uploads
from operations.deposits.uploads import Unfinished
from pipeline.errors import UsageRefused
from pipeline.fixity import Digest
from pipeline.principal import Principal
from pipeline.settings import Settings
from pipeline.sources.response import names_stated
from pipeline.uploads import writing
from pipeline.uploads.stored import Declared, UploadedFile

REPR_DIGEST = "Repr-Digest"
CONTENT_DIGEST = "Content-Digest"

_ALGORITHMS = {"sha-512": "sha512", "sha-256": "sha256", "sha": "sha1", "md5": "md5"}
"""The algorithm names of RFC 9530, strongest first."""

# a name is read from its first sign alone: of a header of 60 KB, every sign would be the first of a name
_MEMBER = re.compile(r"(?<![a-z0-9-])([a-z0-9-]++)=:([A-Za-z0-9+/=]*+):")


def declared_digest(headers: Mapping[str, str], *names: str) -> Digest | None:
    """The strongest digest in the first of these headers present; UsageRefused if none is usable."""
    header = next((name for name in names if name in headers), None)
    if header is None:
        return None
    given = dict(_MEMBER.findall(headers[header]))
    for name, algorithm in _ALGORITHMS.items():
        if name in given:
            return _digest(header, algorithm, given[name])
    raise UsageRefused(
        f"{header} has no digest that can be compared: send {' or '.join(_ALGORITHMS)}, as sha-256=:BASE64:"
    )


def _digest(header: str, algorithm: str, text: str) -> Digest:
    try:
        return Digest(algorithm=algorithm, value=base64.b64decode(text, validate=True).hex())
    except (binascii.Error, ValueError) as error:
        raise UsageRefused(f"{header}: '{text[:100]}' is not the base64 of a {algorithm} digest") from error


def written(sha512: str) -> str:
    """A digest of record as header value."""
    return f"sha-512=:{base64.b64encode(bytes.fromhex(sha512)).decode()}:"


PIECE = 1 << 20
"""Bytes collected before a write."""


def stated_name(headers: Mapping[str, str]) -> str | None:
    """The file's name in Content-Disposition, as the client wrote it."""
    return next(filter(None, names_stated(headers.get("content-disposition", ""))), None)


def content_length(request: Request) -> int | None:
    """The stated length of the body in bytes; None if it is sent in chunks."""
    stated = request.headers.get("content-length", "")
    return int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 19 else None


async def has_body(request: Request) -> bool:
    """Whether a byte is sent; of a body in chunks, the first is awaited."""
    if (stated := content_length(request)) is not None:
        return stated > 0
    async for chunk in request.stream():
        if chunk:
            return True
    return False


def check_body(request: Request, settings: Settings, name: str) -> None:
    """Refuse a body, before it is read, that is too large or is encoded."""
    writing.check_size(name, content_length(request) or 0, settings.upload_bytes)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UsageRefused("send the file as it is, without Content-Encoding")


def check_form(request: Request, settings: Settings) -> None:
    """Refuse a form, before it is read, that is too large or of unknown size."""
    if content_length(request) is None:
        raise UsageRefused("send the form with a Content-Length")
    check_body(request, settings, "the form")


async def receive(  # noqa: PLR0913 - a request has these parts
    request: Request,
    context: WebContext,
    caller: Principal,
    upload: str,
    declared: Declared,
    *,
    resumable: bool = False,
    complete: bool = True,
    offset: int | None = None,
) -> UploadedFile | Unfinished:
    """Write the body; `complete`: the file ends with it. If it is cut off, `resumable` says what is kept."""
    opening = uploads.write_file(context.site, caller, upload, declared, resumable=resumable, offset=offset)
    with context.requests.receiving():
        async with contextmanager_in_threadpool(opening) as part:
            while await run_in_threadpool(part.read_on):
                pass
            async for piece in pieces(request):
                await run_in_threadpool(part.append, piece)
            await run_in_threadpool(_check_still, request, caller)
            if complete:
                return await run_in_threadpool(part.finish)
            await run_in_threadpool(part.pause)
            return Unfinished(name=declared.name, offset=part.offset, size=part.declared.size)


def _check_still(request: Request, caller: Principal) -> None:
    """Like `check_again`, but bytes that have arrived are kept while nobody answers: no deposit has begun."""
    with suppress(*NO_ANSWER):
        check_again(request, caller)


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """The body in pieces large enough for a write."""
    piece = bytearray()
    async for chunk in request.stream():
        piece += chunk
        if len(piece) >= PIECE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


FIELD = 1 << 16
"""Maximum bytes of a form field that is not a file."""


@asynccontextmanager
async def read_form(
    request: Request, caller: Principal, *, max_files: int, max_fields: int
) -> AsyncIterator[FormData]:
    """The fields and files; the files are deleted after the block. HTTPException beyond a limit."""
    context = context_of(request)
    check_form(request, context.settings)
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != b"multipart/form-data":
        if (content_length(request) or 0) > LIMIT:
            raise _too_much(f"{LIMIT:,} bytes beside its files")
        async with request.form(max_fields=max_fields, max_part_size=FIELD) as fields:
            yield fields
        return
    place = uploads.FormPlace(context.site, caller)
    form = _Form(place, options.get(b"boundary", b""), max_files, max_fields)
    try:
        async for piece in pieces(request):
            await run_in_threadpool(form.write, piece)
        yield await run_in_threadpool(form.finish)
    finally:
        await run_in_threadpool(form.close)


class _Form:
    """A multipart form as it arrives."""

    def __init__(self, place: uploads.FormPlace, boundary: bytes, max_files: int, max_fields: int) -> None:
        if not boundary:
            raise HTTPException(400, "the form has no boundary in its Content-Type")
        self._place = place
        self._left = {"files": max_files, "fields": max_fields}
        self._in_memory = 0
        """Bytes of headers and fields so far."""
        self._open = ExitStack()
        self._items: list[tuple[str, str | UploadFile]] = []
        self._begin_part()
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._name_header,
                "on_header_value": self._take_header,
                "on_header_end": self._end_header,
                "on_headers_finished": self._begin_content,
                "on_part_data": self._take,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
        )

    def write(self, piece: bytes) -> None:
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise HTTPException(400, "the body is no multipart form") from error

    def finish(self) -> FormData:
        if not self._ended:
            raise HTTPException(400, "the form ends before its last boundary")
        for _, value in self._items:
            if isinstance(value, UploadFile):
                value.file.seek(0)
        self._place.release()
        return FormData(self._items)

    def close(self) -> None:
        """Also release the parser, whose callbacks refer to this form: cycles are collected much later."""
        self._open.close()
        self._place.release()
        del self._parser

    def _begin_part(self) -> None:
        self._header, self._value = bytearray(), bytearray()
        self._disposition = b""
        self._name = ""
        self._file: UploadFile | None = None
        self._data = bytearray()

    def _name_header(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._header += data[start:end]

    def _take_header(self, data: bytes, start: int, end: int) -> None:
        self._count(end - start)
        self._value += data[start:end]

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._header, self._value = bytearray(), bytearray()

    def _begin_content(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise HTTPException(400, "a part of the form has no name in its Content-Disposition")
        self._name = _text(options[b"name"])
        kind = "files" if b"filename" in options else "fields"
        if not self._left[kind]:
            raise _too_much(f"the {kind} that are accepted in one")
        self._left[kind] -= 1
        if b"filename" in options:
            file = self._open.enter_context(self._place.open_file())
            self._file = UploadFile(file, filename=_text(options[b"filename"]))

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._file is not None:
            self._place.write(self._file.file, data[start:end])
            return
        if len(self._data) + end - start > FIELD:
            raise _too_much(f"{FIELD:,} bytes in one field")
        self._count(end - start)
        self._data += data[start:end]

    def _end_part(self) -> None:
        self._items.append((self._name, _text(self._data) if self._file is None else self._file))

    def _end(self) -> None:
        self._ended = True

    def _count(self, size: int) -> None:
        """Count bytes before they are copied."""
        self._in_memory += size
        if self._in_memory > LIMIT:
            raise _too_much(f"{LIMIT:,} bytes beside its files")


def _text(data: bytes | bytearray) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _too_much(limit: str) -> HTTPException:
    return HTTPException(400, f"the form has more than {limit}: send less, or upload files by /v1/uploads")
