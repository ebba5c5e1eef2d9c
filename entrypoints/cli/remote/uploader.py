"""Uploads over the API; an `operations.local_deposit.Uploader`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

from entrypoints.cli.api import Client
from pipeline.records import Record
from pipeline.uploads.layout import UploadedFile


class _Begun(Record):
    id: str


class _Arrived(Record):
    name: str
    size: int
    sha512: str


@dataclass(frozen=True)
class RemoteUploader:
    client: Client

    def begin(self, key: str) -> str:
        headers = {"Idempotency-Key": key} if key else {}
        answer = self.client.request("POST", "/v1/uploads", headers=headers)
        return _Begun.model_validate_json(answer.content).id

    def put(self, upload: str, name: str, chunks: Iterable[bytes], size: int) -> UploadedFile:
        answer = self.client.request(
            "PUT",
            f"/v1/uploads/{upload}/{quote(name, safe='/')}",
            data=_Sized(chunks, size),
            headers={"Content-Type": "application/octet-stream"},
        )
        arrived = _Arrived.model_validate_json(answer.content)
        return UploadedFile(name=arrived.name, size=arrived.size, sha512=arrived.sha512)


@dataclass(frozen=True)
class _Sized:
    """Chunks whose size is known: sent with Content-Length, so that the site refuses before it reads."""

    chunks: Iterable[bytes]
    size: int

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.chunks)

    def __len__(self) -> int:
        return self.size
