"""Receives a stored file from a site, over a network that is cut at times: it continues where it stopped."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

from entrypoints.cli import api
from entrypoints.web.receiving import REPR_DIGEST, declared_digest
from pipeline.errors import UsageRefused
from pipeline.fixity import READ_CHUNK, Digester
from pipeline.outcome import damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import urllib3

    from entrypoints.cli.api import Client
    from entrypoints.cli.back_off import BackOff


MOST_EMPTY = 3
"""Consecutive answers without a byte after which the site is at fault, not the network."""


def received(
    site: Client,
    path: str,
    back_off: BackOff,
    on_read: Callable[[int, int], None],
    *,
    has_manifest: bool = False,
) -> Generator[bytes]:
    """The bytes of the stored file at `path`; `on_read` gets how many have arrived, and the file's size.

    The site compares a file with its digest while it sends all of it, but no range of it: what has arrived is
    compared here, too, or by the reader of an archive that has a manifest. DamagedObject if it differs, or if
    the site always ends it early; UsageRefused if `path` has another file meanwhile.
    """
    etag, size, declared, digester, empty = "", 0, None, Digester(()), 0
    while True:
        rest = {"Range": f"bytes={digester.size}-", "If-Range": etag} if etag else {}
        before = digester.size
        try:
            with site.answered(path, rest) as answer:
                if not etag:
                    etag, size = answer.headers.get("ETag", ""), int(answer.headers.get("Content-Length", 0))
                    declared = declared_digest(answer.headers, REPR_DIGEST)
                    digester = Digester((declared.algorithm,) if declared else ())
                elif answer.headers.get("ETag") != etag:
                    raise UsageRefused("the object has changed since the download began: repeat it")
                empty += 1
                for part in _parts(answer, 0 if answer.status == HTTPStatus.PARTIAL_CONTENT else before):
                    digester.update(part)
                    back_off.progressed()
                    empty = 0
                    on_read(digester.size, size)
                    yield part
            break
        except api.Away as away:
            comparable = has_manifest or declared is not None
            if not etag or not comparable:  # without an ETag, nothing has arrived
                raise
            if empty == MOST_EMPTY:
                raise damaged(f"the site ends the file after {digester.size:,} of {size:,} bytes") from away
            back_off.wait(_ended(digester.size, size) if digester.size > before else away)
    if declared and digester.value(declared.algorithm) != declared.value:
        raise damaged(
            "what has arrived has another digest than the site states: the repository's copy is damaged, or "
            f"it was changed on the way. Nothing was kept. `arkline object {_object_of(path)}` has the site "
            "read its copy again; if that is damaged, ask the repository's staff to restore it"
        )


def _parts(answer: urllib3.BaseHTTPResponse, arrived: int) -> Iterator[bytes]:
    """The bytes after those that have arrived: of a damaged object, a site sends whole files alone."""
    while part := answer.read1(READ_CHUNK):  # without a number, an early end is no error
        if new := part[arrived:]:
            yield new
        arrived = max(0, arrived - len(part))


def _ended(arrived: int, size: int) -> api.Away:
    """Why a transfer ended that had begun: a site ends a damaged file early, and that looks like a cut."""
    return api.Away(
        f"the file ended after {arrived:,} of {size:,} bytes: the connection was cut, or the repository's "
        "copy is damaged; the digest will show which"
    )


def _object_of(path: str) -> str:
    return unquote(path.removeprefix("/v1/objects/").partition("/versions/")[0])
