"""Receiving the body of a request into an upload: streamed to the disk, in the threads of the server."""

from collections.abc import AsyncIterator

from fastapi.concurrency import contextmanager_in_threadpool
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from entrypoints.web.authentication import check_again
from entrypoints.web.context import WebContext
from operations import uploads
from operations.uploads import Unfinished
from pipeline.errors import UsageRefused
from pipeline.principal import Principal
from pipeline.settings import Settings
from pipeline.uploads import writing
from pipeline.uploads.layout import Declared, UploadedFile

PIECE = 1 << 20
"""Bytes that are collected before they are written."""


def content_length(request: Request) -> int | None:
    """Bytes of the body as stated; None if it is sent in chunks."""
    stated = request.headers.get("content-length", "")
    return int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 19 else None


def check_body(request: Request, settings: Settings, name: str) -> None:
    """Refuse, before the body is read, one that is too large or is encoded."""
    writing.check_size(name, content_length(request) or 0, settings.upload_bytes)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UsageRefused("send the file as it is, without Content-Encoding")


def check_form(request: Request, settings: Settings) -> None:
    """Refuse, before it is read, a form that is too large, or whose size is not known."""
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
    """Write the body; `complete`: the file ends with it. A body that is cut leaves what `resumable` says."""
    opening = uploads.write_file(context.site, caller, upload, declared, resumable=resumable, offset=offset)
    with context.requests.receiving():
        async with contextmanager_in_threadpool(opening) as part:
            while await run_in_threadpool(part.read_on):
                pass
            async for piece in pieces(request):
                await run_in_threadpool(part.append, piece)
            await run_in_threadpool(check_again, request, caller)
            if complete:
                return await run_in_threadpool(part.finish)
            await run_in_threadpool(part.pause)
            return Unfinished(name=declared.name, offset=part.offset, size=part.declared.size)


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """The body in pieces that are worth a write."""
    piece = bytearray()
    async for chunk in request.stream():
        piece += chunk
        if len(piece) >= PIECE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)
