"""What the tests of a storage do with it: requests, versions, and attempts that are tried again."""

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.description import anvl, metadata
from pipeline.fixity import ContentFile, StoredVersion
from pipeline.outcome import Later, StepFailed
from pipeline.records import SubmissionMode
from pipeline.states import FailureKind
from pipeline.storage.base import Storage, StoreRequest
from plugins.conformance.deaths import Deed
from plugins.conformance.subjects import Change, Promise, StoragePlace

ARK = "ark:/99999/fk4000000011"
ADD, UPDATE, RESET = SubmissionMode.ADD, SubmissionMode.UPDATE, SubmissionMode.RESET

OWN = f"system/{metadata.INGEST}"
"""Every version of arkline has this file, which names its job; some storages know the job by it alone."""

A, B, C = "producer/a.txt", "producer/b.txt", "producer/c.txt"

TRIES = 100
PAUSE = 0.05
"""Seconds between two tries of an attempt that met another writer of the object."""

Files = Mapping[str, str | bytes]


def key(number: int) -> str:
    """The key of job `number`."""
    return f"{number:032x}"


def jid(number: int) -> str:
    return f"jid{number:010}"


def sha512(data: str | bytes) -> str:
    return hashlib.sha512(_bytes(data)).hexdigest()


def no_fence() -> None:
    """The fence of an attempt that goes on."""


@dataclass(frozen=True)
class Place:
    """The place under test, and one storage that is open there."""

    given: StoragePlace

    @cached_property
    def storage(self) -> Storage:
        return self.given.open(None)

    def request(
        self,
        number: int,
        files: Files,
        mode: SubmissionMode = ADD,
        delete: tuple[str, ...] = (),
        ark: str = ARK,
        **other: Any,
    ) -> StoreRequest:
        """Job `number` stores `files`, path -> content, which are written to working storage."""
        request = StoreRequest(
            ark=ark,
            jid=jid(number),
            mode=mode,
            files=tuple(self.content_file(number, path, data) for path, data in files.items()),
            delete=delete,
            key=key(number),
            message="as submitted",
            user="depositor@example.edu",
        )
        return self.with_own_file(number, replace(request, **other)) if files else request

    def with_own_file(self, number: int, request: StoreRequest) -> StoreRequest:
        """The request with the file that names its job, composed as arkline does: nothing is at its place."""
        job = (("job", request.jid), *((("jobKey", request.key),) if request.key else ()))
        data = anvl.write(job, gap="\t")
        own = ContentFile(OWN, self.source(number, OWN), len(data), sha512(data), data=data)
        return replace(request, files=(*request.files, own))

    def content_file(self, number: int, path: str, content: str | bytes) -> ContentFile:
        source, data = self.source(number, path), _bytes(content)
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_bytes(data)
        return ContentFile(path, source, len(data), sha512(data))

    def source(self, number: int, path: str) -> Path:
        return self.given.working / jid(number) / path

    def store(
        self,
        number: int,
        files: Files,
        mode: SubmissionMode = ADD,
        delete: tuple[str, ...] = (),
        ark: str = ARK,
        **other: Any,
    ) -> StoredVersion:
        return store(self.storage, self.request(number, files, mode, delete, ark, **other))

    def writer(self, number: int, files: Files, ark: str) -> Deed:
        """Store as a process of its own."""
        request = self.request(number, files, ark=ark)
        return lambda: partial(self.given.open(None).store, request, no_fence)

    def version_of(self, number: int, ark: str = ARK, storage: Storage | None = None) -> StoredVersion | None:
        return (storage or self.storage).version_of(ark, jid(number), key=key(number))

    def contents(self, number: int | None = None, ark: str = ARK) -> dict[str, bytes | None]:
        """The files of a version but OWN, as they are read; of the latest if `number` is None."""
        entries = self.storage.versions_of(ark)
        chosen = entries[-1 if number is None else number - 1]
        paths = sorted(chosen.digests.keys() - {OWN})
        return {path: self.storage.read(ark, path, chosen.number) for path in paths}

    def number_of_versions(self, ark: str = ARK) -> int:
        return len(self.storage.versions_of(ark))

    def change(self, ark: str, path: str, change: Change) -> None:
        self.given.change(ark, path, change)

    def needs(self, promise: Promise) -> None:
        """Skip the test if the storage does not promise this."""
        if reason := self.given.without.get(promise):
            pytest.skip(f"{promise}: {reason}")


def store(storage: Storage, request: StoreRequest, fence: Callable[[], None] = no_fence) -> StoredVersion:
    """Try until no other writer of the object is in the way, as a job does."""
    for _ in range(TRIES):
        try:
            return storage.store(request, fence)
        except Later:
            threading.Event().wait(PAUSE)
    return storage.store(request, fence)


def flip(data: bytes) -> bytes:
    """One bit, as a disk might."""
    return bytes((data[0] ^ 1, *data[1:]))


def lose(data: bytes) -> None:
    del data


def refused(kind: FailureKind, act: Callable[[], object]) -> str:
    """The message of the failure, which has this kind."""
    with pytest.raises(StepFailed) as failed:
        act()
    assert failed.value.kind is kind, failed.value.message
    return failed.value.message


def _bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data
