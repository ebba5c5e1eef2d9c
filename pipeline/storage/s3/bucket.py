"""A bucket of S3 or of a server that speaks its protocol, by boto3; imported only where one is used.

Credentials and region come from where boto3 looks for them always: the environment, ~/.aws, the host's role.
"""

import hashlib
import logging
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import boto3
from botocore.config import Config

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.fixity import READ_CHUNK
from pipeline.outcome import StepFailed, system, transient
from pipeline.settings import Settings
from pipeline.storage.ocfl.bucket import AT_ONCE, Conflict, Got, Held, Unlike
from pipeline.storage.s3.faults import Absent, Refused, translated
from pipeline.urls import redact_url

log = logging.getLogger(__name__)

TRIES = 3
"""Tries of one request, with pauses that boto3 chooses; then the job's next try comes back to it."""

PART = 8 << 20
"""Bytes sent in one request, and held in memory by each thread; S3 wants 5 MiB at least."""

MOST_PARTS = 10_000
"""Parts of one upload at most, by S3's rules: parts of files above 80 GiB are larger than PART."""


class Client(Protocol):
    """What is used of boto3's client of S3, which has no types."""

    def get_object(self, **given: Any) -> dict[str, Any]: ...
    def put_object(self, **given: Any) -> dict[str, Any]: ...
    def delete_object(self, **given: Any) -> dict[str, Any]: ...
    def list_objects_v2(self, **given: Any) -> dict[str, Any]: ...
    def list_multipart_uploads(self, **given: Any) -> dict[str, Any]: ...
    def create_multipart_upload(self, **given: Any) -> dict[str, Any]: ...
    def upload_part(self, **given: Any) -> dict[str, Any]: ...
    def complete_multipart_upload(self, **given: Any) -> dict[str, Any]: ...
    def abort_multipart_upload(self, **given: Any) -> dict[str, Any]: ...


@dataclass(frozen=True)
class _Sent:
    """The parts of an upload, as its end has to name them."""

    parts: list[dict[str, Any]]
    confirmed: bool
    """Whether the server compared the digest of every part."""
    found: tuple[int, str]
    """Size and sha512 of all of it."""


