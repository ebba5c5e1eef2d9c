"""What the tests of downloading share: jobs, the files that sources serve, and the expected result."""

import hashlib
import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.attempt import UNATTENDED, Attempt, CheckedAttempt
from pipeline.fixity import Digest
from pipeline.manifests.checkm import ManifestProfile, Row, write
from pipeline.outcome import AttemptOver, Done
from pipeline.records import Job, PayloadType
from pipeline.settings import Settings
from pipeline.states import JobState
from pipeline.steps import download
from pipeline.working_storage.workspace import Workspace
from tests.servers.http_source import HttpSource
from tests.support.step_context import services, working_job

FILES = {
    "a.txt": b"alpha",
    "folder/b.bin": bytes(range(256)) * 10_000,
    "folder/empty": b"",
    "mrt-erc.txt": b"erc:\nwho: somebody\n",
}


def md5(data: bytes) -> Digest:
    return Digest(algorithm="md5", value=hashlib.md5(data, usedforsecurity=False).hexdigest())


def job_of_file(settings: Settings, url: str, **facts: Any) -> Job:
    kind = facts.pop("payload_type", PayloadType.FILE)
    return working_job(settings, JobState.DOWNLOADING, kind, url, **facts)


def job_of(settings: Settings, rows: list[Row], attempt: int = 1) -> Job:
    """A job whose kept manifest has these rows."""
    job = job_of_file(
        settings,
        "http://example.org/m.checkm",
        payload_type=PayloadType.OBJECT_MANIFEST,
        op=f"attempt-{attempt}",
    )
    workspace = Workspace.of(job, settings.working)
    workspace.publish(workspace.manifest, write(ManifestProfile.OBJECT, rows))
    return job


def rows(source: HttpSource, files: dict[str, bytes] = FILES, *, digests: bool = True) -> list[Row]:
    """One row per file, with the served name."""
    return [
        Row(
            line=0,
            url=source.put(f"/{name}", body),
            name=name,
            digest=md5(body) if digests else None,
            size=len(body) if digests else None,
        )
        for name, body in files.items()
    ]


def downloaded(job: Job, settings: Settings, attempt: Attempt = UNATTENDED) -> Done:
    outcome = download.work(job, services(settings, attempt=attempt))
    assert isinstance(outcome, Done)
    return outcome


def content_of(job: Job) -> dict[str, bytes]:
    producer = Workspace.of(job, Path(job.configuration.working_dir).parent.parent).producer
    return {
        path.relative_to(producer).as_posix(): path.read_bytes()
        for path in producer.rglob("*")
        if path.is_file()
    }


def assert_downloaded(job: Job, files: dict[str, bytes]) -> None:
    workspace = Workspace.of(job, Path(job.configuration.working_dir).parent.parent)
    downloaded_file = {file.path: (file.size, file.sha512) for file in workspace.read_downloaded()}
    assert content_of(job) == files
    assert downloaded_file == {
        name: (len(body), hashlib.sha512(body).hexdigest()) for name, body in files.items()
    }
    assert not workspace.attempt.parent.exists()


def ends_after(checks: int) -> Attempt:
    """An attempt that ends after `checks` checks."""
    counter = itertools.count()

    def check() -> None:
        if next(counter) >= checks:
            raise AttemptOver("the lock is lost")

    return CheckedAttempt(check)


def size_of(folder: Path) -> int:
    """The bytes of the files below the folder, of which one may be renamed meanwhile."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size if path.is_file() else 0
    return size
