"""Sends a deposit's files to a site, over a network that is away at times and to a site that asks to wait.

A large file is sent in pieces; the site keeps what has arrived of it, and says where to continue.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from entrypoints.cli import api
from operations.deposits import uploads
from pipeline.uploads import stored

if TYPE_CHECKING:
    from entrypoints.cli.api import Client
    from entrypoints.cli.back_off import BackOff
    from operations.deposits.local_upload import Read
    from pipeline.uploads.stored import UploadedFile

PIECE = 8 << 20
"""Bytes of one request, as of the pages: a proxy that takes those takes these."""


@dataclass
class SiteUploader:
    """Implements `operations.deposits.local_upload.Uploader` for a site."""

    site: Client
    back_off: BackOff
    upload: str = field(default="", init=False)
    """The id, once the upload has begun."""

    def begin(self, key: str) -> str:
        headers = {"Idempotency-Key": key} if key else {}
        self.upload = str(json.loads(self.site.request("POST", "/v1/uploads", headers=headers))["id"])
        return self.upload

    def arrived(self, upload: str) -> Mapping[str, UploadedFile]:
        view = self.back_off.repeated(partial(self.site.get, f"/v1/uploads/{upload}", uploads.UploadView))
        return {file.name: file for file in view.files}

    def put(self, upload: str, name: str, read: Read, size: int) -> UploadedFile:
        path = _path(upload, name)
        if size <= PIECE:
            return _file(self.back_off.repeated(lambda: self._send("PUT", path, read(0), size)))
        offset = 0
        while True:
            length = min(PIECE, size - offset)
            ends = offset + length == size
            headers = {
                "Upload-Offset": str(offset),
                "Upload-Complete": "?1" if ends else "?0",
                "Upload-Length": str(size),
            }
            try:
                data = read(offset) if ends else _first(read(offset), length)
                answer = self._send("PATCH", path, data, length, headers)
            except (api.Away, api.RefusedBySite) as error:
                if isinstance(error, api.Away):
                    self.back_off.wait(error)
                there, complete = self._there(path)
                if complete:
                    return self.arrived(upload)[name]
                if isinstance(error, api.RefusedBySite) and there == offset:
                    raise
                if there > offset:
                    self.back_off.progressed()
                offset = there
            else:
                self.back_off.progressed()
                if ends:
                    return _file(answer)
                offset += length

    def remove(self, upload: str, name: str) -> None:
        self.back_off.repeated(partial(self.site.request, "DELETE", _path(upload, name)))

    def _send(
        self, method: str, path: str, data: Iterable[bytes], size: int, headers: Mapping[str, str] = {}
    ) -> bytes:
        # with a length, the site can refuse before reading
        stated = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        return self.site.request(method, path, data=data, headers={**stated, **headers})

    def _there(self, path: str) -> tuple[int, bool]:
        """How many bytes of the file have arrived, and whether it is complete; the answer is no progress."""
        try:
            headers = self.back_off.tried(partial(self.site.head, path))
        except api.RefusedBySite:  # none has
            return 0, False
        return int(headers["Upload-Offset"]), headers["Upload-Complete"] == "?1"


def _path(upload: str, name: str) -> str:
    return f"/v1/uploads/{upload}/{quote(name, safe='/')}"


def _file(answer: bytes) -> UploadedFile:
    arrived = json.loads(answer)
    return stored.UploadedFile(name=arrived["name"], size=arrived["size"], sha512=arrived["sha512"])


def _first(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The first `size` bytes."""
    for piece in pieces:
        yield piece[:size]
        size -= len(piece)
        if size <= 0:
            return
