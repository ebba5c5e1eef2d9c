"""A bucket of S3, or of a server with the same protocol, through boto3; imported only where a bucket is used.

Rule: every write is conditional. It names the entity tag that the key must have, or requires that the key is
free; so a writer that was paused cannot replace what others have written since.
Credentials and region come from the places where boto3 looks: the environment, ~/.aws, the host's role.
"""

import hashlib
import logging
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import chain
from typing import Any, BinaryIO

import boto3
from botocore.config import Config

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.fixity import READ_CHUNK, ContentFile, Digester, OnRead, size_and_sha512
from pipeline.http.urls import redact_url
from pipeline.outcome import StepFailed, of_object, system, transient
from pipeline.settings import Settings
from pipeline.storage.base import check_source
from plugins.s3.faults import translated
from plugins.s3.keys import CONNECTIONS, Absent, KeyContent
from plugins.s3.settings import S3Settings

log = logging.getLogger(__name__)

TRIES = 3
"""Attempts at one request, with pauses chosen by boto3; after that the job tries again later."""

PART_BYTES = 8 << 20
"""Bytes per part of an upload, held in memory by every thread; S3 requires at least 5 MiB."""

MAX_PARTS = 10_000
"""Maximum parts of one upload, by S3's rules: files above 80 GiB have parts larger than PART_BYTES."""


