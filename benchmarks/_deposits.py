"""Jobs whose steps run in this process as in a worker, with the record in memory."""

import hashlib
import os
import shutil
from pathlib import Path

from benchmarks._source import SMALL, small_body
from benchmarks._spent import Spent, spent
from pipeline.fixity import Digest
from pipeline.manifests.checkm import ManifestProfile, Row, write
from pipeline.records import Job, PayloadType
from pipeline.states import JobState
from pipeline.steps import download, process
from pipeline.working_storage.workspace import Workspace
from tests.support.repository import Repository, empty_inventory
from tests.support.step_context import RESERVED, working_job


class Deposits:
    """A site in `folder`: working storage, an OCFL storage root, an inventory."""

    def __init__(self, folder: Path) -> None:
        home = folder / "site"
        home.mkdir()
        self._repository = Repository(home, empty_inventory(folder))
        self._numbers = iter(range(1, 1_000_000))

    def one_file(self, url: str, size: int) -> Job:
        """A job of one file without declared digest or size."""
        return self._job(PayloadType.FILE, url, size)

    def small_files(self, source: str, files: int) -> Job:
        """A job of many small files, each with declared size and sha256."""
        rows = [_row(source, number) for number in range(files)]
        size = sum(row.size or 0 for row in rows)
        job = self._job(PayloadType.OBJECT_MANIFEST, f"{source}/manifest.checkm", size)
        workspace = Workspace.of(job, self._repository.settings.working)
        workspace.publish(workspace.manifest, write(ManifestProfile.OBJECT, rows))
        return job

    def _job(self, kind: PayloadType, url: str, size: int) -> Job:
        number = next(self._numbers)
        token = f"attempt-{number}"
        job = working_job(
            self._repository.settings, JobState.DOWNLOADING, kind, url, op=token, space_needed=RESERVED + size
        )
        return job.model_copy(update={"jid": f"jid{number:010}"})

    def download(self, job: Job) -> Spent:
        """Run the step that downloads the job's content."""
        return spent(lambda: download.work(job, self._repository.services()))

    def process(self, job: Job) -> Spent:
        """Run the step that stores the job's content as a new object."""
        return spent(lambda: process.work(job, self._repository.services()))

    def folder_of(self, job: Job) -> Path:
        """The downloaded files of the job."""
        return Workspace.of(job, self._repository.settings.working).producer

    def remove(self) -> None:
        """Remove everything downloaded and stored, so that the next round starts like this one."""
        settings = self._repository.settings
        for path in (*settings.working.glob("*/*"), *settings.storage.glob("???")):
            shutil.rmtree(path)
        os.sync()


def _row(source: str, number: int) -> Row:
    body = small_body(number)
    digest = Digest(algorithm="sha256", value=hashlib.sha256(body).hexdigest())
    return Row(line=0, url=f"{source}{SMALL}{number}", name=f"{number:05}", digest=digest, size=len(body))