def open_bucket(settings: Settings, tries: int = TRIES) -> "S3Bucket":
    """The bucket of the settings; it is not asked for anything yet."""
    found = re.fullmatch(r"s3://([^/]+)/?(.*?)/*", settings.s3_root)
    assert found is not None
    name = f"the bucket {found[1]} at {redact_url(settings.s3_endpoint) or 'S3'}"
    config = Config(
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        retries={"mode": "standard", "total_max_attempts": tries},
        max_pool_connections=AT_ONCE,
        # We send the digests that are wanted, and compute those of what comes back.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    # At DEBUG it logs the headers of requests, and with them the tokens of temporary credentials.
    logging.getLogger("botocore").setLevel(logging.WARNING)
    with translated(name):
        try:
            client = boto3.Session().client("s3", endpoint_url=settings.s3_endpoint or None, config=config)
        except ValueError as error:
            raise system(f"{name} has no address that can be used: check ARKLINE_S3_ENDPOINT") from error
    return S3Bucket(client, found[1], found[2], name)


class S3Bucket:
    """Keys are given and answered without the prefix that the settings put before all of them."""

    def __init__(self, client: Client, bucket: str, prefix: str, name: str) -> None:
        self.client = client
        self.name = name
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def get(self, key: str) -> Got | None:
        try:
            with translated(self.name, refusable=True):
                answer = self.client.get_object(**self._at(key))
                with closing(answer["Body"]) as body:
                    return Got(body.read(), answer.get("ETag", ""), answer.get("Metadata", {}))
        except Absent:
            return None

    def digest(self, key: str, on_read: Callable[[int], None]) -> tuple[int, str] | None:
        digest, size = hashlib.sha512(), 0
        try:
            for piece in self._pieces(key):
                on_read(len(piece))
                digest.update(piece)
                size += len(piece)
        except Absent:
            return None
        return size, digest.hexdigest()

    def put(self, key: str, data: bytes, seen: str | None, metadata: Mapping[str, str] | None = None) -> None:
        condition = {"IfNoneMatch": "*"} if seen is None else {"IfMatch": seen}
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

    def upload(self, key: str, source: Path, size: int, sha512: str, attempt: Attempt) -> None:
        with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as stream:
            if size > PART:
                self._upload_parts(key, stream, size, sha512, attempt)
                return
            data = stream.read(size + 1)
            found = (os.fstat(stream.fileno()).st_size, hashlib.sha512(data).hexdigest())
            if found != (size, sha512):
                raise Unlike(*found)
            self.put(key, data, None)

    def keys(self, prefix: str) -> dict[str, Held]:
        found: dict[str, Held] = {}
        asked = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        while True:
            with translated(self.name):
                answer = self.client.list_objects_v2(**asked)
            for each in answer.get("Contents", ()):
                found[each["Key"].removeprefix(self._prefix)] = Held(each["Size"], each["ETag"])
            if not answer.get("IsTruncated"):
                return found
            asked["ContinuationToken"] = answer["NextContinuationToken"]

    def names(self, limit: int) -> list[str]:
        with translated(self.name):
            answer = self.client.list_objects_v2(
                Bucket=self._bucket, Prefix=self._prefix, Delimiter="/", MaxKeys=limit
            )
        keys = [each["Key"] for each in answer.get("Contents", ())]
        folders = [each["Prefix"] for each in answer.get("CommonPrefixes", ())]
        return [
            key.removeprefix(self._prefix).rstrip("/") for key in (*keys, *folders) if key != self._prefix
        ]

    def delete(self, key: str) -> None:
        with translated(self.name):
            self.client.delete_object(**self._at(key))

    def drop_uploads(self, prefix: str) -> None:
        with translated(self.name):
            answer = self.client.list_multipart_uploads(Bucket=self._bucket, Prefix=self._prefix + prefix)
        for each in answer.get("Uploads", ()):
            self._abort({"Bucket": self._bucket, "Key": each["Key"], "UploadId": each["UploadId"]})

    def _at(self, key: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _change(self, call: Callable[..., dict[str, Any]], **given: Any) -> dict[str, Any]:
        """A conditional write; Conflict if the condition does not hold."""
        try:
            with translated(self.name, refusable=True):
                return call(**given)
        except Refused as refused:
            raise Conflict(given["Key"]) from refused

    def _pieces(self, key: str) -> Iterator[bytes]:
        with translated(self.name, refusable=True):
            answer = self.client.get_object(**self._at(key))
            with closing(answer["Body"]) as body:
                while piece := body.read(READ_CHUNK):
                    yield piece

    def _read_again(self, key: str, size: int, sha512: str, attempt: Attempt) -> None:
        """For servers that do not confirm the digests that they are sent."""
        found = self.digest(key, lambda _: attempt.check())
        if found != (size, sha512):
            raise transient(f"{self.name} has something else in {key} than it was sent; it is sent again")

    def _upload_parts(self, key: str, stream: BinaryIO, size: int, sha512: str, attempt: Attempt) -> None:
        with self._unfinished(key) as upload:
            sent = self._send(upload, stream, max(PART, -(-size // MOST_PARTS)), attempt)
            if sent.found != (size, sha512):
                raise Unlike(*sent.found)
            self._change(
                self.client.complete_multipart_upload,
                **upload,
                MultipartUpload={"Parts": sent.parts},
                IfNoneMatch="*",
            )
        if not sent.confirmed:
            self._read_again(key, size, sha512, attempt)

    @contextmanager
    def _unfinished(self, key: str) -> Iterator[dict[str, Any]]:
        """An upload in parts, of which nothing is to be seen before it is completed; dropped if it fails."""
        with translated(self.name):
            started = self.client.create_multipart_upload(**self._at(key), ChecksumAlgorithm="SHA256")
        upload = {**self._at(key), "UploadId": started["UploadId"]}
        try:
            yield upload
        except BaseException:
            self._abort(upload)
            raise

    def _send(self, upload: dict[str, Any], stream: BinaryIO, part_size: int, attempt: Attempt) -> "_Sent":
        digest, size = hashlib.sha512(), 0
        parts: list[dict[str, Any]] = []
        confirmed = True
        while data := stream.read(part_size):
            attempt.check()
            digest.update(data)
            size += len(data)
            part: dict[str, Any] = {"PartNumber": len(parts) + 1, "ChecksumSHA256": _sha256(data)}
            try:
                with translated(self.name, refusable=True):
                    answer = self.client.upload_part(**upload, **part, Body=data, ChecksumAlgorithm="SHA256")
            except Absent as absent:
                raise transient(f"another attempt ended the upload of {upload['Key']}") from absent
            if answer.get("ChecksumSHA256") != part["ChecksumSHA256"]:
                confirmed = False
                del part["ChecksumSHA256"]
            parts.append({**part, "ETag": answer["ETag"]})
        return _Sent(parts, confirmed, (size, digest.hexdigest()))

    def _abort(self, upload: dict[str, Any]) -> None:
        try:
            with translated(self.name, refusable=True):
                self.client.abort_multipart_upload(**upload)
        except Absent:
            return
        except StepFailed as failed:
            log.warning("parts of %s are left in the bucket: %s", upload["Key"], failed.message)


def _sha256(data: bytes) -> str:
    return b64encode(hashlib.sha256(data).digest()).decode()