def open_bucket(settings: Settings, own: S3Settings, tries: int = TRIES) -> "S3Bucket":
    """The bucket named in the settings; sends no request yet."""
    parts = re.fullmatch(r"s3://([^/]+)/?(.*?)/*", own.s3_root)
    assert parts is not None
    name = f"the bucket {parts[1]} at {redact_url(own.s3_endpoint) or 'S3'}"
    config = Config(
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        retries={"mode": "standard", "total_max_attempts": tries},
        max_pool_connections=CONNECTIONS,
        # We send digests where needed, and compute the digests of responses ourselves.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    # At DEBUG, botocore logs request headers, which include the tokens of temporary credentials.
    logging.getLogger("botocore").setLevel(logging.WARNING)
    with translated(name):
        try:
            client = boto3.Session().client("s3", endpoint_url=own.s3_endpoint or None, config=config)
        except ValueError as error:
            raise system(f"{name} has an invalid address: check ARKLINE_S3_ENDPOINT") from error
    return S3Bucket(client, parts[1], parts[2], name)


class S3Bucket:
    """Whole files under keys, which cannot be renamed; keys are relative to the prefix in the settings."""

    def __init__(self, client: Any, bucket: str, prefix: str, name: str) -> None:
        """`client` is boto3's S3 client, which has no types."""
        self.client = client
        self.name = name
        """The bucket and its server, for messages."""
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def get(self, key: str) -> KeyContent | None:
        """A small file's content; None if the key is free."""
        try:
            with translated(self.name, refusable=True):
                answer = self.client.get_object(**self._at(key))
                with closing(answer["Body"]) as body:
                    return KeyContent(body.read(), answer.get("ETag", ""), answer.get("Metadata", {}))
        except Absent:
            return None

    def digest(self, key: str, on_read: OnRead) -> tuple[int, str] | None:
        """Size and sha512 of the content; None if the key is free."""
        pieces = self.pieces(key)
        return None if pieces is None else size_and_sha512(pieces, on_read)

    def pieces(self, key: str, start: int = 0) -> Iterator[bytes] | None:
        """The content from the offset `start` on, as it arrives; None if the key is free."""
        pieces = self._pieces(key, start)
        try:
            first = next(pieces, b"")
        except Absent:
            return None
        return chain((first,), pieces)

    def put(self, key: str, data: bytes, etag: str | None, metadata: Mapping[str, str] | None = None) -> None:
        """Write the data; Refused unless the key has this entity tag, or is free if `etag` is None."""
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        checksum = _sha256(data)
        answer = self._change(
            self.client.put_object,
            **self._at(key),
            **condition,
            Body=data,
            Metadata=metadata or {},
            ChecksumAlgorithm="SHA256",
            ChecksumSHA256=checksum,
        )
        if answer.get("ChecksumSHA256") != checksum:
            self._read_again(key, len(data), hashlib.sha512(data).hexdigest(), UNATTENDED)

    def upload(self, key: str, file: ContentFile, attempt: Attempt) -> None:
        """Write a file to a free key; StepFailed if the file changed, Refused if the key is taken.

        On return, the server has confirmed the digests of what arrived, or the content was read back.
        """
        if file.data is not None:
            self.put(key, file.data, None)
            return
        with os.fdopen(os.open(file.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
            if file.size > PART_BYTES:
                self._upload_parts(key, stream, file, attempt)
                return
            data = stream.read(file.size + 1)
            size = os.fstat(stream.fileno()).st_size
            check_source(file, (size, hashlib.sha512(data).hexdigest()))
            self.put(key, data, None)

    def keys(self, prefix: str) -> dict[str, int]:
        """All keys with this prefix, and their sizes in bytes."""
        return dict(self.iterate(prefix))

    def iterate(self, prefix: str) -> Iterator[tuple[str, int]]:
        """(key, bytes) of all keys with this prefix, read in pages."""
        request = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        while True:
            with translated(self.name):
                answer = self.client.list_objects_v2(**request)
            for entry in answer.get("Contents", ()):
                yield entry["Key"].removeprefix(self._prefix), entry["Size"]
            if not answer.get("IsTruncated"):
                return
            request["ContinuationToken"] = answer["NextContinuationToken"]

    def names(self, limit: int) -> list[str]:
        """Up to `limit` names at the top level, of files and folders."""
        with translated(self.name):
            answer = self.client.list_objects_v2(
                Bucket=self._bucket, Prefix=self._prefix, Delimiter="/", MaxKeys=limit
            )
        keys = [entry["Key"] for entry in answer.get("Contents", ())]
        folders = [entry["Prefix"] for entry in answer.get("CommonPrefixes", ())]
        return [
            key.removeprefix(self._prefix).rstrip("/") for key in (*keys, *folders) if key != self._prefix
        ]

    def delete(self, key: str) -> None:
        with translated(self.name):
            self.client.delete_object(**self._at(key))

    def drop_uploads(self, prefix: str) -> None:
        """Remove the parts of unfinished uploads with this prefix."""
        with translated(self.name):
            answer = self.client.list_multipart_uploads(Bucket=self._bucket, Prefix=self._prefix + prefix)
        for entry in answer.get("Uploads", ()):
            self._abort({"Bucket": self._bucket, "Key": entry["Key"], "UploadId": entry["UploadId"]})

    def _at(self, key: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _change(self, call: Callable[..., dict[str, Any]], **given: Any) -> dict[str, Any]:
        """A conditional write; Refused if the condition does not hold."""
        with translated(self.name, refusable=True):
            return call(**given)

    def _pieces(self, key: str, start: int) -> Iterator[bytes]:
        ranged = {"Range": f"bytes={start}-"} if start else {}
        with translated(self.name, refusable=True):
            answer = self.client.get_object(**self._at(key), **ranged)
            with closing(answer["Body"]) as body:
                while piece := body.read(READ_CHUNK):
                    yield piece

    def _read_again(self, key: str, size: int, sha512: str, attempt: Attempt) -> None:
        """Read the content back: for servers that do not confirm the digests of uploads."""
        actual = self.digest(key, lambda _: attempt.check())
        if actual != (size, sha512):
            raise transient(f"{self.name} did not store {key} as it was sent; the job will send it again")

    def _upload_parts(self, key: str, stream: BinaryIO, file: ContentFile, attempt: Attempt) -> None:
        part_size = max(PART_BYTES, -(-file.size // MAX_PARTS))
        digester = Digester()
        parts: list[dict[str, Any]] = []
        with self._unfinished(key) as upload:
            while data := stream.read(part_size):
                attempt.check()
                digester.update(data)
                parts.append(self._upload_part(upload, len(parts) + 1, data))
            check_source(file, (digester.size, digester.value()))
            self._change(
                self.client.complete_multipart_upload,
                **upload,
                MultipartUpload={"Parts": parts},
                IfNoneMatch="*",
            )
        if any("ChecksumSHA256" not in part for part in parts):
            self._read_again(key, file.size, file.sha512, attempt)

    @contextmanager
    def _unfinished(self, key: str) -> Iterator[dict[str, Any]]:
        """A multipart upload: invisible until completed, aborted on failure."""
        with translated(self.name):
            started = self.client.create_multipart_upload(**self._at(key), ChecksumAlgorithm="SHA256")
        upload = {**self._at(key), "UploadId": started["UploadId"]}
        try:
            yield upload
        except BaseException:
            self._abort(upload)
            raise

    def _upload_part(self, upload: dict[str, Any], number: int, data: bytes) -> dict[str, Any]:
        """Upload a part; returns what completing the upload needs, with a checksum if the server confirmed
        it."""
        part: dict[str, Any] = {"PartNumber": number, "ChecksumSHA256": _sha256(data)}
        try:
            with translated(self.name, refusable=True):
                answer = self.client.upload_part(**upload, **part, Body=data, ChecksumAlgorithm="SHA256")
        except Absent as absent:
            raise of_object(upload["Key"], f"another attempt ended the upload of {upload['Key']}") from absent
        if answer.get("ChecksumSHA256") != part["ChecksumSHA256"]:
            del part["ChecksumSHA256"]
        return {**part, "ETag": answer["ETag"]}

    def _abort(self, upload: dict[str, Any]) -> None:
        try:
            with translated(self.name, refusable=True):
                self.client.abort_multipart_upload(**upload)
        except Absent:
            return
        except StepFailed as failed:
            log.warning("parts of %s remain in the bucket: %s", upload["Key"], failed.message)


def _sha256(data: bytes) -> str:
    return b64encode(hashlib.sha256(data).digest()).decode()
