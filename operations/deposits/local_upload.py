"""Uploads a deposit's files and the manifest that names them; the caller submits the upload."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from operations.deposits.local_deposit import LocalDeposit, LocalFile
from pipeline import codes
from pipeline.errors import ArklineError, UsageRefused
from pipeline.fixity import OF_RECORD, READ_CHUNK, Digest
from pipeline.manifests import checkm
from pipeline.manifests.checkm import ManifestProfile, Row
from pipeline.names import PRODUCER, UnsafeName, UploadAddress, is_upload, parse_upload_url, safe_name
from pipeline.records import SubmissionType
from pipeline.uploads.stored import UploadedFile

MANIFEST = "manifest.checkm"
"""The name, in the upload, of the manifest made from a folder or a table."""

Read = Callable[[int], Iterator[bytes]]
"""The bytes of a file from an offset on; called once more for each transfer that continues."""


class Uploader(Protocol):
    """A site to which files are uploaded."""

    def begin(self, key: str) -> str:
        """The id of a new upload, or of the earlier upload with this key."""

    def arrived(self, upload: str) -> Mapping[str, UploadedFile]:
        """The complete files of the upload, by name."""

    def put(self, upload: str, name: str, read: Read, size: int) -> UploadedFile: ...

    def remove(self, upload: str, name: str) -> None:
        """Remove a complete file, so that other bytes may have its name."""


@dataclass(frozen=True)
class Payload:
    """The part of an upload that is submitted."""

    url: str
    filename: str
    digest: Digest
    size: int


def upload_deposit(
    deposit: LocalDeposit,
    uploader: Uploader,
    key: str = "",
    on_bytes: Callable[[int], None] = lambda size: None,
) -> Payload:
    """Upload the files, and the manifest that names them; returns what to submit.

    The sha512 of the bytes read here is compared with that of the uploaded bytes, and declared with the
    deposit: the chain of custody begins on this machine. Of the earlier upload with this key, files with the
    same bytes are not sent again.
    """
    upload = uploader.begin(key)
    before = uploader.arrived(upload) if key else {}
    arrived: dict[str, UploadedFile] = {}
    for file in deposit.files:
        known = _earlier(uploader, upload, before.get(file.name), file.size, partial(file.digest, OF_RECORD))
        if known is not None:
            on_bytes(file.size)
        arrived[file.name] = known or _send(uploader, upload, file, on_bytes)
    if not deposit.rows:
        (payload,) = arrived.values()
        return _payload(upload, payload)
    rows = [
        arrived_row(row, upload, arrived[parse_upload_url(row.url).name])
        if is_upload(row.url)
        else replace(row, line=0)
        for row in deposit.rows
    ]
    profile = ManifestProfile.of(deposit.type)
    assert profile is not None, "rows are those of a manifest"
    data = checkm.write(profile, rows)
    own = Digest(algorithm=OF_RECORD, value=hashlib.sha512(data).hexdigest())
    known = _earlier(uploader, upload, before.get(MANIFEST), len(data), lambda: own)
    manifest = _payload(
        upload, known or uploader.put(upload, MANIFEST, lambda start: iter((data[start:],)), len(data))
    )
    return replace(manifest, filename=payload_name(deposit.type, deposit.name, MANIFEST))


def payload_name(kind: SubmissionType, deposit: str | None, manifest: str) -> str:
    """What lists and mails call the payload: one object, which the depositor knows by the deposit's name and
    not by that of the manifest made here; a batch, whose objects have names, by its manifest."""
    if kind is not SubmissionType.OBJECT_MANIFEST or deposit is None:
        return manifest
    try:
        return safe_name(deposit, PRODUCER)
    except UnsafeName:
        return manifest


def _earlier(
    uploader: Uploader, upload: str, known: UploadedFile | None, size: int, sha512: Callable[[], Digest]
) -> UploadedFile | None:
    """The complete file of an earlier transfer if it has these bytes; one that has others is removed."""
    if known is None or (known.size == size and known.sha512 == sha512().value):
        return known
    uploader.remove(upload, known.name)
    return None


def _send(uploader: Uploader, upload: str, file: LocalFile, on_bytes: Callable[[int], None]) -> UploadedFile:
    digest, hashed, counted = hashlib.sha512(), 0, 0

    def read(start: int) -> Iterator[bytes]:
        """Also hashes and counts, in order: a continued transfer may begin before or after what was read."""
        nonlocal hashed, counted
        place = min(start, hashed)
        with file.opened() as stream:
            stream.seek(place)
            while chunk := stream.read(min(READ_CHUNK, file.size - place)):
                digest.update(chunk[max(0, hashed - place) :])
                place += len(chunk)
                hashed = max(hashed, place)
                if place > start:
                    on_bytes(max(0, place - counted))
                    counted = max(counted, place)
                    yield chunk[max(0, len(chunk) - (place - start)) :]
            if place < file.size or stream.read(1):
                raise UsageRefused(f"{file.path} has changed since it was listed: repeat the command")

    arrived = uploader.put(upload, file.name, read, file.size)
    if hashed < file.size:  # the site had the rest already
        for _ in read(file.size):
            pass
    if arrived.sha512 != digest.hexdigest():
        uploader.remove(upload, file.name)
        raise ArklineError(
            f"{file.path}: other bytes arrived than were sent; nothing was submitted: try again",
            code=codes.TRANSFER_DAMAGED,
        )
    return arrived


def arrived_row(row: Row, upload: str, file: UploadedFile) -> Row:
    """The row of a file with its address in the upload, and with the digest unless one is declared."""
    return replace(
        row,
        line=0,
        url=UploadAddress(upload, file.name).url,
        digest=row.digest or Digest(algorithm=OF_RECORD, value=file.sha512),
        size=file.size if row.size is None else row.size,
    )


def _payload(upload: str, file: UploadedFile) -> Payload:
    digest = Digest(algorithm=OF_RECORD, value=file.sha512)
    name = file.name.rpartition("/")[2]
    return Payload(UploadAddress(upload, file.name).url, name, digest, file.size)
